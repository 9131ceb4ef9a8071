"""Replace this process by a job's command, and say over a pipe how that went. Run by path: `exec_job.py FD COMMAND…`.

It stands between `systemd-run` and the command, because systemd-run cannot tell its caller when the command really
runs: it closes the pipe by the exec itself. Written first is `STARTED` (the scope exists), then, only when the exec
fails, the error number. Nothing is imported but what an interpreter without site-packages has anyway.
"""

import os
import sys

STARTED = b"s"
COMMAND_NOT_RUN = 127  # what a shell exits with when it cannot run a command


def main() -> None:
    fd = int(sys.argv[1])
    command = sys.argv[2:]
    os.set_inheritable(fd, False)
    os.write(fd, STARTED)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(fd, str(error.errno).encode())
        os._exit(COMMAND_NOT_RUN)


if __name__ == "__main__":
    main()

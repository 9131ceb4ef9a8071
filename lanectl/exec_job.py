"""Replace this process by a job's command, and say over a pipe how that went. Run by path: `exec_job.py COMMAND TELL`.

It stands between `systemd-run` and the job. systemd-run cannot tell its caller when the command really runs: here the
exec itself closes the pipe TELL. Written first is `STARTED` (the scope exists), then, only when the exec fails, the
error number. And newer systemd-runs expand `$NAME` in a scope's command: so it is read from the file COMMAND instead,
its words separated by NUL. Nothing is imported but what an interpreter without site-packages has anyway.
"""

import os
import sys

STARTED = b"s"
SEPARATOR = b"\0"
READ_SIZE = 64 * 1024
COMMAND_NOT_RUN = 127  # what a shell exits with when it cannot run a command


def main() -> None:
    command_fd, tell = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(tell, False)
    words = b""
    while data := os.pread(command_fd, READ_SIZE, len(words)):
        words += data
    os.close(command_fd)
    os.write(tell, STARTED)
    command = words.split(SEPARATOR)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(tell, str(error.errno).encode())
        os._exit(COMMAND_NOT_RUN)


if __name__ == "__main__":
    main()

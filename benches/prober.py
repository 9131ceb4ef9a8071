"""An outside client: asks GET /health of a port of this machine again and again until another server answers.

Prints `asking` once the first server has answered, then the milliseconds for which the service was gone: from the last
good answer of the first server to the first good answer of the other, less the pause between two questions, in which
nothing would be seen of a service that was never gone. A good answer is a whole one with status 200; a new connection
is made for each; servers are told apart by their answers' bodies.

Run by dark_time.py: python -I prober.py PORT
"""

from __future__ import annotations

import http.client
import sys
import time

PAUSE_S = 0.002
ANSWER_WITHIN_S = 1.0  # a question that hangs is a service that is gone
GIVE_UP_AFTER_S = 120.0


def ask(port: int) -> bytes | None:
    """Return the body of a good answer, None for any other or none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_WITHIN_S)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        body = answer.read()
        return body if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def main(port: int) -> int:
    until = time.monotonic() + GIVE_UP_AFTER_S
    first: bytes | None = None
    last = now = time.monotonic()
    while now < until:
        body = ask(port)
        now = time.monotonic()
        if body is not None and first is None:
            first = body
            print("asking", flush=True)
        if body is not None and body != first:
            print(round((now - last - PAUSE_S) * 1000, 2), flush=True)
            return 0
        if body is not None:
            last = now
        time.sleep(PAUSE_S)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))

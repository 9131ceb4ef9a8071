"""A client of the public port, in a process of its own: how long was there no answer? Run by path, `-I -S`.

Nothing but the standard library, nothing of lanectl: what it sees is what any client would have seen. It asks for one
token again and again, says `serving` at the first good answer, and when its standard input ends, prints one JSON
object: `longest_gap_s` is the longest time from one good answer to the next.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time

# While it is served it must not keep production from ever being idle (a drain waits for that): one question of some
# milliseconds every 25. While it is not, a refused connection costs little, and every 10 ms are precise enough.
ASK_EVERY_S = 0.025
KNOCK_EVERY_S = 0.01
ANSWER_WITHIN_S = 5.0


def good_answer(host: str, port: int, model: str) -> bool:
    """Ask for one token; return whether it came."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_WITHIN_S)
    body = json.dumps({"model": model, "prompt": "Is anybody there?", "max_tokens": 1, "temperature": 0})
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        return response.status == http.HTTPStatus.OK and bool(answer["choices"])
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _await_end_of_input(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def main(host: str, port: int, model: str) -> None:
    over = threading.Event()
    threading.Thread(target=_await_end_of_input, args=(over,), daemon=True).start()
    answers = failures = 0
    last_good: float | None = None
    longest = 0.0
    while True:
        ending = over.is_set()
        if good_answer(host, port, model):
            now = time.monotonic()
            if last_good is None:
                sys.stdout.write("serving\n")
                sys.stdout.flush()
            else:
                longest = max(longest, now - last_good)
            last_good, answers = now, answers + 1
            if ending:  # the answer after the last gap has been seen
                break
            over.wait(ASK_EVERY_S)
        elif ending and last_good is None:
            break
        else:
            failures += 1
            time.sleep(KNOCK_EVERY_S)
    sys.stdout.write(json.dumps({"answers": answers, "failures": failures, "longest_gap_s": round(longest, 3)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])

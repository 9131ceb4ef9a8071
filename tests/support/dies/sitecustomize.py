"""Kill a lanectl process right after its N-th durable line, as `kill -9` would: an aid of the tests.

Every Python that has this folder on its PYTHONPATH imports it at its start. LANECTL_TEST_DIES_AT says who dies when:
"swap:7 guard:1" is the swap's process after its 7th line and its guard after its first, of journal and audit together.
"""

import os
import signal
import sys

WISH = "LANECTL_TEST_DIES_AT"


def _mortal(at: int) -> None:
    from lanectl.store.files import AppendLog

    append = AppendLog.append
    lines = 0

    def append_and_die(log: AppendLog, line: bytes) -> None:
        nonlocal lines
        append(log, line)
        lines += 1
        if lines == at:
            os.kill(os.getpid(), signal.SIGKILL)

    AppendLog.append = append_and_die  # type: ignore[method-assign]


for _who, _, _at in (wish.partition(":") for wish in os.environ.get(WISH, "").split()):
    if _who in sys.orig_argv:
        _mortal(int(_at))

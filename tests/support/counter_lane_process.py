"""One side of a lane with a sidecar, and nothing but the protocol of its counters. Run: `… sidecar|server FILE`.

The server publishes calls and waits for the sidecar, up to a spin limit; then it counts a timeout and goes on, as the
real one does. The sidecar completes what is published. Words of nanoseconds behind the counters tell when a call was
published last, and let a test set the load, the sidecar's time for a call, and the spin limit. Standard library only.
"""

import mmap
import os
import sys
import time

SIZE = 16384
PUBLISHED, COMPLETED, TIMEOUTS, ROWS, TOKENS, WAIT_NS, WAITS = range(7)
# From here on it is the tests' own: behind the 8192 bytes that a real server zeroes.
PUBLISHED_AT, LOADED, CALL_NS, SPIN_NS = range(1024, 1028)
PAUSE_S = 0.0002  # of a waiting side: two of them must not take both cores


def open_words(path, size=0):
    fd = os.open(path, os.O_RDWR | (os.O_CREAT if size else 0), 0o666)
    if size:
        os.ftruncate(fd, size)
    return memoryview(mmap.mmap(fd, SIZE)).cast("q")


def sidecar(path):
    words = open_words(path, SIZE)
    print("serving", flush=True)
    while True:
        if words[COMPLETED] == words[PUBLISHED]:
            time.sleep(PAUSE_S)
            continue
        published = words[PUBLISHED]
        if words[CALL_NS]:
            time.sleep(words[CALL_NS] / 1e9)
        words[COMPLETED] = published


def server(path):
    words = open_words(path)
    for word in range(PUBLISHED, WAITS + 1):
        words[word] = 0
    print("up", flush=True)
    while True:
        if not words[LOADED]:
            time.sleep(PAUSE_S)
            continue
        call(words)


def call(words):
    began = time.monotonic_ns()
    words[PUBLISHED_AT] = began
    words[PUBLISHED] += 1
    while words[COMPLETED] < words[PUBLISHED]:
        if time.monotonic_ns() - began > (words[SPIN_NS] or 2**62):
            words[TIMEOUTS] += 1
            break
        time.sleep(PAUSE_S)
    words[WAIT_NS] += time.monotonic_ns() - began
    words[WAITS] += 1


if __name__ == "__main__":
    {"sidecar": sidecar, "server": server}[sys.argv[1]](sys.argv[2])

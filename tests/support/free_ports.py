"""Ports for tests that run beside each other: free, and never the same for two of them."""

from __future__ import annotations

import random
import socket

# Below the kernel's ephemeral range (Linux: 32768 on): else a client's outgoing connection may take a port before the
# server that is to get it.
FIRST, LAST = 20_000, 32_000

_reserved: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, reserved for this process until it ends."""
    found: list[int] = []
    for port in random.sample(range(FIRST, LAST), LAST - FIRST):
        if len(found) == count:
            break
        if _reserve(port) and _is_free(port):
            found.append(port)
    return found


def _reserve(port: int) -> bool:
    """Reserve it among the tests' processes: the kernel frees an abstract name (unix(7)) with the process."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0lanectl-test-port-{port}")
    except OSError:
        mark.close()
        return False
    _reserved.append(mark)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as wanted:
        try:
            wanted.bind(("", port))
        except OSError:
            return False
    return True

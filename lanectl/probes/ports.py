"""Who listens on a TCP port of this machine, and whether a server could bind it."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lanectl.ports import PortOwner
from lanectl.probes.listeners import Address, Listener, listeners

WILDCARDS = ("", "0.0.0.0", "::")


def port_owner(host: str, port: int) -> PortOwner:
    """Given a host's address or name and a port, return who would answer there: one process for each listening socket.

    pids None: it cannot be read.
    """
    try:
        inodes = {listener.inode for listener in _answering_now(host, port)}
    except OSError:
        return PortOwner(listening=True, pids=None)  # cannot tell; whoever asks has seen it answer, or must ask again
    if not inodes:
        return PortOwner(listening=False, pids=frozenset())
    holders = _holders(inodes)
    if holders.keys() != inodes:
        return PortOwner(listening=True, pids=None)
    pids = frozenset(holders.values())
    return PortOwner(listening=True, pids=pids, names=tuple(_process_name(pid) for pid in sorted(pids)))


def can_bind(host: str, port: int) -> bool:
    """Return whether a server could bind the port now, with SO_REUSEADDR as servers do (left-over TIME_WAIT is fine).

    Only bound, never listened on: a client must not be accepted by a probe.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
    except OSError:
        return False
    return True


def answering(found: Sequence[Listener], wanted: Address) -> tuple[Listener, ...]:
    """Given the listeners of one port and the address a client asks, return those that would answer.

    Where listeners overlap, the kernel prefers the more specific address, and IPv4 to an IPv6 socket that also takes
    IPv4 (net/ipv4/inet_hashtables.c, compute_score).
    """
    preferred: list[Address] = [wanted]
    if isinstance(wanted, ipaddress.IPv4Address):
        preferred += [ipaddress.IPv6Address(f"::ffff:{wanted}"), ipaddress.IPv4Address("0.0.0.0")]
    preferred.append(ipaddress.IPv6Address("::"))
    for address in preferred:
        best = tuple(listener for listener in found if listener.address == address)
        if best:
            return best
    return ()


def _answering_now(host: str, port: int) -> tuple[Listener, ...]:
    """Return who would answer a client of `host`; for a wildcard, which a server binds whole, all who listen."""
    found = listeners(socket.AF_INET, port) + listeners(socket.AF_INET6, port)
    if host in WILDCARDS:
        return found
    return tuple(listener for address in _addresses(host) for listener in answering(found, address))


def _addresses(host: str) -> tuple[Address, ...]:
    try:
        known = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in known)


def _holders(inodes: set[int]) -> dict[int, int]:
    """Return, for each listening socket, the newest process that holds it; without those that cannot be read.

    Newest first, and no further than needed: a server that just booted is found at once, while a machine with a
    thousand processes has tens of thousands of descriptors. Who else shares that one socket inherited it.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    holders: dict[int, int] = {}
    for pid in sorted((int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()), reverse=True):
        for inode in _held(pid, wanted):
            holders.setdefault(inode, pid)
        if len(holders) == len(inodes):
            break
    return holders


def _held(pid: int, wanted: Mapping[str, int]) -> Iterator[int]:
    with suppress(OSError):  # another user's, or gone meanwhile
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                link = os.readlink(descriptor.path)  # noqa: PTH115 - many of them: a Path each costs more
                if link in wanted:
                    yield wanted[link]


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"

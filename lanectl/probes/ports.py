"""Who listens on a TCP port of this machine, and whether a server could bind it. Linux: proc(5), tcp(7), ip(7)."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lanectl.ports import PortOwner

_LISTEN = "0A"  # TCP_LISTEN of the kernel's include/net/tcp_states.h, as /proc/net/tcp prints it

TCP, TCP6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Listener:
    address: Address
    port: int
    inode: int


def port_owner(host: str, port: int) -> PortOwner:
    """Given a host's address or name and a port, return who would answer there. pids None: it cannot be read.

    Where listeners overlap, the kernel prefers the more specific address, and IPv4 to an IPv6 socket that also takes
    IPv4 (net/ipv4/inet_hashtables.c, compute_score); only those preferred would answer.
    """
    inodes = {listener.inode for address in _addresses(host) for listener in _answering_now(port, address)}
    if not inodes:
        return PortOwner(listening=False, pids=frozenset())
    holders = _holders(inodes)
    if holders.keys() != inodes:
        return PortOwner(listening=True, pids=None)
    pids = frozenset(pid for found in holders.values() for pid in found)
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


def answering(listeners: Sequence[Listener], wanted: Address) -> tuple[Listener, ...]:
    """Given the listeners of one port and the address a client asks, return those that would answer."""
    preferred: list[Address] = [wanted]
    if isinstance(wanted, ipaddress.IPv4Address):
        preferred += [ipaddress.IPv6Address(f"::ffff:{wanted}"), ipaddress.IPv4Address("0.0.0.0")]
    preferred.append(ipaddress.IPv6Address("::"))
    for address in preferred:
        found = tuple(listener for listener in listeners if listener.address == address)
        if found:
            return found
    return ()


def _answering_now(port: int, wanted: Address | None) -> tuple[Listener, ...]:
    """Read no more tables than needed: the kernel takes some 5 ms for each (it walks its table of connections)."""
    if wanted is None:
        return _listeners(TCP, port) + _listeners(TCP6, port)
    tables = (TCP, TCP6) if isinstance(wanted, ipaddress.IPv4Address) else (TCP6,)
    return next((found for table in tables if (found := answering(_listeners(table, port), wanted))), ())


def _listeners(table: Path, port: int) -> tuple[Listener, ...]:
    try:
        return parse_table(table.read_text(encoding="ascii"), port)
    except FileNotFoundError:  # a machine without IPv6
        return ()


def parse_table(text: str, port: int) -> tuple[Listener, ...]:
    """Given /proc/net/tcp or tcp6, return the listeners on `port`.

    Columns (proc(5)): 1 local address:port in hex, 3 state, 9 inode. The address is printed as native 32-bit words of
    its network-order bytes, so its bytes depend on the machine's byte order.
    """
    wanted = f":{port:04X}"
    rows = (line.split() for line in text.splitlines()[1:] if wanted in line)
    return tuple(
        Listener(_address(row[1][: -len(wanted)]), port, int(row[9]))
        for row in rows
        if len(row) > 9 and row[1].endswith(wanted) and row[3] == _LISTEN
    )


def _address(words: str) -> Address:
    raw = b"".join(int(words[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(words), 8))
    return ipaddress.IPv4Address(raw) if len(raw) == 4 else ipaddress.IPv6Address(raw)


def _addresses(host: str) -> tuple[Address | None, ...]:
    """Return the addresses a client of `host` would ask; None stands for "any", where a server binds them all."""
    if host in ("", "0.0.0.0", "::"):
        return (None,)
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in found)


def _holders(inodes: set[int]) -> dict[int, set[int]]:
    """Return, for each socket inode, the processes that hold it; an inode whose holders cannot be read is left out."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    holders: dict[int, set[int]] = {}
    for process in os.scandir("/proc"):
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # another user's, or gone meanwhile
            for descriptor in os.scandir(f"/proc/{process.name}/fd"):
                with suppress(OSError):
                    link = os.readlink(descriptor.path)  # noqa: PTH115 - thousands of them: a Path each costs more
                    inode = wanted.get(link)
                    if inode is not None:
                        holders.setdefault(inode, set()).add(int(process.name))
    return holders


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"

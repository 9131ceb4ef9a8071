"""Who listens on a port, and whether it can be bound: with real sockets and processes."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lanectl.probes.http import HttpProber
from lanectl.probes.listeners import Listener, ask_kernel, parse_table, read_table
from lanectl.probes.ports import answering

PROBER = HttpProber()
LISTEN = (
    "import socket,sys; s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
    "s.bind(('127.0.0.1', 0)); s.listen();"
    "print(s.getsockname()[1], flush=True); sys.stdin.read()"
)


@pytest.fixture
def stranger() -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen([sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def listening(host: str = "127.0.0.1", family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
    sock.bind((host, 0))
    sock.listen()
    return sock


def test_T06_the_owner_of_a_port_is_named(stranger: tuple[subprocess.Popen[str], int]) -> None:
    process, port = stranger
    owner = PROBER.port("127.0.0.1", port)
    assert owner.listening
    assert owner.pids == frozenset({process.pid})
    assert owner.names
    assert owner.names[0].startswith("python")


def test_T06_with_a_shared_port_every_listener_counts(stranger: tuple[subprocess.Popen[str], int]) -> None:
    process, port = stranger
    with socket.socket() as sharing:
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sharing.bind(("127.0.0.1", port))
        sharing.listen()
        assert PROBER.port("127.0.0.1", port).pids == frozenset({process.pid, os.getpid()})


def test_T24_a_child_that_kept_the_listener_of_a_dead_server_is_named() -> None:
    with listening() as sock:
        port = sock.getsockname()[1]
        os.set_inheritable(sock.fileno(), True)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with child:
        assert PROBER.port("127.0.0.1", port).pids == frozenset({child.pid})
        child.kill()


def test_a_port_where_nothing_listens_has_no_owner() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        owner = PROBER.port("127.0.0.1", bound.getsockname()[1])
    assert not owner.listening
    assert owner.pids == frozenset()


@pytest.mark.parametrize("asked", ["127.0.0.1", "localhost", "0.0.0.0", ""])
def test_a_wildcard_listener_answers_every_address(asked: str) -> None:
    with listening("0.0.0.0") as sock:
        assert PROBER.port(asked, sock.getsockname()[1]).pids == frozenset({os.getpid()})


def test_a_wildcard_is_asked_for_listeners_on_any_address() -> None:
    with listening("127.0.0.1") as sock:
        assert PROBER.port("0.0.0.0", sock.getsockname()[1]).listening


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 in this Python")
def test_an_ipv6_listener_that_takes_ipv4_answers_ipv4() -> None:
    try:
        sock = listening("::", socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with sock:
        assert PROBER.port("127.0.0.1", sock.getsockname()[1]).pids == frozenset({os.getpid()})


def test_T24_a_port_that_is_held_cannot_be_bound_and_then_can(stranger: tuple[subprocess.Popen[str], int]) -> None:
    process, port = stranger
    assert not PROBER.can_bind("127.0.0.1", port)
    assert not PROBER.can_bind("0.0.0.0", port)
    process.kill()
    process.wait()
    assert PROBER.can_bind("127.0.0.1", port)


def test_T24_connections_left_in_time_wait_do_not_keep_a_port() -> None:
    with listening() as sock:
        port = sock.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = sock.accept()
            accepted.close()  # the server closes first, so that its side is the one in TIME_WAIT
    assert PROBER.can_bind("127.0.0.1", port)


def test_an_address_that_is_not_ours_cannot_be_bound() -> None:
    assert not PROBER.can_bind("192.0.2.1", 30006)  # TEST-NET-1 (RFC 5737)


def address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)


@pytest.mark.parametrize(
    ("there", "asked", "expected"),
    [
        (["127.0.0.1", "0.0.0.0", "::"], "127.0.0.1", ["127.0.0.1"]),
        (["0.0.0.0", "::"], "127.0.0.1", ["0.0.0.0"]),
        (["::"], "127.0.0.1", ["::"]),
        (["::ffff:127.0.0.1", "::"], "127.0.0.1", ["::ffff:7f00:1"]),
        (["10.0.0.7", "::1"], "127.0.0.1", []),
        (["0.0.0.0", "0.0.0.0"], "127.0.0.1", ["0.0.0.0", "0.0.0.0"]),
        (["0.0.0.0", "::"], "::1", ["::"]),
        (["0.0.0.0"], "::1", []),
    ],
)
def test_the_more_specific_listener_answers(there: list[str], asked: str, expected: list[str]) -> None:
    listeners = [Listener(address(text), 30006, number) for number, text in enumerate(there)]
    assert [str(found.address) for found in answering(listeners, address(asked))] == expected


@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")],
)
def test_both_ways_to_find_a_listener_agree(family: socket.AddressFamily, host: str) -> None:
    try:
        sock = listening(host, family)
    except OSError:
        pytest.skip(f"{host} cannot be listened on here")
    with sock:
        port = sock.getsockname()[1]
        expected = (Listener(address(host), port, os.fstat(sock.fileno()).st_ino),)
        assert read_table(family, port) == expected
        try:
            asked = ask_kernel(family, port)
        except OSError:
            pytest.skip("this kernel has no sock_diag")
        assert asked == expected


def test_rows_that_are_no_listener_on_the_port_are_left_out() -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    tail = "00000000:00000000 00:00000000 00000000     0        0 {} 1 0000000000000000 100 0 0 10 0\n"
    rows = [
        ("00000000:7536", "00000000:0000", "0A", 1),
        ("00000000:7536", "0100007F:9999", "01", 2),
        ("00000000:7537", "00000000:0000", "0A", 3),
        ("00000000:0016", "00000000:7536", "0A", 4),
    ]
    table = head + "".join(f"   {n}: {a} {b} {st} " + tail.format(n) for a, b, st, n in rows)
    assert [listener.inode for listener in parse_table(table + "   9: 00000000:7536\n", 30006)] == [1]

"""What can go wrong with one call to a container engine, for the fault proxy to do."""

from __future__ import annotations

import os
import signal

from tests.support.fault_proxy import Exchange, Fault


def refused(status: int) -> Fault:
    """Return: the daemon does nothing and answers with this status."""

    def fault(exchange: Exchange) -> bool:
        exchange.reply(status, f"injected: {status} for {exchange.call}")
        return True

    return fault


def cut_before(exchange: Exchange) -> None:
    """The connection is reset; the daemon never got the request."""


def cut_after(exchange: Exchange) -> None:
    """The daemon does it; the connection is reset before its answer."""
    exchange.forward()


def cut_within(exchange: Exchange) -> None:
    """The daemon does it; the connection is reset in the middle of its answer."""
    answer = exchange.forward()
    exchange.send(answer[: len(answer) // 2])


def hang_before(exchange: Exchange) -> None:
    """Nothing is done and nothing answered until the client has given up."""
    exchange.await_giving_up()


def hang_after(exchange: Exchange) -> None:
    """The daemon does it; no answer comes until the client has given up."""
    exchange.forward()
    exchange.await_giving_up()


def daemon_restarted(exchange: Exchange) -> None:
    """The daemon is restarted as an upgrade does it; its socket is gone meanwhile, and the request with it."""
    exchange.proxy.away(exchange.proxy.daemon.restart)


def daemon_killed(exchange: Exchange) -> bool:
    """The daemon dies and is started again; the request waits in its socket, as in one that systemd keeps."""
    daemon = exchange.proxy.daemon

    def again() -> None:
        daemon.kill()
        daemon.start()

    exchange.proxy.held(exchange.client, again)
    exchange.upstream.clear()  # that connection died with the daemon
    return exchange.pass_on()


def killed_before(exchange: Exchange) -> None:
    """The calling process is killed; the daemon never got the request."""
    os.kill(exchange.pid, signal.SIGKILL)


def killed_after(exchange: Exchange) -> None:
    """The daemon does it; the calling process is killed before its answer."""
    exchange.forward()
    os.kill(exchange.pid, signal.SIGKILL)


FAULTS: dict[str, Fault] = {
    "500": refused(500),
    "404": refused(404),
    "409": refused(409),
    "reset before the effect": cut_before,
    "reset after the effect": cut_after,
    "reset within the answer": cut_within,
    "hang before the effect": hang_before,
    "hang after the effect": hang_after,
    "daemon restarted": daemon_restarted,
    "daemon killed": daemon_killed,
    "kill -9 before the effect": killed_before,
    "kill -9 after the effect": killed_after,
}
KILLS = ("kill -9 before the effect", "kill -9 after the effect")  # these need a process of their own to kill

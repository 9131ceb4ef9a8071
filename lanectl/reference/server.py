"""`python -m lanectl.reference.server`: the options, and the life of the process."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import sys
from typing import NoReturn

from lanectl.reference.engine_core import start_engine
from lanectl.reference.faults import KINDS, VARIABLE, Faults, FaultyLog, hold_port, ignore_sigterm
from lanectl.reference.options import add_model_options, count, factor, port
from lanectl.reference.placements import HYSTERESIS, PLACEMENTS


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    options = argparse.ArgumentParser(
        prog="python -m lanectl.reference.server",
        description="A small, true mixture-of-experts language model server with the API, metrics and log of vLLM.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"placements:\n{_placements()}\n\n"
        f"faults (also in the environment, as {VARIABLE}='KIND[=VALUE] KIND[=VALUE]'):\n{_kinds()}",
    )
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=port, default=8000)
    options.add_argument("--served-model-name", nargs="+", default=["reference"], metavar="NAME")
    add_model_options(options)
    options.add_argument("--placement", choices=PLACEMENTS, default="resident", help="where the map's cold experts are")
    options.add_argument("--hysteresis", type=factor, metavar="X", default=HYSTERESIS, help="of adaptive residency")
    options.add_argument("--max-model-len", type=count, default=4096, metavar="N", help="longest context, in tokens")
    options.add_argument("--max-num-seqs", type=count, default=64, metavar="N", help="requests that run at a time")
    options.add_argument("--max-num-batched-tokens", type=count, default=256, metavar="N", help="rows of one step")
    options.add_argument("--kv-cache-memory-bytes", type=count, default=128 * 1024**2, metavar="N")
    options.add_argument("--device-word", default="GPU", help="what the boot log calls the place of the KV cache")
    options.add_argument("--api-key", nargs="+", default=[], metavar="KEY", help="/v1/* needs one of them as bearer")
    options.add_argument("--disable-access-log", action="store_true", help="no log line for each request")
    options.add_argument("--fault", action="append", default=[], metavar="KIND[=VALUE]", help="misbehave; repeatable")
    return options


def _placements() -> str:
    """The table of the placements, one a line."""
    return "\n".join(f"  {name:24} {what}" for name, what in PLACEMENTS.items())


def _kinds() -> str:
    """The table of the faults, one a line."""
    lines = []
    for name, kind in KINDS.items():
        value = f"={kind.form}" if kind.form else ""
        default = f" ({kind.default})" if kind.default else ""
        lines.append(f"  {name + value:24} {kind.does}{default}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Serve until SIGTERM or SIGINT; exit 0 then, 1 if the server cannot start, 2 for a wrong command line."""
    options = parser()
    settings = options.parse_args(arguments)
    try:
        faults = Faults.read([*shlex.split(os.environ.get(VARIABLE, "")), *settings.fault])
    except ValueError as problem:
        options.error(str(problem))
    # As process 1 of a container, a signal without a handler would be ignored: there is one from the start.
    if not ignore_sigterm(faults):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    log = FaultyLog(faults)
    try:
        listening = _bound(settings.host, settings.port)
    except OSError as problem:
        log.line(f"ERROR: cannot bind {settings.host}:{settings.port}: {problem.strerror}")
        sys.exit(1)
    hold_port(faults, listening)
    process, channel = start_engine(settings, faults, listening)
    import asyncio

    from lanectl.reference.serving import Server  # only now: the engine's process loads its own modules meanwhile

    sys.exit(asyncio.run(Server(settings, faults, log, listening).run(process, channel)))


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, not yet listening: while the engine boots, a connection is refused.
    Raise OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(address)
    return bound


if __name__ == "__main__":
    main()

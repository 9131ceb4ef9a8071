"""The command line: the root command, and the one boundary where an error becomes words and an exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

import lanectl
from lanectl.cli import demo, gate, guard, lanes, logs, options, plan, recover, render, serve, status, swap, watch
from lanectl.cli.quick import plain
from lanectl.errors import ExitCode, LaneError
from lanectl.settings import Settings

PROGRAM = "lanectl"
Commands = dict[str, Callable[..., Any]]

# In the order in which help lists them.
COMMANDS: Commands = {
    "swap": swap.swap,
    "plan": plan.plan,
    "status": status.status,
    "health": status.health,
    "recover": recover.recover,
    "adopt": recover.adopt,
    "rollback": serve.rollback,
    "stop": serve.stop,
    "start": serve.start,
    "restart": serve.restart,
    "attach": serve.attach,
    "units": recover.units,
    "render": lanes.render_lane,
    "schema": lanes.schema,
    "logs": logs.logs,
    "demo": demo.demo,
    "watch": watch.watch,
    "gate": gate.gate,
    "guard": guard.guard,
    "watchdog": watch.watchdog,
}
GROUPS: dict[str, tuple[str, Commands]] = {
    "lanes": ("The site's lanes.", {"list": lanes.list_, "show": lanes.show, "validate": lanes.validate}),
    "audit": ("Who did what, and when.", {"log": logs.audit_log, "verify": logs.audit_verify}),
}
COMPLETING = "_LANECTL_COMPLETE"  # set by the shell when Tab is pressed
HIDDEN = ("guard", "watchdog")  # for lanectl itself


def command_line(wanted: str | None, *, outlines: bool) -> Any:
    """Return the root command with the wanted subcommand only, or with all when there is no such one.

    Making all of them with their parameters costs 10 ms. `outlines`: help that lists them only needs their words.
    """
    app = typer.Typer(
        name=PROGRAM,
        rich_markup_mode=None,  # rich costs 50 ms, and help is read in pipes and on slow consoles too
        pretty_exceptions_enable=False,
        help="Switch serving lanes safely: stop production, prove and measure a candidate, put production back.",
        epilog="Exit codes and what to do about each: docs/runbook.md.",
    )
    app.callback(invoke_without_command=True)(root)
    known = {*COMMANDS, *GROUPS}
    names = {wanted} if wanted in known else known
    outlines = outlines and wanted not in known
    _add(app, {name: function for name, function in COMMANDS.items() if name in names}, outlines)
    for name, (text, commands) in GROUPS.items():
        if name in names:
            group = typer.Typer(rich_markup_mode=None, help=text)
            _add(group, commands, outlines)
            app.add_typer(group, name=name)
    return plain(typer.main.get_command(app))


def _add(app: typer.Typer, commands: Commands, outlines: bool) -> None:
    for name, function in commands.items():
        made = _outline(function) if outlines else function
        app.command(name, epilog=options.EPILOG, hidden=name in HIDDEN)(made)


def _outline(function: Callable[..., Any]) -> Callable[[], None]:
    def outline() -> None: ...

    outline.__doc__ = function.__doc__
    return outline


def _version(wanted: bool) -> None:
    if wanted:
        render.out(f"{PROGRAM} {lanectl.__version__}")
        raise typer.Exit()


def root(
    context: typer.Context,
    site: Annotated[
        str | None, typer.Option("--site", metavar="DIR", help="The site; else $LANECTL_SITE, else this directory.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Results as JSON on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done, on stderr.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> int | None:
    """What stands before the command: the global options become the settings."""
    context.obj = replace(options.settings(context), site=site, json=json_, verbose=verbose)
    if context.invoked_subcommand is None:
        render.err(context.get_help())
        return ExitCode.USAGE
    return None


def run(words: Sequence[str]) -> int:
    """Run a command line (without the program's name); print its result or its error; return the exit code."""
    render.prepare()
    as_json = options.json_wanted(words)
    given = Settings(json=as_json, command=(PROGRAM, *words))
    hoisted = options.hoist(words)
    try:
        command = command_line(options.command_of(hoisted), outlines=COMPLETING not in os.environ)
        code = command.main(args=hoisted, prog_name=PROGRAM, standalone_mode=False, obj=given)
        return code if isinstance(code, int) else ExitCode.OK
    except LaneError as error:
        render.failure(error, as_json=as_json)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        render.err("interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:
        known = _usage(error) or _unwritten() or _fault(error)
        render.failure(known, as_json=as_json)
        return known.exit_code


def _usage(error: Exception) -> LaneError | None:
    """Return what typer says about a wrong command line, None for any other exception.

    Recognised by its method: the class has moved between typer's versions.
    """
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else PROGRAM
    return LaneError(message(), f"`{path} --help` shows how it is used", ExitCode.USAGE)


def _unwritten() -> LaneError | None:
    """Return why the help that typer printed did not come out, None when all did."""
    try:
        render.flush()
    except render.Unwritten as error:
        return error
    return None


def _fault(error: Exception) -> LaneError:
    """Keep the traceback in a private file and say where: a person at the Station needs the one line, not the stack."""
    from lanectl.core.log_lines import one_line

    what = one_line(f"{type(error).__name__}: {error}")
    return LaneError(
        f"this is a fault in lanectl: {what}",
        f"{_keep_traceback(error)}; `lanectl status` says what serves now",
        ExitCode.FAULT,
    )


def _keep_traceback(error: Exception) -> str:
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
    try:
        fd, path = tempfile.mkstemp(prefix="lanectl-fault-", suffix=".txt")  # its files are 0600
        with os.fdopen(fd, "wb") as file:
            file.write(text)
    except OSError as failure:
        return f"its traceback could not be kept ({failure.strerror})"
    return f"its traceback is in {path}"

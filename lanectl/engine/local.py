"""The local engine: a lane's services as supervised child processes, where there is no container engine.

A container is a directory with its create arguments, its log, and the record that its supervisor (shim.py) writes.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lanectl import __version__
from lanectl.core.container import Container, CreateArgs, EngineInfo, Image, Stopped
from lanectl.core.serving import Restart
from lanectl.engine import local_run
from lanectl.engine.cdi import read_specs
from lanectl.engine.environment import parse_id, parse_reference, tree_sha256
from lanectl.engine.local_body import NAME, LocalSpec, environment, missing_paths, read_body
from lanectl.engine.local_log import LocalLog
from lanectl.engine.local_run import Run, look
from lanectl.engine.local_store import Entry, LocalStore
from lanectl.errors import DeviceUnknown, EngineError, NotThere, Problem, Refused
from lanectl.jobs import DetachedJobs
from lanectl.ports import Jobs
from lanectl.store import process

KIND = "local"


class LocalEngine:
    """Supervised child processes behind the `ContainerEngine` port; see there for what each method promises.

    `root` holds its state (made when first needed), `cdi_spec_dirs` are CDI directories, lowest priority first,
    `jobs` starts the supervisors.
    """

    def __init__(self, root: Path, cdi_spec_dirs: Sequence[str], jobs: Jobs | None = None) -> None:
        self._store = LocalStore(root.absolute())
        self._cdi_spec_dirs = tuple(cdi_spec_dirs)
        self._jobs = jobs or DetachedJobs()

    def info(self) -> EngineInfo:
        devices = tuple(device.qualified for device in read_specs(self._cdi_spec_dirs).devices)
        return EngineInfo(KIND, self._store.engine_id(), __version__, str(self._store.root), devices)

    def image(self, ref: str) -> Image | None:
        """Given `env:/directory@sha256:HEX`, return it if the directory has this very content now.

        From then on it is known by its id, `sha256:HEX`, too.
        """
        found = self._environment(ref)
        if found is None:
            return None
        directory, sha256 = found
        return Image(f"sha256:{sha256}", digests=(f"env:{directory}@sha256:{sha256}",))

    def keep_image(self, image_id: str, tag: str) -> None:
        """Nothing: no prune takes an environment."""

    def drop_image_tag(self, tag: str) -> None:
        """Nothing, as `keep_image`."""

    def create(self, args: CreateArgs) -> str:
        """As the port says. Raise `Refused` with every key and path that cannot be had here."""
        spec = read_body(args, _current_user())
        missing = missing_paths(spec, os.path.exists)
        if missing:
            where = f"container {args.name}"
            raise Refused([Problem(where, f"{path} does not exist", key) for key, path in missing])
        ref = str(args.body.get("Image") or "")
        found = self._environment(ref)
        if found is None:
            raise NotThere(f"no environment {ref}", "its directory is missing, or its content changed")
        directory, sha256 = found
        return self._store.add(args, f"sha256:{sha256}", directory)

    def start(self, ref: str) -> None:
        entry = self._store.get(ref)
        spec = read_body(entry.args, _current_user())
        with local_run.ownership(entry.directory) as lock:
            if lock is None:
                return
            last = local_run.settle(entry)
            if last.running:
                return  # its supervisor is gone, but the service itself is there
            plan = _plan(entry, spec, last, self._device_edits(spec))
            local_run.launch(self._jobs, entry, plan, lock)

    def stop(self, ref: str, grace_s: float) -> Stopped:
        entry = self._store.get(ref)
        began = time.monotonic()
        run = look(entry.directory)
        if not run.running:
            local_run.kill(entry)  # what a killed supervisor left behind, if anything
            return Stopped("already", time.monotonic() - began, run.exit_code)
        if run.main is not None:
            process.signal(run.main, read_body(entry.args).stop_signal)
        while time.monotonic() - began < grace_s and look(entry.directory).running:
            time.sleep(local_run.LOOK_EVERY_S)
        how = "kill" if local_run.kill(entry) else "term"
        return Stopped(how, time.monotonic() - began, look(entry.directory).exit_code)

    def kill(self, ref: str) -> None:
        local_run.kill(self._store.get(ref))

    def rename(self, ref: str, name: str) -> None:
        if not NAME.fullmatch(name):
            raise EngineError(f"{name!r} is no container name", "letters, digits, `_`, `.` and `-`")
        self._store.rename(ref, name)

    def set_restart(self, ref: str, policy: Restart) -> None:
        """`no` is the only policy there is. Raise `EngineError` for any other."""
        self._store.get(ref)
        if policy.name != "no":
            raise EngineError(f"the local engine has no restart policy {policy.name}", 'set restart: "no"')

    def remove(self, ref: str) -> None:
        entry = self._store.find(ref)
        if entry is None:
            return
        with contextlib.suppress(NotThere):  # somebody else removes it, too
            while not self._remove(entry):
                pass  # it was started again in between

    def inspect(self, ref: str) -> Container | None:
        entry = self._store.find(ref)
        return None if entry is None else _container(entry)

    def containers(self, labels: Mapping[str, str] | None = None) -> tuple[Container, ...]:
        found = (container for entry in self._store.entries() if (container := _container(entry)) is not None)
        wanted = (labels or {}).items()
        return tuple(
            container
            for container in found
            if all(key in container.labels and value in ("", container.labels[key]) for key, value in wanted)
        )

    def recreate_args(self, ref: str) -> CreateArgs:
        entry = self._store.get(ref)
        return CreateArgs(entry.name, {**entry.args.body, "Image": entry.image_id})

    def logs(self, ref: str, *, since_start: bool = True, follow: bool = True) -> LocalLog:
        directory = self._store.get(ref).directory
        run = look(directory)

        def goes_on() -> bool:
            now = look(directory)
            return now.running and now.number == run.number

        runs = range(run.number if since_start else 0, run.number + 1)
        return LocalLog(directory, runs, goes_on if follow else lambda: False)

    def pids(self, ref: str) -> frozenset[int] | None:
        entry = self._store.get(ref)
        return local_run.pids(entry, look(entry.directory))

    def cdi_problem(self, image_id: str, devices: Sequence[str]) -> str | None:
        return read_specs(self._cdi_spec_dirs).problem(devices)

    def _remove(self, entry: Entry) -> bool:
        local_run.kill(entry)
        with local_run.ownership(entry.directory) as lock:
            if lock is not None:
                self._store.remove(entry)
            return lock is not None

    def _environment(self, ref: str) -> tuple[Path, str] | None:
        """Return the directory and hash of an environment whose content is what `ref` says, else None."""
        sha256 = parse_id(ref)
        directory = self._store.environment(sha256) if sha256 else None
        found = (directory, sha256) if sha256 and directory else parse_reference(ref)
        if found is None or not found[0].is_dir() or tree_sha256(found[0]) != found[1]:
            return None
        self._store.remember(found[1], found[0])
        return found

    def _device_edits(self, spec: LocalSpec) -> tuple[str, ...]:
        specs = read_specs(self._cdi_spec_dirs)
        problem = specs.problem(spec.devices)
        if problem:
            raise DeviceUnknown(problem, f"CDI specs are read from {', '.join(self._cdi_spec_dirs) or 'nowhere'}")
        devices = (specs.find(name) for name in spec.devices)
        return tuple(edit for device in devices if device is not None for edit in device.env)


def _plan(entry: Entry, spec: LocalSpec, last: Run, edits: tuple[str, ...]) -> dict[str, Any]:
    """Return what the supervisor needs to know, see shim.py."""
    env = environment(
        spec,
        container_id=entry.id,
        directory=entry.environment,
        home=_account()[1],
        time_zone=os.environ.get("TZ"),
        edits=edits,
    )
    return {
        "run": last.number + 1,
        "argv": spec.argv,
        "env": env,
        "cwd": spec.cwd,
        "max_size": spec.log_max_size,
        "max_files": spec.log_max_files,
        "boot_id": process.boot_id(),
    }


def _container(entry: Entry) -> Container | None:
    try:
        run = look(entry.directory)
    except NotThere:
        return None  # removed since it was found
    spec = read_body(entry.args)
    return Container(
        id=entry.id,
        name=entry.name,
        image_id=entry.image_id,
        image_ref=str(entry.args.body["Image"]),
        status=run.status,
        exit_code=None if run.running else run.exit_code,
        error=run.error,
        created_at=entry.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        labels=spec.labels or {},
        pid=run.main.pid if run.running and run.main else None,
        devices=spec.devices,
        network_mode="host",
    )


def _account() -> tuple[str, str]:
    """Return the name and home directory of the current user; a number and `/` for one without an account."""
    try:
        account = pwd.getpwuid(os.geteuid())
    except KeyError:
        return str(os.geteuid()), "/"
    return account.pw_name, account.pw_dir


def _current_user() -> tuple[str, ...]:
    """Return every spelling of who we are that a `user:` may have."""
    names = (str(os.geteuid()), _account()[0])
    return (*names, *(f"{name}:{os.getegid()}" for name in names))

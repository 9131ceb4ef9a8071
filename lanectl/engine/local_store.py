"""The local engine's directory: containers, their names, the environments they were made from.

engine-id                 who this engine is, made once
lock                      shared to look, exclusive to change names and containers; held for milliseconds
names/NAME -> ID          a rename is one rename(2): it works on a full disk, and no two containers share a name
images/HEX -> DIRECTORY   environments by their hash
containers/ID/config.json the create arguments, never changed (0600: they hold the environment)
containers/ID/run.0 run.1 the run record, see shim.py
containers/ID/lock        held by the container's supervisor as long as it lives
containers/ID/log.*       the log; shim.log: the supervisor's own words
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lanectl.core.container import CreateArgs
from lanectl.engine import shim
from lanectl.errors import EngineError, EngineUnknown, NameTaken, NotThere
from lanectl.store.files import ensure_dir, explained, open_regular, read_json, write_atomic, write_json

LOCK_WITHIN_S = 10.0  # others hold it for milliseconds; longer means that one of them is stopped or its disk hangs
LOOK_EVERY_S = 0.002
GONE = ".gone-"  # a removed container's directory until its files are deleted
SHORT_ID = 12  # characters; Docker's short id. Less is not taken for an id


@dataclass(frozen=True, slots=True)
class Entry:
    """One container as it was made. `directory` holds its files; `environment` is its image's directory."""

    id: str
    name: str
    directory: str
    image_id: str
    environment: str
    created_at: str
    args: CreateArgs


class LocalStore:
    """The containers below `root`. Several processes use it at once. Faults of the disk are raised as `StoreError`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._containers = root / "containers"
        self._names = root / "names"
        self._images = root / "images"

    def engine_id(self) -> str:
        """Return this engine's id, made when it is asked for first."""
        path = self.root / "engine-id"
        with explained(path, "read"), contextlib.suppress(FileNotFoundError):
            return path.read_text(encoding="ascii").strip()
        with self._changing():
            if not path.exists():
                write_atomic(path, f"local-{uuid.uuid4()}\n".encode())
            return path.read_text(encoding="ascii").strip()

    def entries(self) -> tuple[Entry, ...]:
        """Return all containers, oldest first."""
        with self._looking():
            found = [self._entry(container_id, name) for name, container_id in self._index().items()]
        return tuple(sorted(found, key=lambda entry: (entry.created_at, entry.id)))

    def find(self, ref: str) -> Entry | None:
        """Given a name or an id (whole, or its first 12 characters or more), return the container, or None."""
        with self._looking():
            return self._find(ref)

    def get(self, ref: str) -> Entry:
        """As `find`. Raise `NotThere`."""
        entry = self.find(ref)
        if entry is None:
            raise NotThere(f"no container {ref} in {self.root}")
        return entry

    def add(self, args: CreateArgs, image_id: str, environment: Path) -> str:
        """Make a container, return its id. Raise `NameTaken`. A crash in here leaves nothing that counts."""
        container_id = uuid.uuid4().hex + uuid.uuid4().hex
        with self._changing():
            self._sweep()
            self._check_free(args.name)
            directory = self._containers / container_id
            ensure_dir(directory)
            write_json(
                directory / "config.json",
                {
                    "id": container_id,
                    "name": args.name,
                    "image_id": image_id,
                    "environment": str(environment),
                    "created_at": shim.now(),
                    "body": dict(args.body),
                },
            )
            with explained(directory, "write to"):
                for _ in shim.SLOTS:
                    shim.write_record(str(directory), {"run": 0, "state": "created"})
                for name in ("lock", "shim.log"):
                    (directory / name).touch(mode=0o600)
                (self._names / args.name).symlink_to(container_id)
        return container_id

    def rename(self, ref: str, name: str) -> None:
        """Raise `NameTaken`, `NotThere`."""
        with self._changing():
            entry = self._find(ref)
            if entry is None:
                raise NotThere(f"no container {ref} in {self.root}")
            if entry.name != name:
                self._check_free(name)
                with explained(self._names / name, "rename a container to"):
                    (self._names / entry.name).rename(self._names / name)

    def remove(self, entry: Entry) -> None:
        """Forget a container that does not run, and delete its files."""
        gone = self._containers / f"{GONE}{entry.id}"
        with self._changing():
            current = self._find(entry.id)
            if current is None:
                return
            with explained(gone, "remove"):
                (self._names / current.name).unlink()
                Path(entry.directory).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)  # what stays is swept by the next create

    def environment(self, sha256: str) -> Path | None:
        """Return the directory that had this hash when it was last remembered."""
        try:
            return (self._images / sha256).readlink()
        except OSError:
            return None

    def remember(self, sha256: str, environment: Path) -> None:
        """Make an environment known by its hash alone."""
        if self.environment(sha256) == environment:
            return
        link = self._images / sha256
        with self._changing(), explained(link, "write"):
            fresh = link.with_name(f".{sha256}")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(environment)
            fresh.replace(link)

    def _index(self) -> dict[str, str]:
        """Return every name with its container's id."""
        with explained(self._names, "read"):
            try:
                return {link.name: str(link.readlink()) for link in self._names.iterdir()}
            except FileNotFoundError:
                return {}

    def _find(self, ref: str) -> Entry | None:
        index = self._index()
        if ref in index:
            return self._entry(index[ref], ref)
        found = [
            (container_id, name)
            for name, container_id in index.items()
            if len(ref) >= SHORT_ID and container_id.startswith(ref)
        ]
        return self._entry(*found[0]) if len(found) == 1 else None

    def _entry(self, container_id: str, name: str) -> Entry:
        directory = self._containers / container_id
        config: Mapping[str, Any] | None = read_json(directory / "config.json")
        if config is None:
            raise EngineError(f"{directory / 'config.json'} is missing", f"look at {directory}")
        return Entry(
            id=container_id,
            name=name,
            directory=str(directory),
            image_id=config["image_id"],
            environment=config["environment"],
            created_at=config["created_at"],
            args=CreateArgs(name, config["body"]),
        )

    def _check_free(self, name: str) -> None:
        taken = self._index().get(name)
        if taken is not None:
            raise NameTaken(f"container {taken[:SHORT_ID]} has the name {name} already")

    def _sweep(self) -> None:
        """Delete what a crash left: removals that did not end, and creations, which have no name and never ran."""
        named = set(self._index().values())
        with explained(self._containers, "read"):
            for directory in self._containers.iterdir():
                record = shim.read_record(str(directory))
                never_ran = record is None or record["run"] == 0
                if directory.name.startswith(GONE) or (directory.name not in named and never_ran):
                    shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """Hold the names still while looking: a name read in the middle of a rename could be missed."""
        path = self.root / "lock"
        with explained(path, "open"):
            try:
                fd = open_regular(path, os.O_RDONLY)
            except FileNotFoundError:
                fd = -1  # nothing was ever made here
        try:
            if fd >= 0:
                flock(fd, fcntl.LOCK_SH, path)
            yield
        finally:
            if fd >= 0:
                os.close(fd)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        for directory in (self.root, self._containers, self._names, self._images):
            ensure_dir(directory)
        path = self.root / "lock"
        with explained(path, "open"):
            fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            flock(fd, fcntl.LOCK_EX, path)
            yield
        finally:
            os.close(fd)


def flock(fd: int, kind: int, path: Path) -> None:
    """Take a lock, waiting a bounded time. Raise `EngineUnknown`."""
    deadline = time.monotonic() + LOCK_WITHIN_S
    while not try_flock(fd, kind):
        if time.monotonic() > deadline:
            raise EngineUnknown(f"{path} is held by another process for {LOCK_WITHIN_S:.0f} s", f"fuser -v {path}")
        time.sleep(LOOK_EVERY_S)


def try_flock(fd: int, kind: int) -> bool:
    """Take a lock if it is free; False when it is not."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True

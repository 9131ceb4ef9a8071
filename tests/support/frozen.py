"""A lane with a sidecar and its watchdog, real clients asking it all the time, and ways to freeze the sidecar."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lanectl.actions.start import restart
from lanectl.actions.station import Station
from lanectl.actions.stop import stop
from lanectl.core.container import Container
from lanectl.core.owed import Tripped
from lanectl.jobs import DetachedJobs
from lanectl.store.process import every_process
from lanectl.store.watch import Status, WatchFiles, watch_key
from tests.support.asking import CLIENTS, Asked, Clients, ask, wrong
from tests.support.engine_images import REPOSITORY_ROOT
from tests.support.guards import ReadyGuards
from tests.support.poll import until
from tests.support.reference_sidecar import write_map
from tests.support.station import MAX_MODEL_LEN, MODEL, RealSite, Told

LANE = "v25"
STALL_S = 0.3
SPINS_VARIABLE = "VLLM_EXP_PEER_SPINS"
PATIENT, HASTY = 2_000_000_000, 2_000  # spins of 5 us: v25's three hours, and 10 ms
PROMPTS = ("The sidecar computes", "select name from lanes where", "Stir the risotto until")
ENDS_WITHIN_S = 15.0  # a trip takes half a second; a loaded two-core machine several times that


class WatchdogsOnly:
    """Starts real watchdogs, and guards that only say that they are ready: nobody dies here but the sidecar."""

    def __init__(self) -> None:
        self._real, self._ready = DetachedJobs(), ReadyGuards()

    def start(self, argv: Sequence[str], *, name: str, keep_fds: Sequence[int], log_path: str) -> int:
        jobs = self._real if "watch" in name else self._ready
        return jobs.start(argv, name=name, keep_fds=keep_fds, log_path=log_path)


@dataclass(frozen=True)
class Answers:
    """What clients were told around one freeze. `under_way`: how many answers were at its moment; `wrong`: those that
    the unfrozen lane does not give; `frozen` False: the lane had tripped before it."""

    whole: int
    cut: int
    wrong: tuple[str, ...]
    under_way: int
    frozen: bool
    tripped: bool


class FrozenLane:
    """A site whose production is a twin of v25 with a stall bound of 0.3 s. `expected`: the unfrozen lane's answers.

    `url`: the Docker engine's, where the site is on one. Not `guarded`: no watchdog, and a small spin limit.
    """

    def __init__(self, site: RealSite, url: str = "", *, guarded: bool = True) -> None:
        self.site = site
        self.url = url
        self.counters = Path(f"/dev/shm/lt-frozen-{secrets.token_hex(6)}")
        write_lane(site, self.counters, guarded=guarded)
        told = site.swap(LANE, station=self.station(), keep=True, from_dark=True)
        assert told.outcome == "promoted", told
        first = {prompt: ask(site.public, prompt) for prompt in PROMPTS}
        assert all(one.whole for one in first.values())
        self.expected = {prompt: one.text for prompt, one in first.items()}
        assert len(set(self.expected.values())) == len(PROMPTS)

    def station(self) -> Station:
        return replace(self.site.station("test"), jobs=WatchdogsOnly())

    def tripped(self) -> Tripped | None:
        return self.site.station().production().tripped

    def again(self) -> None:
        """A person clears the trip: the lane is started again."""
        assert restart(self.station(), Told()).outcome == "started"

    def close(self) -> None:
        try:
            if self.tripped() is None:
                stop(self.station(), Told())
        finally:
            self.site.close()
            self.counters.unlink(missing_ok=True)

    def frozen(
        self,
        freeze: Callable[[FrozenLane], None],
        after_s: float,
        thaw: Callable[[FrozenLane], None] | None = None,
    ) -> Answers:
        """Let clients ask, freeze after so many seconds, wait until the lane is dead; return what they were told.

        With `thaw` it may live on: thaw it once every client has had an answer that was asked for after the freeze.
        """
        with Clients(self.site.public, PROMPTS) as clients:
            clients.wait(after_s)
            at, meant = time.monotonic(), self.runs()
            if meant:
                freeze(self)
            if meant and thaw is not None:
                until(lambda: not self.runs() or self._answered(clients.asked, at), ENDS_WITHIN_S, "slow answers")
                if self.runs():
                    thaw(self)
            else:
                until(lambda: not self.runs(), ENDS_WITHIN_S, "the lane is dead")
            tripped = not self.runs()
            if tripped:
                until(self.tripped, ENDS_WITHIN_S, "the trip is recorded")
        asked = clients.asked
        return Answers(
            whole=sum(one.told.whole for one in asked),
            cut=sum(not one.told.whole for one in asked),
            wrong=tuple(f"{one.prompt!r}: {one.told}" for one in asked if wrong(one, self.expected)),
            under_way=sum(one.began < at < one.ended for one in asked),
            frozen=meant,
            tripped=tripped,
        )

    def runs(self) -> bool:
        return any(container.running for container in self.site.containers().values())

    def sidecar(self) -> Container:
        return self.site.seen(self.site.prefix + "sidecar")

    def sidecar_pid(self) -> int:
        """Return the pid of the sidecar's first process."""
        pid = self.sidecar().pid
        assert pid is not None
        return pid

    def watch(self) -> Status:
        """Return what the lane's watchdog says of itself."""
        key = watch_key(self.site.seen(self.site.prefix + "server").id)
        status = WatchFiles(self.site.station().state.watch / key).status()
        assert status is not None
        return status

    def signal_sidecar(self, number: int) -> None:
        """Send a signal to the sidecar and whatever it started."""
        first = self.sidecar_pid()
        children = [one.pid for one in every_process() if one.parent == first]
        for pid in (first, *children):
            os.kill(pid, number)

    @staticmethod
    def _answered(asked: Sequence[Asked], since: float) -> bool:
        return sum(one.told.whole and one.began > since for one in tuple(asked)) >= CLIENTS


def write_lane(site: RealSite, counters: Path, *, guarded: bool = True) -> None:
    """Write the twin of v25, whose two sides share this file. Not `guarded`: no watchdog, and a small spin limit."""
    (site.root / "maps").mkdir(exist_ok=True)
    rowmap = write_map(site.root / "maps" / "rowmap.json", "tiny", cold=4)
    common: dict[str, Any] = {
        "image": "${images.engine}",
        "network_mode": "host",
        "ipc": "host",
        "volumes": ["*${args.binds}", f"{rowmap}:{rowmap}:ro"],
        "working_dir": str(REPOSITORY_ROOT),
        "entrypoint": ["${paths.python}"],
        "restart": "no",
        "stop_grace_period": "5s",
    }
    environment = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_EXP_PEER2_SHM": str(counters),
        SPINS_VARIABLE: str(PATIENT if guarded else HASTY),
    }
    shape = ["--shape", "tiny", "--rowmap", str(rowmap)]
    sidecar: Mapping[str, Any] = {
        **common,
        "container_name": f"{site.prefix}sidecar",
        "environment": {**environment, "REFERENCE_FAULTS": "peer-slow-on-signal=10"},
        "command": ["-m", "lanectl.reference.sidecar", *shape],
        "ready": {"log": "^serving", "timeout": "30s", "fatal": ["SELFTEST FAILED", "^Traceback"]},
    }
    server: Mapping[str, Any] = {
        **common,
        "container_name": f"{site.prefix}server",
        "depends_on": ["sidecar"],
        "environment": environment,
        "command": [
            *("-m", "lanectl.reference.server", "--host", "${host}", "--port", "${port}", "--disable-access-log"),
            *(
                "--served-model-name",
                MODEL,
                "--max-model-len",
                str(MAX_MODEL_LEN),
                "--placement",
                "sidecar",
                *shape,
            ),
        ],
        "ready": {"health": "/health", "models": True, "completion": {"within": "20s"}, "timeout": "30s"},
    }
    watchdog = {
        "counters": str(counters),
        "stall": f"{int(STALL_S * 1000)}ms",
        "mode": "enforce",
        "spins": {"service": "server", "variable": SPINS_VARIABLE, "at_least": PATIENT},
    }
    more = {"shm": [str(counters)], **({"watchdog": watchdog} if guarded else {})}
    site.write_lane(LANE, {"sidecar": sidecar, "server": server}, more)

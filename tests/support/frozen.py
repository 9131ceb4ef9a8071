"""A lane with a sidecar and its watchdog, real clients asking it all the time, and ways to freeze the sidecar."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lanectl.actions.start import restart
from lanectl.actions.station import Station
from lanectl.jobs import DetachedJobs
from lanectl.store.process import every_process
from tests.support.guards import ReadyGuards
from tests.support.poll import until
from tests.support.reference_sidecar import write_map
from tests.support.station import MAX_MODEL_LEN, MODEL, RealSite, Told

LANE = "v25"
STALL_S = 0.3
SPINS = {"VLLM_EXP_PEER_SPINS": "2000000000"}
PROMPTS = ("The sidecar computes", "select name from lanes where", "Stir the risotto until")
TOKENS = 48
LATEST_S = 0.6  # of the load: within it every client has asked several times
CLIENTS = 3
ENDS_WITHIN_S = 15.0  # a trip takes half a second; a loaded two-core machine several times that


class WatchdogsOnly:
    """Starts real watchdogs, and guards that only say that they are ready: nobody dies here but the sidecar."""

    def __init__(self) -> None:
        self._real, self._ready = DetachedJobs(), ReadyGuards()

    def start(self, argv: Sequence[str], *, name: str, keep_fds: Sequence[int], log_path: str) -> int:
        jobs = self._real if "watch" in name else self._ready
        return jobs.start(argv, name=name, keep_fds=keep_fds, log_path=log_path)


@dataclass
class Answers:
    """What clients were told: by prompt every distinct text of a whole answer, and how many were whole or cut."""

    texts: dict[str, set[str]] = field(default_factory=dict)
    whole: int = 0
    cut: int = 0


class FrozenLane:
    """A site whose production is a twin of v25 with a stall bound of 0.3 s. `expected`: the unfrozen lane's answers."""

    def __init__(self, site: RealSite, binds: Sequence[str] = ()) -> None:
        self.site = site
        self.counters = Path(f"/dev/shm/lt-frozen-{os.getpid()}-{random.getrandbits(32):08x}")
        self._write(binds)
        told = site.swap(LANE, station=self.station(), keep=True, from_dark=True)
        assert told.outcome == "promoted", told
        self.expected = {prompt: self.ask(prompt) for prompt in PROMPTS}
        assert None not in self.expected.values()
        assert len(set(self.expected.values())) == len(PROMPTS)

    def station(self) -> Station:
        return replace(self.site.station("test"), jobs=WatchdogsOnly())

    def again(self) -> None:
        """A person clears the trip: the lane is started again."""
        assert restart(self.station(), Told()).outcome == "started"

    def close(self) -> None:
        from lanectl.actions.stop import stop

        if self.site.station().production().tripped is None:
            stop(self.station(), Told())
        self.site.close()
        self.counters.unlink(missing_ok=True)

    def ask(self, prompt: str) -> str | None:
        """Return the whole answer, None when it was cut or refused. A body that is no whole answer counts as cut."""
        body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0})
        connection = http.client.HTTPConnection("127.0.0.1", self.site.public, timeout=60)
        try:
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = json.loads(answer.read())
            return str(said["choices"][0]["text"]) if answer.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return None
        finally:
            connection.close()

    def frozen(self, freeze: Callable[[FrozenLane], None], after_s: float) -> Answers:
        """Let clients ask, freeze after so many seconds, wait until the lane is dead; return what clients were told."""
        answers, stop, lock = Answers(), threading.Event(), threading.Lock()

        def client(number: int) -> None:
            turn = number
            while not stop.is_set():
                prompt = PROMPTS[turn % len(PROMPTS)]
                text = self.ask(prompt)
                turn += 1
                with lock:
                    if text is None:
                        answers.cut += 1
                    else:
                        answers.whole += 1
                        answers.texts.setdefault(prompt, set()).add(text)
                if text is None:
                    stop.wait(0.02)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in clients:
            thread.start()
        try:
            stop.wait(after_s)
            freeze(self)
            until(lambda: not self.runs(), ENDS_WITHIN_S, "the lane is dead")
            until(lambda: self.site.station().production().tripped, ENDS_WITHIN_S, "the trip is recorded")
        finally:
            stop.set()
            for thread in clients:
                thread.join()
        return answers

    def runs(self) -> bool:
        return any(container.running for container in self.site.containers().values())

    def sidecar(self) -> int:
        """Return the pid of the sidecar's first process."""
        pid = self.site.seen(self.site.prefix + "sidecar").pid
        assert pid is not None
        return pid

    def signal_sidecar(self, number: int) -> None:
        """Send a signal to the sidecar and whatever it started."""
        first = self.sidecar()
        children = [one.pid for one in every_process() if one.parent == first]
        for pid in (first, *children):
            os.kill(pid, number)

    def _write(self, binds: Sequence[str]) -> None:
        site = self.site
        (site.root / "maps").mkdir(exist_ok=True)
        rowmap = write_map(site.root / "maps" / "rowmap.json", "tiny", cold=4)
        common: dict[str, Any] = {
            "image": "${images.engine}",
            "network_mode": "host",
            "ipc": "host",
            "volumes": ["*${args.binds}", f"{rowmap}:{rowmap}:ro"],
            "entrypoint": ["${paths.python}"],
            "restart": "no",
            "stop_grace_period": "5s",
        }
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "VLLM_EXP_PEER2_SHM": str(self.counters), **SPINS}
        shape = ["--shape", "tiny", "--rowmap", str(rowmap)]
        sidecar: Mapping[str, Any] = {
            **common,
            "container_name": f"{site.prefix}sidecar",
            "environment": environment,
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
            "counters": str(self.counters),
            "stall": f"{int(STALL_S * 1000)}ms",
            "mode": "enforce",
            "spins": {"service": "server", "variable": "VLLM_EXP_PEER_SPINS", "at_least": 2_000_000_000},
        }
        more = {"shm": [str(self.counters)], "watchdog": watchdog}
        site.write_lane(LANE, {"sidecar": sidecar, "server": server}, more)


def stopped(lane: FrozenLane) -> None:
    import signal

    lane.signal_sidecar(signal.SIGSTOP)


def killed(lane: FrozenLane) -> None:
    import signal

    os.kill(lane.sidecar(), signal.SIGKILL)


def truncated(lane: FrozenLane) -> None:
    os.truncate(lane.counters, 16)


def removed(lane: FrozenLane) -> None:
    lane.counters.unlink()


def replaced(lane: FrozenLane) -> None:
    """A copy in the file's place: what is mapped goes on, what is looked at is another file."""
    copy = lane.counters.with_suffix(".copy")
    shutil.copyfile(lane.counters, copy)
    copy.replace(lane.counters)


FREEZES: dict[str, Callable[[FrozenLane], None]] = {
    "SIGSTOP": stopped,
    "SIGKILL": killed,
    "file truncated": truncated,
    "file removed": removed,
    "file replaced": replaced,
}

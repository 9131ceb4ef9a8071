"""The process that talks to NVML, so that a driver that hangs hangs this one and not lanectl.

Run by file path (probes/gpu.py) with nothing of lanectl imported. One JSON object a line on stdin, one on stdout:
{"ask": "uuids"} -> {"uuids": [...]} and {"ask": "read", "uuid": U} -> {"used_mib": N|null, "processes": [...]|null}.
{"error": TEXT, "blind": true} means: ask no more in this process. It ends when its stdin does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
# NVML errors that are about the question, not about the card or the driver. After any other one, nothing more is asked:
# with the driver in an unknown state every further call can make matters worse (Xid, ATS and RmInitAdapter failures).
BENIGN = (
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
)
# Xid errors caused by a program, after which the card is well (NVIDIA k8s-device-plugin, internal/rm/health.go): a
# candidate with a bad kernel is an everyday event here and must not cost us our sight.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})


class Blind(Exception):
    """Nothing more may be asked of NVML in this process."""


class Nvml:
    """NVML, initialised on first use, with Xid errors watched from then on."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise Blind("nvidia-ml-py is not installed (the extra `gpu`)") from None
        self._nvml = pynvml
        self._benign = frozenset(getattr(pynvml, name) for name in BENIGN)
        self._call(pynvml.nvmlInit)
        self._events: Any = None
        self._watch_xids()

    def uuids(self) -> list[str]:
        nvml = self._nvml
        count = self._call(nvml.nvmlDeviceGetCount)
        handles = [self._call(nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        return [str(self._call(nvml.nvmlDeviceGetUUID, handle)) for handle in handles]

    def read(self, uuid: str) -> dict[str, Any]:
        self._check_xids()
        try:
            handle = self._call(self._nvml.nvmlDeviceGetHandleByUUID, uuid)
        except self._nvml.NVMLError as error:
            return {"error": f"{uuid}: {error}"}
        return {"used_mib": self._used_mib(handle), "processes": self._processes(handle)}

    def _used_mib(self, handle: Any) -> int | None:
        """Return what is allocated, None where the card cannot say (N/A on coherent memory; never 0).

        Version 2 of the structure: the first counts the driver's own reserved memory as used (on an idle H200, driver
        580: used 615 MiB in version 1; used 0, reserved 615 MiB in version 2, as nvidia-smi shows it).
        """
        try:
            memory = self._call(self._nvml.nvmlDeviceGetMemoryInfo, handle, self._nvml.nvmlMemory_v2)
        except self._nvml.NVMLError:
            return None
        if not memory.total or memory.used > memory.total:  # "not available" is all ones
            return None
        return int(memory.used // MIB)

    def _processes(self, handle: Any) -> list[dict[str, Any]] | None:
        try:
            running = self._call(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        except self._nvml.NVMLError:
            return None
        return [
            {
                "pid": process.pid,
                "name": _name(process.pid),
                "used_mib": None if process.usedGpuMemory is None else process.usedGpuMemory // MIB,
            }
            for process in running
        ]

    def _watch_xids(self) -> None:
        """Subscribe to Xid errors where the platform has them; elsewhere the errors of the calls have to do."""
        nvml = self._nvml
        try:
            self._events = self._call(nvml.nvmlEventSetCreate)
            for index in range(self._call(nvml.nvmlDeviceGetCount)):
                handle = self._call(nvml.nvmlDeviceGetHandleByIndex, index)
                self._call(nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError:
            self._events = None

    def _check_xids(self) -> None:
        while self._events is not None:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError_Timeout:
                return
            except self._nvml.NVMLError:
                self._events = None
                return
            if event.eventData not in APPLICATION_XIDS:
                raise Blind(f"the driver reported Xid {event.eventData}; nothing more is asked of it")

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Call NVML. Raise `NVMLError` for an error about the question, `Blind` for any other."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in self._benign:
                raise
            raise Blind(f"NVML: {error}") from None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"


def main() -> None:
    nvml: Nvml | None = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            nvml = nvml or Nvml()
            answer = {"uuids": nvml.uuids()} if question["ask"] == "uuids" else nvml.read(question["uuid"])
        except Blind as blind:
            answer = {"error": str(blind), "blind": True}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

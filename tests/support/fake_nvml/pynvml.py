"""NVML as far as the GPU helper asks it, for a machine without one: put this folder on PYTHONPATH.

The environment variable FAKE_NVML names a JSON file, read anew at every call:
{"used_mib": N | null, "pids": [...] | null, "fail": {FUNCTION: ERROR NAME}, "hang": FUNCTION, "crash": FUNCTION,
"xids": [...]}. null means not supported. Every call is appended to FAKE_NVML + ".calls".
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1024 * 1024
TOTAL_MIB = 256703
UUID = "GPU-11111111-2222-3333-4444-555555555555"
STATE = Path(os.environ["FAKE_NVML"])

NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_INSUFFICIENT_SIZE = 7
NVML_ERROR_TIMEOUT = 10
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_UNKNOWN = 999

nvmlMemory_v2 = 0x02000028
nvmlEventTypeXidCriticalError = 8


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class NVMLError_Timeout(NVMLError):
    def __init__(self) -> None:
        super().__init__(NVML_ERROR_TIMEOUT)


def _call(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        state = json.loads(STATE.read_text())
        name = function.__name__
        with Path(f"{STATE}.calls").open("a") as calls:
            calls.write(name + "\n")
        if state.get("hang") == name:
            time.sleep(3600)
        if state.get("crash") == name:
            os.abort()
        error = state.get("fail", {}).get(name)
        if error is not None:
            raise NVMLError(globals()[error])
        return function(state, *arguments)

    return called


@_call
def nvmlInit(state: Any) -> None:
    pass


@_call
def nvmlDeviceGetCount(state: Any) -> int:
    return 1


@_call
def nvmlDeviceGetHandleByIndex(state: Any, index: int) -> str:
    return UUID


@_call
def nvmlDeviceGetHandleByUUID(state: Any, uuid: str) -> str:
    if uuid != UUID:
        raise NVMLError(NVML_ERROR_NOT_FOUND)
    return uuid


@_call
def nvmlDeviceGetUUID(state: Any, handle: str) -> str:
    return handle


@_call
def nvmlDeviceGetMemoryInfo(state: Any, handle: str, version: int) -> SimpleNamespace:
    if state["used_mib"] is None:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return SimpleNamespace(total=TOTAL_MIB * MIB, used=state["used_mib"] * MIB)


@_call
def nvmlDeviceGetComputeRunningProcesses(state: Any, handle: str) -> list[SimpleNamespace]:
    if state["pids"] is None:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in state["pids"]]


@_call
def nvmlEventSetCreate(state: Any) -> str:
    return "events"


@_call
def nvmlDeviceRegisterEvents(state: Any, handle: str, kinds: int, events: str) -> None:
    pass


@_call
def nvmlEventSetWait_v2(state: Any, events: str, timeout_ms: int) -> SimpleNamespace:
    xids = state.get("xids", [])
    if not xids:
        raise NVMLError_Timeout
    STATE.write_text(json.dumps({**state, "xids": xids[1:]}))
    return SimpleNamespace(eventData=xids[0])

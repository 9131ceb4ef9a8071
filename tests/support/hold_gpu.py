"""Hold GPU memory until killed: `python hold_gpu.py DEVICE_INDEX MIB`. CUDA driver API through ctypes, no framework.

Prints "holding" once the memory is allocated; ends with its stdin.
"""

from __future__ import annotations

import ctypes
import sys


def main() -> None:
    index, mib = int(sys.argv[1]), int(sys.argv[2])
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    for result in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), index),
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib * 1024 * 1024)),
        cuda.cuMemsetD8_v2(memory, 1, ctypes.c_size_t(mib * 1024 * 1024)),
        cuda.cuCtxSynchronize(),
    ):
        if result != 0:
            sys.exit(f"CUDA error {result}")
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()

"""Takes memory of CUDA device 0 by the driver API and keeps it until its input ends; runs a fill now and then, so that it appears in
utilisation. Prints one JSON line with the device's UUID, the bytes, and what cuMemGetInfo shows. With --bytes 0 it only prints the UUID."""

import argparse
import ctypes
import json
import os
import select
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def do(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        sys.exit(f"{name}: {status}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=0)
    options = parser.parse_args()
    uuid, context, data = (ctypes.c_ubyte * 16)(), ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    do("cuInit", 0)
    do("cuDeviceGetUuid_v2", uuid, 0)
    text = bytes(uuid).hex()
    text = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    if not options.bytes:
        print(json.dumps({"uuid": text}), flush=True)
        return
    do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    do("cuCtxSetCurrent", context)
    do("cuMemAlloc_v2", ctypes.byref(data), ctypes.c_size_t(options.bytes))
    do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    print(json.dumps({"uuid": text, "pid": os.getpid(), "bytes": options.bytes, "free": free.value, "total": total.value}), flush=True)
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        do("cuMemsetD8_v2", data, ctypes.c_ubyte(1), ctypes.c_size_t(options.bytes))
        do("cuCtxSynchronize")


if __name__ == "__main__":
    main()

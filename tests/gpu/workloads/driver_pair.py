"""torch_pair.py's stand-in on the driver API alone, for the simulator: two processes take turns with kernels of 0.5 ms. There is no
product, so that `ipc` is the same as `pipe`."""

import argparse
import os
import subprocess
import sys

import driver_serve
import driver_train
import window

KERNEL_US = 500


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("by", choices=["pipe", "ipc"])
    parser.add_argument("--staged", action="store_true")
    parser.add_argument("--second", action="store_true", help="this is the second process")
    options = parser.parse_args()
    driver = driver_serve.Driver()
    kernel, stream, _ = driver_serve.build(driver, 4096, KERNEL_US)

    def turn():
        kernel()
        driver.call("cuStreamSynchronize", stream)

    if options.second:
        while os.read(0, 1):
            turn()
            os.write(1, b"1")
        return 0
    torch = driver_train.torch_like(driver, stream)
    if options.staged:
        window.stand_by(torch)
    other = subprocess.Popen([sys.executable, __file__, options.by, "--second"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def step():
        turn()
        other.stdin.write(b"1")
        if other.stdout.read(1) != b"1":
            raise SystemExit(f"the second process ended with status {other.wait()}")

    step()
    window.serve(torch, step, 0, {"by": options.by, "device": driver.name})
    other.stdin.close()
    return other.wait()


if __name__ == "__main__":
    raise SystemExit(main())

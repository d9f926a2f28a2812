"""Two PyTorch processes of one pod that take turns, behind window.py: a step is one round trip. The first process multiplies two matrices,
waits for the product and writes a byte to the second one's pipe; that one does the same and answers.

  pipe   each process multiplies matrices of its own
  ipc    the second process multiplies by the product of the first one, in memory that both have by CUDA IPC
"""

import argparse
import os
import pickle
import subprocess
import sys

import torch

import window

# A product of two square matrices of this size in bf16 takes about 0.5 ms on an H200.
SIZE = 5632


def matrices():
    torch.manual_seed(0)
    return [torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5 for _ in range(2)]


def received(length):
    """So many bytes of standard input, and none beyond: those are turns."""
    told = b""
    while len(told) < length:
        told += os.read(0, length - len(told))
    return told


def second(shared):
    """Multiplies for each byte of standard input, and answers by standard output."""
    left, right = matrices()
    if shared:
        length = int.from_bytes(received(4), "little")
        rebuild, arguments = pickle.loads(received(length))
        left = rebuild(*arguments)
    own = torch.empty_like(right)
    while os.read(0, 1):
        torch.matmul(left, right, out=own)
        torch.cuda.synchronize()
        os.write(1, b"1")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("by", choices=["pipe", "ipc"])
    parser.add_argument("--staged", action="store_true", help="say when the libraries are loaded, and wait for a line before anything else")
    parser.add_argument("--second", action="store_true", help="this is the second process")
    options = parser.parse_args()
    if options.second:
        return second(options.by == "ipc")
    if options.staged:
        window.stand_by(torch)
    left, right = matrices()
    product = torch.empty_like(left)
    # Unbuffered: the second process reads by the descriptor.
    other = subprocess.Popen([sys.executable, __file__, options.by, "--second"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    if options.by == "ipc":
        from torch.multiprocessing.reductions import reduce_tensor

        told = pickle.dumps(reduce_tensor(product))
        other.stdin.write(len(told).to_bytes(4, "little") + told)

    def step():
        torch.matmul(left, right, out=product)
        torch.cuda.synchronize()
        other.stdin.write(b"1")
        if other.stdout.read(1) != b"1":
            raise SystemExit(f"the second process ended with status {other.wait()}")

    for _ in range(20):
        step()
    window.serve(torch, step, 0, {"by": options.by, "device": torch.cuda.get_device_name()})
    other.stdin.close()
    return other.wait()


if __name__ == "__main__":
    raise SystemExit(main())

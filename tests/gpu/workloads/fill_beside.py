"""One of several programs that fill a GPU: runs a small model, allocates until it is refused, then uses libraries for the first time.

Answers each line of standard input with one JSON line: `fill`, `late`. Ends with the input.
"""

import json
import sys

import torch

CHUNK = 64 << 20


def fill(held):
    """Allocates until the limit. Memory that is refused is refused again a moment later only if it counts: twice."""
    try:
        while True:
            held.append(torch.empty(CHUNK, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as why:
        return str(why)


def late():
    """Libraries whose modules are loaded at their first use."""
    refused = []
    for name, use in (
        ("cuFFT", lambda: torch.fft.fft(torch.randn(256, 256, device="cuda"))),
        ("cuSOLVER", lambda: torch.linalg.svd(torch.randn(64, 64, device="cuda"))),
        ("cuBLAS", lambda: torch.randn(256, 256, device="cuda").half() @ torch.randn(256, 256, device="cuda").half()),
    ):
        try:
            use()
            torch.cuda.synchronize()
        except RuntimeError as why:
            refused.append(f"{name}: {str(why)[:120]}")
    return refused


def main():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)).cuda()
    model(torch.randn(8, 3, 32, 32, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    held = []
    print(json.dumps({"ready": True, "total": torch.cuda.mem_get_info()[1]}), flush=True)
    for line in sys.stdin:
        if line.strip() == "fill":
            why = fill(held)
            print(json.dumps({"held": len(held) * CHUNK, "refused": why[:300], "free": torch.cuda.mem_get_info()[0]}), flush=True)
        else:
            print(json.dumps({"refused": late()}), flush=True)


if __name__ == "__main__":
    main()

"""Allocates until the limit, recovers, works. Prints one JSON line; waits for a line on standard input while it is full."""

import argparse
import json
import sys

import torch

GIB = 1 << 30


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunk", type=int, default=256 << 20, help="bytes of one tensor")
    parser.add_argument("--refill", type=int, default=8 * GIB, help="bytes to hold again after the recovery")
    options = parser.parse_args()
    told = {}
    told["free_at_start"], told["total"] = torch.cuda.mem_get_info()
    told["properties_total"] = torch.cuda.get_device_properties(0).total_memory
    held, error = [], None
    # Ends also where nothing limits it: a GPU without the limit has more than 64 GiB.
    while error is None and len(held) * options.chunk < 64 * GIB:
        try:
            held.append(torch.full((options.chunk // 4,), float(len(held)), device="cuda"))
        except torch.cuda.OutOfMemoryError as why:
            error = f"{type(why).__module__}.{type(why).__name__}: {why}"
    told["held"] = len(held) * options.chunk
    told["out_of_memory"] = error
    told["free_at_limit"] = torch.cuda.mem_get_info()[0]
    # The comparison needs room of its own, in blocks of other sizes than the one given back.
    last = held.pop()
    told["contents_ok"] = float(last[0]) == len(held)
    del last
    torch.cuda.empty_cache()
    told["contents_ok"] &= all(bool((tensor == index).all()) for index, tensor in enumerate(held))
    print(json.dumps({"full": True, **told}), flush=True)
    sys.stdin.readline()

    held.clear()
    torch.cuda.empty_cache()
    told["free_after"] = torch.cuda.mem_get_info()[0]
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float64)
    identity = torch.eye(4096, device="cuda", dtype=torch.float64)
    told["works_after"] = bool(torch.equal(a @ identity, a))
    again = [torch.ones(options.chunk // 4, device="cuda") for _ in range(options.refill // options.chunk)]
    told["refilled"] = sum(int(tensor.sum().item()) * 4 for tensor in again)
    print(json.dumps({"full": False, **told}), flush=True)


if __name__ == "__main__":
    main()

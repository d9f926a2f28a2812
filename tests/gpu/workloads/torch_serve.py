"""A latency-critical service: ResNet-50 fp16, batch 1, as a CUDA graph; requests arrive at a fixed rate.

Reads commands from standard input and answers each with one JSON line:
  serve <start> <requests> <period_us> <lead_us> <jitter_us>
      requests from the Unix time <start> on, each up to <jitter_us> late (same seed each time); a hint <lead_us> before each, 0 for none
  split <start> <requests> <period_us> <timed>
      the same without hints, and where the time of each goes: until the copy, the graph's launch and the wait have returned; the last
      <timed> requests with events around the graph, for its time on the GPU
A request is the copy of its input from pinned memory and the graph, on one stream; its latency counts from its arrival, that is the
time it was due, so that a request which waits for the one before counts as late.
"""

import argparse
import ctypes
import gc
import json
import random
import sys
import time

import torch
import torchvision

import holds
import split
import window

MICROSECOND = 1e-6


def build(copied=True):
    """The function that makes a request, and the answer's tensor. Without `copied` a request has no copy of its input."""
    model = torchvision.models.resnet50().cuda().half().eval().to(memory_format=torch.channels_last)
    source = torch.randn(1, 3, 224, 224).half().to(memory_format=torch.channels_last).pin_memory()
    images = torch.empty_like(source, device="cuda")
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        images.copy_(source)
        for _ in range(3):
            model(images)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            answer = model(images)
        stream.synchronize()

    def request():
        with torch.cuda.stream(stream):
            if copied:
                images.copy_(source, non_blocking=True)
            graph.replay()
        stream.synchronize()

    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def steps(timed):
        """The same request: when each of its steps had returned, and what the graph took on the GPU in us, if it is to be timed."""
        with torch.cuda.stream(stream):
            if copied:
                images.copy_(source, non_blocking=True)
            submitted = time.perf_counter()
            if timed:
                events[0].record()
            graph.replay()
            if timed:
                events[1].record()
            launched = time.perf_counter()
        stream.synchronize()
        waited = time.perf_counter()
        return (submitted, launched, waited), 1000 * events[0].elapsed_time(events[1]) if timed else None

    request.steps = steps
    # The graph reads the weights where they are: they must live as long as it.
    request.model = model
    return request, answer


def hint_function():
    """`sluice_hint` of the hook, if this process runs under it."""
    try:
        function = ctypes.CDLL(None).sluice_hint
    except AttributeError:
        return None
    function.argtypes, function.restype = [ctypes.c_uint], ctypes.c_int
    return function


def spin_until(when):
    while (left := when - time.perf_counter()) > 0:
        if left > 0.002:
            time.sleep(left - 0.0015)


def serve(request, hint, start, requests, period, lead, jitter):
    # The wall clock says when to begin, the monotonic clock everything after that.
    begin = time.perf_counter() + (start - time.time())
    made, hints, chance = holds.Requests(), {}, random.Random(0)
    for index in range(requests):
        due = begin + index * period + chance.uniform(0, jitter)
        if lead and hint:
            spin_until(due - lead)
            code = hint(int(lead / MICROSECOND))
            hints[code] = hints.get(code, 0) + 1
        spin_until(due)
        began = time.perf_counter()
        returned, _ = request.steps(False)
        made.over(due - begin, [at - due for at in (began, *returned)])
    return {**made.told(), "hints": hints}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--staged", action="store_true", help="say when the libraries are loaded, and wait for a line before anything else")
    parser.add_argument("--uncopied", action="store_true", help="requests without the copy of their input")
    options = parser.parse_args()
    if options.staged:
        window.stand_by(torch)
    torch.manual_seed(0)
    request, answer = build(not options.uncopied)
    for _ in range(100):
        request()
    digest = answer.float().sum().item()
    hint = hint_function()
    # A full garbage collection takes as long as some requests; from here on it skips what was loaded.
    gc.freeze()
    print(json.dumps({"ready": True, "hooked": hint is not None, "torch": torch.__version__, "device": torch.cuda.get_device_name()}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            return
        start, requests = float(words[1]), int(words[2])
        if words[0] == "split":
            told = split.run(request.steps, spin_until, start, requests, float(words[3]) * MICROSECOND, int(words[4]))
            told["answer_unchanged"] = answer.float().sum().item() == digest
            print(json.dumps(told), flush=True)
            continue
        period, lead, jitter = (float(word) * MICROSECOND for word in words[3:6])
        told = serve(request, hint, start, requests, period, lead, jitter)
        told["answer_unchanged"] = answer.float().sum().item() == digest
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()

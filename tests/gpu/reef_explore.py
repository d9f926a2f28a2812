#!/usr/bin/env python3
"""First look at green contexts for the REEF server: does PyTorch capture and replay graphs in them, what does a partition cost, and how late
is a real-time ResNet-152 beside best-effort ResNet-152 in each way of sharing? Prints one JSON line a result, at once; also in $OUT/reef_explore.jsonl.

  tests/gpu/reef_explore.py [--limit 88] [--arm-seconds 1.5]

Ways ("arm"): alone; whole: best-effort (BE) batches as whole graphs on a low-priority stream; pieces: the same cut into short graphs; pause:
pieces that are not launched while a real-time (RT) request runs; switch N: pieces go to a partition of N SMs while a request runs, to the
whole GPU otherwise; two N: one BE worker in N SMs always, another in the other SMs unless a request runs there; fixed N: BE in N SMs always.
"""

import argparse
import collections
import ctypes
import importlib.util
import json
import os
import pathlib
import random
import shutil
import sys
import threading
import time

STARTED = time.monotonic()
OUT = open(pathlib.Path(os.environ.get("OUT", "/tmp")) / "reef_explore.jsonl", "w")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def tell(record, **fields):
    line = json.dumps({"at": round(time.monotonic() - STARTED, 1), "record": record, **fields})
    print(line, flush=True)
    print(line, file=OUT, flush=True)


def attempt(what, function, *arguments, **more):
    """The function's result; on an error a record of it, and None."""
    try:
        return function(*arguments, **more)
    except Exception as why:  # noqa: BLE001 - every failure is a finding
        tell("error", what=what, why=f"{type(why).__name__}: {why}"[:600])
        return None


import torch  # noqa: E402
import torch.fx  # noqa: E402
import torchvision  # noqa: E402

cuda = ctypes.CDLL("libcuda.so.1")
POINTER = ctypes.c_void_p


class DevResource(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("private", ctypes.c_ubyte * 92), ("count", ctypes.c_uint), ("smallest", ctypes.c_uint),
                ("alignment", ctypes.c_uint), ("rest", ctypes.c_ubyte * 36)]


class KernelNode(ctypes.Structure):
    _fields_ = [("func", POINTER), ("dimensions", ctypes.c_uint * 7), ("params", POINTER), ("extra", POINTER), ("kern", POINTER), ("ctx", POINTER)]


def check(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: CUresult {code}")


class Partition:
    """A green context over a resource, with a stream of each priority."""

    def __init__(self, resource, low, high):
        desc, self.green, self.context = POINTER(), POINTER(), POINTER()
        check("cuDevResourceGenerateDesc", ctypes.byref(desc), ctypes.byref(resource), 1)
        check("cuGreenCtxCreate", ctypes.byref(self.green), desc, 0, 1)
        check("cuCtxFromGreenCtx", ctypes.byref(self.context), self.green)
        self.sms = resource.count
        self.low, self.high = self.stream(low), self.stream(high)

    def stream(self, priority):
        made = POINTER()
        check("cuGreenCtxStreamCreate", ctypes.byref(made), self.green, 1, priority)
        return torch.cuda.ExternalStream(made.value)


class Whole:
    """The primary context."""

    context, sms = None, 0

    def __init__(self):
        self.low, self.high = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-5)


def split(count):
    """Partitions of `count` SMs (rounded up by the driver) and of the others."""
    everything, chosen, others, groups = DevResource(), DevResource(), DevResource(), ctypes.c_uint(1)
    check("cuDeviceGetDevResource", 0, ctypes.byref(everything), 1)
    check("cuDevSmResourceSplitByCount", ctypes.byref(chosen), ctypes.byref(groups), ctypes.byref(everything), ctypes.byref(others), 0, count)
    tell("split", asked=count, groups=groups.value, chosen=chosen.count, others=others.count, of=everything.count, smallest=everything.smallest, alignment=everything.alignment)
    return Partition(chosen, 0, -5), Partition(others, 0, -5)


class Model:
    """A ResNet-152 captured on a stream as consecutive graphs; after each, the tensors that the later ones read."""

    def __init__(self, traced, batch, stream, pieces):
        self.batch, self.stream = batch, stream
        self.host = torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(1)).half().to(memory_format=torch.channels_last).pin_memory()
        self.images = torch.empty_like(self.host, device="cuda")
        self.graphs, self.live = [], []
        nodes = list(traced.graph.nodes)
        last = {}
        for node in nodes:
            for used in node.all_input_nodes:
                last[used] = node
        dead = collections.defaultdict(list)
        for used, node in last.items():
            dead[node].append(used)
        run, cuts = torch.fx.Interpreter(traced), {int(len(nodes) * part / pieces) for part in range(1, pieces)}

        def forward(cut):
            values = {}
            for index, node in enumerate(nodes):
                if node.op == "placeholder":
                    values[node] = self.images
                    continue
                arguments = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
                if node.op == "output":
                    return arguments[0][0]
                values[node] = getattr(run, node.op)(node.target, *arguments)
                for gone in dead[node]:
                    del values[gone]
                if index in cuts:
                    cut(list(values.values()))

        with torch.no_grad(), torch.cuda.stream(stream):
            self.images.copy_(self.host)
            for _ in range(2):
                forward(lambda live: None)
            torch.cuda.synchronize()
            pool = torch.cuda.graph_pool_handle()

            def begin():
                self.graphs.append(torch.cuda.CUDAGraph())
                self.graphs[-1].capture_begin(pool=pool, capture_error_mode="thread_local")

            def cut(live):
                self.graphs[-1].capture_end()
                self.live.append(live)
                begin()

            begin()
            try:
                self.answer = forward(cut)
            finally:
                # A failed capture would leave the stream unusable.
                self.graphs[-1].capture_end()
            self.told = torch.empty_like(self.answer, device="cpu").pin_memory()
            torch.cuda.synchronize()

    def piece(self, index, stream=None):
        with torch.cuda.stream(stream or self.stream):
            if index == 0:
                self.images.copy_(self.host, non_blocking=True)
            self.graphs[index].replay()
            if index == len(self.graphs) - 1:
                self.told.copy_(self.answer, non_blocking=True)

    def take_over(self, other, index):
        """Continues after piece `index` of the other capture: copies what the later pieces read."""
        self.stream.wait_stream(other.stream)
        with torch.cuda.stream(self.stream), torch.no_grad():
            for mine, theirs in zip(self.live[index], other.live[index]):
                mine.copy_(theirs)

    def everything(self):
        for index in range(len(self.graphs)):
            self.piece(index)

    def ms(self, times=15, stream=None):
        """Median time of the whole model, and the longest piece, in ms."""
        stream = stream or self.stream
        whole, longest = [], 0.0
        for _ in range(times):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(self.graphs) + 1)]
            marks[0].record(stream)
            for index in range(len(self.graphs)):
                self.piece(index, stream)
                marks[index + 1].record(stream)
            marks[-1].synchronize()
            whole.append(marks[0].elapsed_time(marks[-1]))
            longest = sorted(first.elapsed_time(second) for first, second in zip(marks, marks[1:]))[-1]
        return round(sorted(whole)[times // 2], 3), round(longest, 3)


def capture(what, traced, batch, stream, pieces, context=None):
    """A captured model. If the libraries refuse the green context's stream, once more in a thread in which that context is current."""
    made = attempt(what, Model, traced, batch, stream, pieces)
    if made is None and context is not None:
        box = []

        def inside():
            check("cuCtxPushCurrent_v2", context)
            box.append(attempt(what + ", context current", Model, traced, batch, stream, pieces))

        worker = threading.Thread(target=inside)
        worker.start()
        worker.join()
        made = box[0]
    return made


class Worker:
    """Best-effort batches, one after the other, at most `depth` pieces in flight."""

    def __init__(self, free, busy, depth, during=True):
        self.free, self.busy, self.depth, self.during = free, busy, depth, during
        self.now, self.index, self.flight, self.images, self.switches = free, 0, collections.deque(), 0, 0

    def pump(self, serving):
        while self.flight and self.flight[0].query():
            self.flight.popleft()
        if len(self.flight) >= self.depth or (serving and not self.during):
            return
        wanted = self.busy if serving else self.free
        if wanted is not self.now:
            wanted.take_over(self.now, self.index - 1) if self.index else wanted.stream.wait_stream(self.now.stream)
            self.now, self.switches = wanted, self.switches + 1
        self.now.piece(self.index)
        event = torch.cuda.Event()
        event.record(self.now.stream)
        self.flight.append(event)
        self.index = (self.index + 1) % len(self.now.graphs)
        self.images += self.now.batch if self.index == 0 else 0


def beside(arm, batch, rt, workers, period, seconds):
    """Requests of a mean period with uniform jitter beside the workers; None: no requests."""
    torch.cuda.synchronize()
    chance, late, active = random.Random(7), [], None
    start = time.perf_counter()
    due = start + 0.1
    for worker in workers:
        worker.images = worker.switches = 0
    while (now := time.perf_counter()) < start + seconds:
        if rt and active is None and now >= due:
            rt.everything()
            active = torch.cuda.Event()
            active.record(rt.stream)
        if active is not None and active.query():
            late.append(time.perf_counter() - due)
            active, due = None, max(due + period * chance.uniform(0.5, 1.5), time.perf_counter())
        for worker in workers:
            worker.pump(active is not None)
    lasted = time.perf_counter() - start
    torch.cuda.synchronize()
    late = sorted(1000 * value for value in late)
    at = lambda share: round(late[min(len(late) - 1, int(share * len(late)))], 3) if late else None  # noqa: E731
    images = sum(worker.images for worker in workers) / lasted
    tell("beside", arm=arm, batch=batch, p50=at(0.5), p90=at(0.9), p99=at(0.99), most=at(1), n=len(late), images=round(images), switches=sum(worker.switches for worker in workers))
    return at(0.5), at(0.99), images


def move_graph(model_source, partition):
    """Can a captured graph's kernel nodes be moved to a partition, at the same addresses?"""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    images, stream = torch.randn(1, 3, 224, 224, device="cuda").half().to(memory_format=torch.channels_last), torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        model_source(images)
        torch.cuda.synchronize()
        graph.capture_begin()
        answer = model_source(images)
        graph.capture_end()
    raw, count, kinds, codes = POINTER(graph.raw_cuda_graph()), ctypes.c_size_t(0), collections.Counter(), collections.Counter()
    check("cuGraphGetNodes", raw, None, ctypes.byref(count))
    nodes = (POINTER * count.value)()
    check("cuGraphGetNodes", raw, nodes, ctypes.byref(count))
    for node in nodes:
        kind, params = ctypes.c_int(), KernelNode()
        check("cuGraphNodeGetType", POINTER(node), ctypes.byref(kind))
        if kind.value != 0:
            kinds[f"type {kind.value}"] += 1
            continue
        check("cuGraphKernelNodeGetParams_v2", POINTER(node), ctypes.byref(params))
        kinds[f"func {bool(params.func)} kern {bool(params.kern)} ctx {bool(params.ctx)}"] += 1
        if not params.kern:
            kernel = POINTER()
            codes[f"cuFuncGetModule {cuda.cuFuncGetModule(ctypes.byref(kernel), POINTER(params.func))}"] += 1
        params.kern, params.func, params.ctx = params.kern or params.func, None, partition.context.value
        codes[f"set {cuda.cuGraphKernelNodeSetParams_v2(POINTER(node), ctypes.byref(params))}"] += 1
    tell("move", kinds=kinds, codes=codes)
    graph.instantiate()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    with torch.cuda.stream(stream):
        for _ in range(5):
            marks[0].record()
            graph.replay()
            marks[1].record()
    torch.cuda.synchronize()
    with torch.no_grad():
        same = torch.equal(answer, model_source(images))
    tell("moved", ms=round(marks[0].elapsed_time(marks[1]), 3), sms=partition.sms, same=same)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=88)
    parser.add_argument("--arm-seconds", type=float, default=1.5)
    parser.add_argument("--splits", type=int, nargs="+", default=[32, 48, 64, 80, 96, 112])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 4])
    options = parser.parse_args()

    def left():
        return STARTED + options.limit - time.monotonic()

    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    whole = Whole()
    tell("machine", torch=torch.__version__, cudnn=torch.backends.cudnn.version(), device=torch.cuda.get_device_name(), python=sys.version.split()[0],
         mps=shutil.which("nvidia-cuda-mps-control"),
         packages={name: bool(importlib.util.find_spec(name)) for name in ("grpc", "google.protobuf", "aiohttp", "prometheus_client", "yaml", "tritonclient", "starlette", "torchvision")}, priorities=torch.cuda.Stream.priority_range())
    network = torchvision.models.resnet152().cuda().half().eval().to(memory_format=torch.channels_last)
    attempt("PyTorch's own", lambda: tell("torch.cuda.green_contexts", stream=str(torch.cuda.green_contexts.GreenContext.create(64).Stream())))
    traced = torch.fx.symbolic_trace(network)
    tell("traced", nodes=len(traced.graph.nodes))
    parts = {count: made for count in options.splits if (made := attempt(f"split {count}", split, count))}
    rt = Model(traced, 1, whole.high, 1)
    alone_ms, _ = rt.ms(50)
    tell("rt on the whole GPU", ms=alone_ms)
    served = {}
    for count, (chosen, others) in parts.items():
        served[count] = capture(f"rt in others of {count}", traced, 1, others.high, 1, others.context)
        if served[count]:
            tell("rt in a partition", sms=others.sms, ms=served[count].ms()[0], same=torch.equal(rt.told, served[count].told),
                 primary_graph_on_its_stream_ms=rt.ms(stream=others.high)[0])
    period = alone_ms / 1000 / 0.3
    seconds = options.arm_seconds
    alone = beside("alone", 0, rt, [], period, seconds)
    for number, batch in enumerate(options.batches):
        # An equal part of the time for each batch size.
        reserved = left() * (1 - 1 / (len(options.batches) - number))
        if left() < 3 * seconds:
            break
        one = Model(traced, batch, whole.low, 1)
        ms, _ = one.ms()
        pieces = max(4, round(ms / 0.2))
        cut = Model(traced, batch, whole.low, pieces)
        tell("be on the whole GPU", batch=batch, ms=ms, pieces=pieces, in_pieces_ms=cut.ms())
        full = beside("be alone, whole", batch, None, [Worker(one, one, 2)], period, seconds)[2]
        beside("be alone, pieces", batch, None, [Worker(cut, cut, 2)], period, seconds)
        beside("whole", batch, rt, [Worker(one, one, 2)], period, seconds)
        beside("pieces", batch, rt, [Worker(cut, cut, 2)], period, seconds)
        beside("pause", batch, rt, [Worker(cut, cut, 2, during=False)], period, seconds)
        beside("pause, depth 1", batch, rt, [Worker(cut, cut, 1, during=False)], period, seconds)
        for count in sorted(parts, key=lambda value: abs(value - 80)):
            if left() - reserved < 4 * seconds:
                break
            chosen, others = parts[count]
            small = capture(f"be {batch} in {count}", traced, batch, chosen.low, pieces, chosen.context)
            if not small:
                break
            tell("be in a partition", batch=batch, sms=chosen.sms, ms=small.ms(8))
            worker = Worker(cut, small, 2)
            row = beside(f"switch {count}", batch, rt, [worker], period, seconds)
            tell("ratio", arm=f"switch {count}", batch=batch, rt_p50=round(row[0] / alone[0], 3), rt_p99=round(row[1] / alone[1], 3), be=round(row[2] / full, 3))
            if served[count] and count in (64, 80, 96):
                beside(f"switch {count}, rt in the others", batch, served[count], [Worker(cut, small, 2)], period, seconds)
            if count == 80:
                beside(f"fixed {count}", batch, rt, [Worker(small, small, 2)], period, seconds)
                second = capture(f"be {batch} in others of {count}", traced, batch, others.low, pieces, others.context)
                if second and served[count]:
                    two = [Worker(small, small, 2), Worker(second, second, 2, during=False)]
                    beside(f"be alone, two {count}", batch, None, two, period, seconds)
                    beside(f"two {count}", batch, served[count], two, period, seconds)
                    beside(f"two {count}, rt on the whole GPU", batch, rt, two, period, seconds)
            # Switched in the middle of a batch, the answer is the same to the bit.
            for index in range(pieces):
                if index == pieces // 2:
                    small.take_over(cut, index - 1)
                (cut if index < pieces // 2 else small).piece(index)
            torch.cuda.synchronize()
            tell("switched answer", batch=batch, sms=chosen.sms, same=torch.equal(small.told, cut.told), same_as_one_graph=torch.equal(small.told, one.told))
        if left() > seconds:
            beside("alone again", 0, rt, [], period, seconds)
    if parts:
        # Last, because an error of this kind may end the process.
        attempt("move", move_graph, network, next(iter(parts.values()))[0])


if __name__ == "__main__":
    main()

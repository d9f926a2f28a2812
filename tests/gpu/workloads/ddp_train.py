"""A training of the language model of decoder.py (8 layers, 0.44 G parameters, bf16) or of ResNet-50: on one GPU, or data-parallel by DDP
over NCCL with one process a GPU. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are as torchrun sets them; --gpu is this process's GPU.

Prints {"loaded"} once its libraries are there, then answers each line of standard input with one JSON line:
  build               makes the training and runs its first steps          {"ready", "device", …}
  run <begin> <end>   steps from <begin> on, until the first rank has passed <end>; times of CLOCK_MONOTONIC
                      {"steps", "ends"}: seconds from <begin> until the GPU had finished each step; only the first rank has them
  quit
The processes of a job and gangs.py share a board (a mapped file). The first rank writes there after which step all ranks stop: they take
the same number of steps, so no all-reduce is left without its other half, and no message between them costs a step any time.
"""

import argparse
import collections
import ctypes
import json
import mmap
import os
import sys
import time

# Steps that the host has launched and not seen finished.
DEPTH = 1
# Steps from the order to stop until the stop. A rank that has seen step n finished knows that the first rank has begun to launch step n.
# So it is at most DEPTH + 2 steps ahead of the first rank.
NOTICE = DEPTH + 4
WARM = 10
NEVER = 1 << 62
# On the simulator: kernels of a step, and the time of each.
KERNELS, KERNEL_US = 100, 100


class Board:
    """Numbers that processes share: a mapped file of 8-byte words, each written by one process at a time."""

    # The step, or request, before which all ranks stop; the requests that may begin; per rank the steps that have finished, and on the
    # simulator those that have finished on this rank's own GPU.
    STOP, GO, DONE, OWN, WORDS = 0, 1, 2, 10, 18

    def __init__(self, path, create=False):
        if create:
            with open(path, "wb") as file:
                file.write(bytes(8 * self.WORDS))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.words = memoryview(self.memory).cast("q")

    def reset(self):
        """All ranks must be idle."""
        for at in range(self.WORDS):
            self.words[at] = 0
        self.words[self.STOP] = NEVER


def say(**what):
    print(json.dumps(what), flush=True)


def wait_until(when):
    while (left := when - time.monotonic()) > 0:
        time.sleep(min(left, 0.01) if left > 0.002 else 0)


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--board", required=True, help="file that the processes of this job share")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--device", choices=["cuda", "cpu", "sim"], default="cuda", help="cpu and sim are to try the program")
    parser.add_argument("--model", choices=["transformer", "resnet50", "light"], default="transformer")
    parser.add_argument("--batch", type=int, default=0, help="per GPU; 0: 6 texts, or 64 images")
    return parser


class Group:
    """This process among those of its job."""

    def __init__(self, options):
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.gpu, self.kind, self.board = options.gpu, options.device, Board(options.board)
        self.first = self.rank == 0

    def join(self, torch):
        """Sets this process's device and creates the process group. Returns the device."""
        device = torch.device("cpu")
        if self.kind == "cuda":
            # Before anything else: no context may come into being on another GPU.
            torch.cuda.set_device(self.gpu)
            device = torch.device("cuda", self.gpu)
        if self.world > 1:
            more = {"device_id": device} if self.kind == "cuda" else {}
            torch.distributed.init_process_group("nccl" if self.kind == "cuda" else "gloo", rank=self.rank, world_size=self.world, **more)
        return device


def transformer(torch, device, batch, wrap, tiny):
    """`batch` texts of 1024 tokens."""
    import decoder

    sizes, length = ({"layers": 2, "width": 64, "heads": 4, "vocabulary": 128}, 32) if tiny else ({"layers": 8, "vocabulary": 8192}, 1024)
    model = decoder.make(device, **sizes)
    parallel = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    text = torch.randint(0, sizes["vocabulary"], (batch or 6, length + 1), device=device)
    positions, attends = torch.arange(length, device=device), [decoder.causal] * sizes["layers"]

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = parallel(text[:, :-1], positions, attends)
        torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def resnet50(torch, device, batch, wrap, _tiny):
    """As in torch_model.py."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().to(device).to(memory_format=torch.channels_last)
    parallel = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch or 64, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch or 64,), device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(parallel(images), labels)
        loss.backward()
        optimizer.step()

    return step


def light(torch, _device, _batch, _wrap, tiny):
    """Kernels that occupy the GPU and draw little power (light.py), on each rank by itself."""
    import light as kernels

    return (lambda: time.sleep(0.01)) if tiny else kernels.steps(torch)


class Training:
    """PyTorch's training."""

    def __init__(self, group, options):
        import torch

        self.torch, self.group, self.options = torch, group, options
        if group.kind == "cuda":
            torch.cuda.init()

    def build(self):
        torch, group = self.torch, self.group
        device = group.join(torch)
        torch.manual_seed(group.rank)

        def wrap(model):
            if group.world == 1:
                return model
            # Without device_ids the inputs stay where they are.
            return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

        make = {"transformer": transformer, "resnet50": resnet50, "light": light}[self.options.model]
        self.step = make(torch, device, self.options.batch, wrap, tiny=group.kind == "cpu")
        for _ in range(WARM):
            self.step()
        told = {"model": self.options.model, "torch": torch.__version__, "device": "cpu"}
        if group.kind == "cuda":
            torch.cuda.synchronize()
            told |= {"device": torch.cuda.get_device_name(), "memory_reserved": torch.cuda.memory_reserved(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
        return told

    def mark(self):
        """The end of the steps so far."""
        if self.group.kind == "cpu":
            return None
        event = self.torch.cuda.Event()
        event.record()
        return event

    def wait(self, mark):
        if mark is not None:
            mark.synchronize()


class Simulated:
    """Kernels on the driver API. A step is over when all ranks have finished theirs, as an all-reduce would have it."""

    def __init__(self, group, _options):
        self.group = group

    def build(self):
        import driver_serve

        self.driver = driver = driver_on(self.group.gpu)
        self.launch, self.stream, _ = driver_serve.build(driver, 4096, KERNEL_US)
        return {"model": "stand-in", "device": driver.name}

    def step(self):
        for _ in range(KERNELS):
            self.launch()

    def mark(self):
        event = ctypes.c_void_p()
        self.driver.call("cuEventCreate", ctypes.byref(event), 2)
        self.driver.call("cuEventRecord", event, self.stream)
        return event

    def wait(self, mark):
        self.driver.call("cuEventSynchronize", mark)
        self.driver.call("cuEventDestroy_v2", mark)
        meet(self.group)


def meet(group):
    """Returns when all ranks have come here as often as this one."""
    words, own = group.board.words, Board.OWN + group.rank
    words[own] += 1
    while min(words[Board.OWN:Board.OWN + group.world]) < words[own]:
        time.sleep(0.0002)


def driver_on(gpu):
    """driver_serve's driver with a context on this GPU."""
    import driver_serve

    class Driver(driver_serve.Driver):
        def call(self, function, *arguments):
            if function == "cuDeviceGet":
                arguments = (arguments[0], gpu)
            super().call(function, *arguments)

    return Driver()


def run(training, begin, end):
    """Steps until the first rank has passed `end`, and the notice after it."""
    group = training.group
    words, in_flight, ends, launched, told = group.board.words, collections.deque(), [], 0, False

    def finish_one():
        training.wait(in_flight.popleft())
        ends.append(time.monotonic() - begin)
        words[Board.DONE + group.rank] = len(ends)

    wait_until(begin)
    while launched < words[Board.STOP]:
        training.step()
        in_flight.append(training.mark())
        launched += 1
        if len(in_flight) > DEPTH:
            finish_one()
        if group.first and not told and time.monotonic() >= end:
            told, words[Board.STOP] = True, launched + NOTICE
    while in_flight:
        finish_one()
    return {"steps": len(ends), "ends": [round(at, 5) for at in ends] if group.first else []}


def serve(program, run):
    """Answers the commands of gangs.py. `program` has `group` and `build()`."""
    say(loaded=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "build":
            say(ready=True, **program.build())
        elif word == "run":
            say(**run(program, *map(float, rest)))
        else:
            break
    sys.stdout.flush()
    # A process group that is destroyed waits for its other processes.
    os._exit(0)


def main():
    options = arguments(__doc__).parse_args()
    serve((Simulated if options.device == "sim" else Training)(Group(options), options), run)


if __name__ == "__main__":
    main()

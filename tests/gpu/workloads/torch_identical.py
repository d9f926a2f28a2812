"""Trains ResNet-50 for a fixed number of steps with deterministic algorithms, and tells the loss and a digest of all weights.

Two runs with the same steps have to agree to the bit. Prints JSON lines: {"ready", "steps"}, {"checkpoint", ...} and {"final", ...}, the latter
two with the step, the loss and the digest of every parameter, buffer and moment.
"""

import argparse
import hashlib
import json
import os
import time

# Before CUDA is there.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
import torchvision

import preempter

# Steps after which the speed is known.
TRIAL = 30


class Mean(torch.nn.Module):
    """The mean over a picture; AdaptiveAvgPool2d has no deterministic gradient."""

    def forward(self, x):
        return x.mean((2, 3), keepdim=True)


class Training:
    def __init__(self, batch):
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        model = torchvision.models.resnet50()
        # MaxPool2d's gradient adds in any order.
        model.maxpool, model.avgpool = torch.nn.Conv2d(64, 64, 3, stride=2, padding=1), Mean()
        self.model = model.cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        # Batches come from pinned memory, as a loader's do.
        self.batches = [(torch.randn(batch, 3, 224, 224).pin_memory(), torch.randint(0, 1000, (batch,)).pin_memory()) for _ in range(4)]
        self.done, self.loss = 0, None

    def step(self):
        images, labels = (tensor.cuda(non_blocking=True) for tensor in self.batches[self.done % len(self.batches)])
        images = images.to(memory_format=torch.channels_last)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.done += 1
        if self.done % 10 == 0:
            self.loss = loss.item()

    def state(self):
        torch.cuda.synchronize()
        digest = hashlib.sha256()
        moments = [state["momentum_buffer"] for state in self.optimizer.state.values()]
        for tensor in [*self.model.state_dict().values(), *moments]:
            digest.update(tensor.contiguous().cpu().numpy().tobytes())
        return {"step": self.done, "loss": self.loss, "loss_hex": float(self.loss).hex(), "digest": digest.hexdigest()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=170.0, help="how long to train undisturbed, where --steps is absent")
    parser.add_argument("--steps", type=int, help="a multiple of 10")
    parser.add_argument("--checkpoint", type=float, default=0.1, help="part of the steps after which the state is told too")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--preempter", help="preempter.so; preempt the training's stream")
    parser.add_argument("--level", choices=preempter.LEVELS, default="host")
    parser.add_argument("--hz", type=int, default=1000)
    options = parser.parse_args()
    training = Training(options.batch)
    # A stream of its own, which can be named, behind what has been set up.
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    active = None
    with torch.cuda.stream(stream):
        for _ in range(TRIAL - 10):
            training.step()
        torch.cuda.synchronize()
        begin = time.monotonic()
        for _ in range(10):
            training.step()
        torch.cuda.synchronize()
        each = (time.monotonic() - begin) / 10
        steps = options.steps or TRIAL + max(20, int(options.seconds / each) // 10 * 10)
        middle = max(TRIAL + 10, int(steps * options.checkpoint) // 10 * 10)
        print(json.dumps({"ready": True, "steps": steps, "step_s": each, "torch": torch.__version__, "device": torch.cuda.get_device_name()}), flush=True)
        if options.preempter:
            active = preempter.Preempter(options.preempter, [stream.cuda_stream], options.level, options.hz, 7)
        begin = time.monotonic()
        while training.done < steps:
            training.step()
            if training.done == middle:
                print(json.dumps({"checkpoint": True, **training.state()}), flush=True)
        torch.cuda.synchronize()
        seconds = time.monotonic() - begin
        preempted = active.stop() if active else None
        print(json.dumps({"final": True, "seconds": seconds, "preempted": preempted, **training.state()}), flush=True)


if __name__ == "__main__":
    main()

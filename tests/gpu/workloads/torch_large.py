"""Trains a network whose weights, gradients and moments fill an amount of memory: layers of 1 GiB each, with deterministic algorithms.

Prints {"ready"}, then answers each line of standard input with one JSON line:
  train <start> <steps>   waits for the Unix time <start> and trains: the seconds, the longest step and the last loss
  digest                  a sum over all bits of weights and moments that depends on their places
  quit
Two programs with the same steps have to agree to the bit. A step counts when the GPU has finished it.
"""

import argparse
import json
import os
import sys
import time

# Before CUDA is there.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch

# A layer has WIDTH x WIDTH weights of 4 bytes, as many gradients, and two moments of Adam: 1 GiB.
WIDTH, BATCH = 8192, 512
# Words that are summed at once.
PIECE = 1 << 24


def say(**what):
    print(json.dumps(what), flush=True)


class Network(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + 0.1 * torch.relu(layer(x))
        return x


class Training:
    def __init__(self, layers):
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        torch.backends.cuda.matmul.allow_tf32 = True
        self.model = Network(layers)
        # One kernel for many tensors, without copies of them.
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.inputs, self.targets = torch.randn(BATCH, WIDTH, device="cuda"), torch.randn(BATCH, WIDTH, device="cuda")
        self.loss = None

    def step(self):
        # The gradients keep their memory.
        self.optimizer.zero_grad(set_to_none=False)
        self.loss = (self.model(self.inputs) - self.targets).square().mean()
        self.loss.backward()
        self.optimizer.step()

    def train(self, steps):
        longest, begun = 0.0, time.monotonic()
        last = begun
        for _ in range(steps):
            self.step()
            torch.cuda.synchronize()
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        return {"steps": steps, "seconds": last - begun, "longest_step_s": longest, "loss": self.loss.item()}

    def digest(self):
        weights = torch.arange(1, 2 * PIECE, 2, dtype=torch.int64, device="cuda")
        sums = []
        for parameter, state in self.optimizer.state.items():
            for tensor in (parameter, state["exp_avg"], state["exp_avg_sq"]):
                words = tensor.detach().reshape(-1).view(torch.int32)
                # Sums of integers do not depend on their order.
                sums += [(piece.to(torch.int64) * weights[: piece.numel()]).sum().item() for piece in words.split(PIECE)]
        del weights
        torch.cuda.empty_cache()
        return "-".join(f"{value & 0xFFFF_FFFF_FFFF_FFFF:x}" for value in sums)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=20.0)
    options = parser.parse_args()
    training = Training(max(1, int(options.gib)))
    training.step()
    torch.cuda.synchronize()
    say(ready=True, reserved=torch.cuda.memory_reserved(), torch=torch.__version__, device=torch.cuda.get_device_name())
    for line in sys.stdin:
        words = line.split()
        if words[0] == "train":
            time.sleep(max(0.0, float(words[1]) - time.time()))
            say(**training.train(int(words[2])))
        elif words[0] == "digest":
            say(digest=training.digest())
        else:
            return


if __name__ == "__main__":
    main()

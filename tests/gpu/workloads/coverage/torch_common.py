"""What the PyTorch workloads have in common: settings for equal bits, results, and the limit of memory."""

import gc
import os

# Before CUDA is there.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch

from filling import fill


class Mean(torch.nn.Module):
    """The mean over a picture; AdaptiveAvgPool2d has no deterministic gradient."""

    def forward(self, x):
        return x.mean((2, 3), keepdim=True)


class Workload:
    """A subclass sets `model` and `optimizer` in `build`, and defines `step`."""

    # Whether a function without a deterministic form is an error.
    WARN_ONLY = False

    def __init__(self, device):
        self.device = torch.device(device)
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True, warn_only=self.WARN_ONLY)
        torch.backends.cudnn.benchmark = False
        self.model = self.optimizer = None
        self.held = []
        self.build()
        self.about = {"version": torch.__version__, "total_memory": self.total_memory()}

    def total_memory(self):
        return torch.cuda.mem_get_info(self.device)[1] if self.device.type == "cuda" else None

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def results(self):
        tensors = dict(self.model.state_dict())
        for number, state in enumerate(self.optimizer.state.values() if self.optimizer else ()):
            tensors |= {f"{number} {name}": value for name, value in state.items() if torch.is_tensor(value)}
        return [(name, bits(tensors[name])) for name in sorted(tensors)]

    def fill(self):
        return fill(self.held, lambda size: torch.empty(size, dtype=torch.uint8, device=self.device), torch.OutOfMemoryError)

    def recover(self):
        self.held.clear()
        gc.collect()
        torch.cuda.empty_cache()


def bits(tensor):
    """The bytes of a tensor. NumPy has no bfloat16."""
    return tensor.detach().reshape(-1).contiguous().cpu().view(torch.uint8).numpy().tobytes()


def resnet(layers=50):
    """A ResNet of torchvision whose gradients are deterministic."""
    import torchvision

    model = getattr(torchvision.models, f"resnet{layers}")()
    # MaxPool2d's gradient adds in any order.
    model.maxpool, model.avgpool = torch.nn.Conv2d(64, 64, 3, stride=2, padding=1), Mean()
    return model

"""Trainings in PyTorch: eager (ResNet-50), compiled (a transformer), and as a CUDA graph. The allocator is chosen by the environment."""

import torch
import torch.nn.functional as F

import torch_common


class Eager(torch_common.Workload):
    """ResNet-50, bf16 autocast, channels_last, batches from pinned memory."""

    BATCH, SIDE = 16, 224

    def build(self):
        small = self.device.type == "cpu"
        batch, side = (2, 64) if small else (self.BATCH, self.SIDE)
        self.model = torch_common.resnet(18 if small else 50).to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batches = [(torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,))) for _ in range(4)]
        if not small:
            self.batches = [tuple(tensor.pin_memory() for tensor in pair) for pair in self.batches]
        self.done = 0

    def step(self):
        images, labels = (tensor.to(self.device, non_blocking=True) for tensor in self.batches[self.done % len(self.batches)])
        self.done += 1
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(images.to(memory_format=torch.channels_last)), labels)
        loss.backward()
        self.optimizer.step()


def transformer(device, layers=6, width=512):
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)


class Compiled(torch_common.Workload):
    """A transformer through torch.compile. Most of its kernels are Triton's."""

    def build(self):
        small = self.device.type == "cpu"
        self.model = transformer(self.device, layers=1 if small else 6)
        self.fast = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randn(2 if small else 32, 256, 512, device=self.device)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.fast(self.tokens).square().mean()
        loss.backward()
        self.optimizer.step()


class Graphs(torch_common.Workload):
    """A training step (forward, backward, optimizer) captured as one CUDA graph, and replayed."""

    def build(self):
        self.model = transformer(self.device, layers=4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.tokens = torch.randn(8, 128, 512, device=self.device)
        if self.device.type == "cpu":
            self.step = self.train
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.train()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.train(clear=False)
        self.step = self.graph.replay

    def train(self, clear=True):
        if clear:
            self.optimizer.zero_grad(set_to_none=True)
        self.model(self.tokens).square().mean().backward()
        self.optimizer.step()

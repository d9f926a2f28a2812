"""A data-parallel training over NCCL: one process a GPU, each with all GPUs visible, as torchrun starts them (RANK, WORLD_SIZE, …)."""

import os

import torch
import torch.distributed

import torch_common
import torch_training


class Training(torch_common.Workload):
    """A transformer of 50 MB; its gradients are reduced in each step."""

    def __init__(self, device):
        self.rank = int(os.environ["RANK"])
        self.on_gpu = device == "cuda"
        if self.on_gpu:
            torch.cuda.set_device(self.rank)
            device = f"cuda:{self.rank}"
            torch.distributed.init_process_group("nccl", device_id=torch.device(device))
        else:
            torch.distributed.init_process_group("gloo")
        super().__init__(device)

    def build(self):
        self.model = torch_training.transformer(self.device, layers=4)
        devices = [self.rank] if self.on_gpu else None
        self.parallel = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=devices)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        # Each process has texts of its own.
        chance = torch.Generator().manual_seed(self.rank)
        self.tokens = torch.randn(16 if self.on_gpu else 2, 256, 512, generator=chance).to(self.device)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.parallel(self.tokens).square().mean()
        loss.backward()
        self.optimizer.step()

    def close(self):
        torch.distributed.destroy_process_group()

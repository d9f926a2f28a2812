"""A training of ResNet-18 whose batches come from a DataLoader with worker processes and pinned memory."""

import torch
import torch.nn.functional as F

import torch_common

WORKERS, BATCH, SIDE = 2, 32, 128


class Pictures(torch.utils.data.IterableDataset):
    """An endless sequence of pictures, which depends on the worker's number only."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        chance = torch.Generator().manual_seed(worker.id)
        while True:
            yield torch.randint(0, 256, (3, SIDE, SIDE), dtype=torch.uint8, generator=chance), torch.randint(0, 1000, (), generator=chance)


class Fork(torch_common.Workload):
    """Workers are forked after CUDA has been initialised."""

    METHOD = "fork"

    def build(self):
        on_gpu = self.device.type == "cuda"
        self.model = torch_common.resnet(18).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.loader = torch.utils.data.DataLoader(
            Pictures(), batch_size=BATCH if on_gpu else 2, num_workers=WORKERS, multiprocessing_context=self.METHOD, pin_memory=on_gpu,
            prefetch_factor=4)
        self.batches = iter(self.loader)

    def step(self):
        images, labels = (tensor.to(self.device, non_blocking=True) for tensor in next(self.batches))
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(images.float() / 255), labels)
        loss.backward()
        self.optimizer.step()

    def close(self):
        # Ends the workers.
        del self.batches


class Spawn(Fork):
    """Workers are started anew and import PyTorch under the hook."""

    METHOD = "spawn"

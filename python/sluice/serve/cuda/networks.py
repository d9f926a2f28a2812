"""Loads networks from torchvision, TorchScript and torch.export, ready for inference on the GPU."""

from __future__ import annotations

import torch
import torch.fx

from sluice.serve.config import Model

PRECISIONS = {"FP16": torch.float16, "FP32": torch.float32}


@torch.no_grad()
def settle(network: torch.nn.Module, shape: tuple[int, ...]) -> None:
    """Sets the statistics of batch normalisation from random images. With those of a new network the values of a deep one exceed FP16."""
    norms = [module for module in network.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    network(torch.randn(8, *shape, device=next(network.parameters()).device))
    for norm, momentum in zip(norms, before):
        norm.momentum = momentum


def load(model: Model) -> torch.nn.Module:
    """The network of a model: a `torch.fx.GraphModule`, or a `torch.jit.ScriptModule`, which cannot be cut into pieces.

    Its precision is the input's. A torchvision network has random weights, the same at each start.
    """
    kind, what = model.source
    precision = PRECISIONS.get(model.input.dtype)
    if kind == "torchscript":
        network = torch.jit.load(what, map_location="cuda").eval()
        return network.to(precision) if precision else network
    if kind == "export":
        from torch.export.passes import move_to_device_pass

        return move_to_device_pass(torch.export.load(what), "cuda").module()
    import torchvision

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = torchvision.models.get_model(what, weights=None).cuda()
        settle(network, model.input.shape)
    network = network.eval().to(precision or torch.float32)
    if len(model.input.shape) == 3:
        network = network.to(memory_format=torch.channels_last)
    return torch.fx.symbolic_trace(network)

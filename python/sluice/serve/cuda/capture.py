"""Captures a network as a sequence of CUDA graphs, its pieces. They share one pool of memory and run in order."""

from __future__ import annotations

import collections
from collections.abc import Callable

import torch
import torch.fx


def runner(network: torch.nn.Module, images: torch.Tensor) -> Callable[[int, Callable[[], None]], torch.Tensor]:
    """A function that runs the network in so many parts and calls another function between two of them."""
    if isinstance(network, torch.jit.ScriptModule):
        return lambda parts, cut: first(network(images))
    nodes, last = list(network.graph.nodes), {}
    for node in nodes:
        for used in node.all_input_nodes:
            last[used] = node
    dead = collections.defaultdict(list)
    for used, node in last.items():
        dead[node].append(used)
    interpreter = torch.fx.Interpreter(network)

    def run(parts: int, cut: Callable[[], None]) -> torch.Tensor:
        cuts = {int(len(nodes) * part / parts) for part in range(1, parts)}
        values: dict = {}
        for index, node in enumerate(nodes):
            if node.op == "placeholder":
                values[node] = images
                continue
            arguments = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "output":
                return first(arguments[0][0])
            values[node] = getattr(interpreter, node.op)(node.target, *arguments)
            for used in dead[node]:
                del values[used]
            if index in cuts:
                cut()
        raise AssertionError("a graph has an output")

    return run


def first(answer: object) -> torch.Tensor:
    """The first tensor of an answer."""
    while isinstance(answer, (tuple, list)):
        answer = answer[0]
    if not isinstance(answer, torch.Tensor):
        raise TypeError(f"the model answers {type(answer).__name__}, expected a tensor")
    return answer


def capture(network: torch.nn.Module, images: torch.Tensor, stream: torch.cuda.Stream, parts: int) -> tuple[list[torch.cuda.CUDAGraph], torch.Tensor]:
    """The graphs of about `parts` pieces, and the tensor in which the answer lies after the last one."""
    graphs: list[torch.cuda.CUDAGraph] = []

    def given() -> torch.Tensor:
        return images.to(memory_format=torch.channels_last) if images.dim() == 4 else images

    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(2):
            # Chooses the kernels and allocates their workspaces, which a capture cannot.
            runner(network, given())(1, lambda: None)
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()

        def begin() -> None:
            graphs.append(torch.cuda.CUDAGraph(keep_graph=True))
            graphs[-1].capture_begin(pool=pool, capture_error_mode="thread_local")

        def cut() -> None:
            graphs[-1].capture_end()
            begin()

        begin()
        try:
            answer = runner(network, given())(parts, cut).contiguous()
        finally:
            # An open capture would leave the stream unusable.
            graphs[-1].capture_end()
        torch.cuda.synchronize()
    return graphs, answer

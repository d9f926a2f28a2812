"""What the executor needs of a GPU. `sim.py` and `cuda/` provide it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy

from sluice.serve.config import ConfigError, Model, Tensor

# The number of a split that stands for all SMs.
WHOLE = 0


class Mark(Protocol):
    """A point in the work of a program."""

    def wait(self) -> None:
        """Returns when the GPU has passed it."""


class Program(Protocol):
    """A model at one batch size. One batch at a time runs from `begin` to `finish`, and each piece once, in order."""

    pieces: int

    def allows(self, split: int) -> bool:
        """Whether its pieces can be submitted for so many SMs. The driver refuses some kernels where a group of SMs is incomplete."""

    def begin(self, rows: list[numpy.ndarray]) -> None:
        """Copies the rows of a batch to the GPU."""

    def launch(self, piece: int, split: int) -> None:
        """Submits a piece for so many SMs, or for the whole GPU."""

    def mark(self) -> Mark:
        """A mark behind the last submitted piece."""

    def finish(self) -> numpy.ndarray:
        """Waits for the last piece. Returns the answer, which the next batch does not overwrite."""


class Backend(Protocol):
    """A GPU and the programs on it."""

    # The numbers of SMs that some best-effort program can be limited to, ascending.
    splits: tuple[int, ...]

    def prepare(self, model: Model) -> tuple[dict[int, Program], Tensor]:
        """The model's programs by batch size, and its output. Raises `ConfigError` if the model cannot be served."""

    def use_here(self) -> None:
        """Prepares the calling thread."""


def output_of(name: str, dtype: str, shapes: Mapping[int, tuple[int, ...]]) -> Tensor:
    """The output of a model whose answers have these shapes by batch size. Raises `ConfigError` unless each has one row for each row of the batch."""
    row = next(iter(shapes.values()))[1:]
    wrong = [f"model {name}: the output for a batch of {size} has shape {list(shape)}, expected {[size, *row]}" for size, shape in shapes.items() if shape != (size, *row)]
    if wrong:
        raise ConfigError(wrong)
    return Tensor("output", dtype, row)

"""`models.yaml`: which models a server has, and how they share the GPU. All mistakes of a file are reported at once."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any, Optional, Union

import yaml

from sluice.serve.tensors import DTYPES

REAL_TIME, BEST_EFFORT = "real-time", "best-effort"
CLASSES = (REAL_TIME, BEST_EFFORT)
SOURCES = ("torchvision", "torchscript", "export", "sim")
PAUSE, PRIORITIES, PROFILE = "pause", "priorities", "profile"
# Of a request, for what is not its tensor.
HEAD_BYTES = 64 << 10


class ConfigError(ValueError):
    """What is wrong in a configuration, one line a mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


@dataclasses.dataclass(frozen=True)
class Tensor:
    """The input of a model. The first dimension, the batch, is not in `shape`."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Model:
    """One model. Batches have one of the sizes `batches`; smaller ones are padded. `delay_s`: how long a best-effort request waits for others."""

    name: str
    klass: str
    source: tuple[str, Any]
    input: Tensor
    batches: tuple[int, ...] = (1,)
    delay_s: float = 0.0

    @property
    def max_batch(self) -> int:
        """The most rows in one batch."""
        return self.batches[-1]

    @property
    def max_bytes(self) -> int:
        """The size of the input of so many rows."""
        return self.max_batch * math.prod(self.input.shape) * DTYPES[self.input.dtype].itemsize


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole file. `split`: the SMs of best-effort work while real-time work runs, or `pause`, `priorities`, or `profile`: as measured at the start.
    `bound`: by what part of its time alone best-effort work may then slow the slowest real-time requests."""

    models: tuple[Model, ...]
    split: Union[int, str] = PROFILE
    bound: float = 0.1
    queue: int = 256
    max_body_mib: int = 64


class Fields:
    """The entries of a mapping, taken one by one. A mistake is noted and the default is returned, so that all are found."""

    def __init__(self, mapping: Any, where: str, mistakes: list[str]) -> None:
        self.where, self.mistakes = where, mistakes
        self.left = dict(mapping) if isinstance(mapping, dict) else {}
        if not isinstance(mapping, dict):
            self.wrong("", f"is {mapping!r}, expected a mapping")

    def wrong(self, key: str, what: str) -> None:
        """Notes a mistake."""
        self.mistakes.append(f"{self.where}{'.' if self.where and key else ''}{key} {what}")

    def take(self, key: str, default: Any, expected: str, good: Any) -> Any:
        """The value of `key` if `good` accepts it. Without a default the key is required."""
        if key not in self.left:
            if default is None:
                self.wrong(key, f"is missing, expected {expected}")
            return default
        value = self.left.pop(key)
        if good(value):
            return value
        self.wrong(key, f"is {value!r}, expected {expected}")
        return default

    def end(self) -> None:
        """Notes the keys that were not taken."""
        for key in self.left:
            self.wrong(str(key), "is unknown")


def is_int(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "/" not in value and len(value) <= 200


def is_ints(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_int, value))


def source_of(value: Any, where: str, mistakes: list[str]) -> Optional[tuple[str, Any]]:
    """The kind of a source and its value."""
    if not (isinstance(value, dict) and len(value) == 1 and next(iter(value)) in SOURCES):
        mistakes.append(f"{where}.source is {value!r}, expected one of {', '.join(SOURCES)} with its value")
        return None
    kind, what = next(iter(value.items()))
    if kind != "sim":
        if not (isinstance(what, str) and what):
            mistakes.append(f"{where}.source.{kind} is {what!r}, expected a {'name' if kind == 'torchvision' else 'file'}")
        return kind, what
    fields = Fields(what, f"{where}.source.sim", mistakes)
    sim = {"kernels": fields.take("kernels", 10, "an integer of at least 1", is_int), "us": fields.take("us", 100, "microseconds", is_number)}
    fields.end()
    return kind, sim


def model_of(value: Any, where: str, mistakes: list[str]) -> Optional[Model]:
    """One entry of `models`."""
    before = len(mistakes)
    fields = Fields(value, where, mistakes)
    name = fields.take("name", None, "a name without /", is_name)
    klass = fields.take("class", None, " or ".join(CLASSES), lambda value: value in CLASSES)
    source = source_of(fields.left.pop("source", None), where, mistakes)
    batches = fields.take("batches", [1], "a list of integers", is_ints)
    inner = Fields(fields.left.pop("input", None), f"{where}.input", mistakes)
    tensor = Tensor(
        inner.take("name", "input", "a name", is_name), inner.take("dtype", "FP32", f"one of {', '.join(DTYPES)}", lambda value: isinstance(value, str) and value in DTYPES),
        tuple(inner.take("shape", None, "a list of integers without the batch", is_ints) or ()))
    inner.end()
    delay = fields.take("delay_ms", 0.0, "milliseconds", is_number)
    if klass == REAL_TIME and delay:
        fields.wrong("delay_ms", "is for best-effort models: a real-time request is not delayed")
    fields.end()
    if len(mistakes) > before or source is None:
        return None
    return Model(name, klass, source, tensor, tuple(sorted(set(batches))), delay / 1000)


def parse(text: str) -> Config:
    """A configuration from YAML. Raises `ConfigError` with all mistakes."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError([f"not YAML: {error}"]) from None
    mistakes: list[str] = []
    fields = Fields(document, "", mistakes)
    listed = fields.take("models", None, "a list of models", lambda value: isinstance(value, list) and bool(value)) or []
    models = [model_of(each, f"models[{index}]", mistakes) for index, each in enumerate(listed)]
    names = [model.name for model in models if model]
    mistakes += [f"models: two are named {name!r}" for name in sorted({name for name in names if names.count(name) > 1})]
    if len({model.source[0] == "sim" for model in models if model}) > 1:
        mistakes.append("models: simulated and real models cannot be mixed")
    split = fields.take("split", PROFILE, f"a number of SMs, {PAUSE}, {PRIORITIES} or {PROFILE}", lambda value: is_int(value) or value in (PAUSE, PRIORITIES, PROFILE))
    config = Config(
        tuple(model for model in models if model), split, fields.take("bound", 0.1, "a number", is_number),
        fields.take("queue", 256, "an integer of at least 1", is_int), fields.take("max_body_mib", 64, "an integer of at least 1", is_int))
    fields.end()
    for model in config.models:
        if model.max_bytes + HEAD_BYTES > config.max_body_mib << 20:
            mistakes.append(f"max_body_mib is {config.max_body_mib}, but a request of {model.max_batch} rows to model {model.name!r} has {model.max_bytes} bytes")
    if mistakes:
        raise ConfigError(mistakes)
    return config


def load(path: pathlib.Path) -> Config:
    """The configuration in a file."""
    try:
        return parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {error}"]) from None

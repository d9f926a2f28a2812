"""The scheduler's configuration file."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Union

LEVELS = ("device", "host", "none")


class ConfigError(ValueError):
    """A configuration file with mistakes; the message names all of them."""


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings of a scheduler, all optional in the YAML file.

    >>> Config.from_text("hint_us: 500")
    Config(hint_us=500, preemption='device', longest_stop_ms=1000)
    >>> Config.from_text("{hint_us: soon, colour: red}", "gpu.yaml")
    Traceback (most recent call last):
    sluice._config.ConfigError: gpu.yaml: hint_us is 'soon', expected a whole number from 0 to 1000000; unknown key 'colour'
    """

    #: Time from the begin of a latency-critical task to its GPU work, as announced to the pod-manager, in microseconds; 0: no announcement.
    hint_us: int = 300
    #: The point at which a preempted best-effort stream stops: `device` after the running kernel, `host` after all submitted
    #: kernels. `none`: only stream priorities. A level that the GPU lacks falls back to the next.
    preemption: str = "device"
    #: Time after which a stopped best-effort stream continues although latency-critical work is not over, in milliseconds; 0: never.
    longest_stop_ms: int = 1000

    def __post_init__(self) -> None:
        mistakes = [mistake for key, value in dataclasses.asdict(self).items() for mistake in _mistakes(key, value)]
        if mistakes:
            raise ConfigError("; ".join(mistakes))

    @classmethod
    def from_file(cls, path: Union[str, os.PathLike[str]]) -> Config:
        """Reads a YAML file. Raises `ConfigError` with all its mistakes, and `OSError` if it cannot be read."""
        with open(path, encoding="utf-8") as file:
            return cls.from_text(file.read(), str(path))

    @classmethod
    def from_text(cls, text: str, name: str = "configuration") -> Config:
        """Reads YAML; `name` stands in front of the mistakes."""
        import yaml

        try:
            given = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{name}: {error}") from None
        given = {} if given is None else given
        if not isinstance(given, dict):
            raise ConfigError(f"{name}: expected a mapping, found {type(given).__name__}")
        mistakes = [mistake for key, value in given.items() for mistake in _mistakes(key, value)]
        if mistakes:
            raise ConfigError(f"{name}: {'; '.join(mistakes)}")
        return cls(**given)


def _mistakes(key: Any, value: Any) -> list[str]:
    highest = {"hint_us": 1_000_000, "longest_stop_ms": 3_600_000}
    if key in highest:
        right = type(value) is int and 0 <= value <= highest[key]
        return [] if right else [f"{key} is {value!r}, expected a whole number from 0 to {highest[key]}"]
    if key == "preemption":
        return [] if value in LEVELS else [f"{key} is {value!r}, expected {', '.join(LEVELS)}"]
    return [f"unknown key {key!r}"]

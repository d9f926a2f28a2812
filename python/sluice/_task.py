"""Tasks: functions with a class."""

from __future__ import annotations

import enum
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Generic, Optional, TypeVar

R = TypeVar("R")


class Priority(enum.IntEnum):
    """Priorities within a class. Any 32-bit number will do; a greater one starts first."""

    LOW = -1
    NORMAL = 0
    HIGH = 1


class Task(Generic[R]):
    """A function with its class. A plain call runs it at once, in the calling thread; `GPUScheduler.submit` schedules it."""

    def __init__(self, function: Callable[..., R], critical: bool, priority: int, slo_ms: Optional[float]) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r} is a coroutine function; a task is a plain one, and asubmit awaits its result")
        if not -(2**31) <= priority < 2**31:
            raise ValueError(f"priority is {priority!r}, expected a 32-bit number")
        if slo_ms is not None and not (math.isfinite(slo_ms) and 0 < slo_ms <= 1e9):
            raise ValueError(f"slo_ms is {slo_ms!r}, expected a positive number of milliseconds, at most 1e9")
        #: The name in `GPUScheduler.get_metrics`.
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.critical, self.priority = critical, int(priority)
        self.slo_ns = None if slo_ms is None else int(slo_ms * 1e6)
        self._function = function
        # Without the function's own attributes: those of a task would replace these.
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *arguments: Any, **keywords: Any) -> R:
        return self._function(*arguments, **keywords)

"""Latency-critical and best-effort GPU tasks in one process.

>>> import sluice
>>> with sluice.GPUScheduler() as scheduler:
...     @scheduler.latency_critical(priority=sluice.Priority.HIGH, slo_ms=10)
...     def answer(question):
...         return len(question)
...     scheduler.submit(answer, "how long?").result(timeout=10)
9

`GPUScheduler` runs each task on a stream of its class and preempts best-effort work while latency-critical work waits or runs.
`current_stream` is the stream of the running task. `hint` and `request` tell the pod-manager about requests; they need no scheduler.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice._config import Config, ConfigError
    from sluice._driver import CudaError
    from sluice._hook import Result, hint, request
    from sluice._scheduler import GPUScheduler, Priority, Task
    from sluice._streams import current_stream

__all__ = [
    "Config", "ConfigError", "CudaError", "GPUScheduler", "Priority", "Result", "Task", "current_stream", "hint", "request",
]

# Where each name is. Loaded at first use, so that `sluice.serve` runs where the compiled module is not built.
_MODULES = {
    "Config": "_config", "ConfigError": "_config", "CudaError": "_driver", "Result": "_hook", "hint": "_hook", "request": "_hook",
    "GPUScheduler": "_scheduler", "Priority": "_scheduler", "Task": "_scheduler", "current_stream": "_streams",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sluice' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sluice.{_MODULES[name]}"), name)

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

from sluice._config import Config, ConfigError
from sluice._driver import CudaError
from sluice._hook import Result, hint, request
from sluice._scheduler import GPUScheduler
from sluice._streams import current_stream
from sluice._task import Priority, Task

__all__ = [
    "Config", "ConfigError", "CudaError", "GPUScheduler", "Priority", "Result", "Task", "current_stream", "hint", "request",
]

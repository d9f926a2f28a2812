"""The scheduler of one process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import enum
import functools
import inspect
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Optional, TypeVar, Union

from sluice import _hook
from sluice._config import Config
from sluice._driver import open_gpu
from sluice._hook import Result
from sluice._native import TaskQueue
from sluice._streams import ClassStream

log = logging.getLogger("sluice")
R = TypeVar("R")

_open: weakref.WeakSet[GPUScheduler] = weakref.WeakSet()
_said: set[str] = set()


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
        if slo_ms is not None and not (math.isfinite(slo_ms) and slo_ms > 0):
            raise ValueError(f"slo_ms is {slo_ms!r}, expected a positive number of milliseconds")
        self.name: str = getattr(function, "__qualname__", repr(function))
        self.critical, self.priority, self.slo_ms = critical, int(priority), slo_ms
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **keywords: Any) -> R:
        return self._function(*arguments, **keywords)


@dataclasses.dataclass
class _Call:
    number: int
    run: Callable[[], Any]
    future: Future[Any]


class GPUScheduler:
    """Runs latency-critical and best-effort tasks of one process on one GPU.

    Each class has a thread and a CUDA stream, and runs one task at a time. Tasks start in the order of class, then priority, then
    submission. No best-effort task starts while a latency-critical one waits or runs; the one that runs is preempted meanwhile, if
    libsluice.so is loaded. A future is resolved when the GPU has finished the task's work on its stream.

    `config_file` is a YAML file with the keys of `Config`; `gpu_id` counts as CUDA does. Close the scheduler, or use it as a context
    manager: at the end of `with` all submitted tasks have ended.
    """

    def __init__(self, config_file: Union[str, os.PathLike[str], None] = None, gpu_id: int = 0) -> None:
        self._config = Config() if config_file is None else Config.from_file(config_file)
        self._gpu, why = open_gpu(gpu_id)
        self._hook = _hook.find() if self._gpu else None
        self._streams: dict[bool, ClassStream] = {}
        self._level: Optional[str] = None
        self._hinted = Result.NOT_MANAGED
        self._mode, self._reason = ("unprioritised", why) if self._gpu is None else self._open_streams()
        if self._reason is not None and self._reason not in _said:
            _said.add(self._reason)
            log.warning("tasks run %s: %s", MEANING[self._mode], self._reason)
        # Guards all below; also held while the best-effort stream is stopped or restored, so that the last of both applies.
        self._changed = threading.Condition()
        self._queue = TaskQueue(time.monotonic_ns())
        self._waiting: dict[int, _Call] = {}
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(critical,), name=f"sluice-{name}", daemon=True)
            for name, critical in (("latency-critical", True), ("best-effort", False))
        ]
        for thread in self._threads:
            thread.start()
        _open.add(self)

    def latency_critical(self, *, priority: int = Priority.NORMAL, slo_ms: Optional[float] = None) -> Callable[[Callable[..., R]], Task[R]]:
        """Makes a function a latency-critical task. `slo_ms` is the longest latency, from submission to end, that is no violation."""
        return lambda function: Task(function, True, priority, slo_ms)

    def best_effort(self, *, priority: int = Priority.NORMAL) -> Callable[[Callable[..., R]], Task[R]]:
        """Makes a function a best-effort task."""
        return lambda function: Task(function, False, priority, None)

    def submit(self, task: Task[R], /, *arguments: Any, args: Sequence[Any] = (), **keywords: Any) -> Future[R]:
        """Submits a task with its arguments; `submit(task, x)` and `submit(task, args=(x,))` are the same.

        The future's `cancel` succeeds until the task starts. Raises `RuntimeError` after `close`.
        """
        if not isinstance(task, Task):
            raise TypeError(f"{task!r} is not a task: decorate it with latency_critical or best_effort")
        future: Future[R] = Future()
        slo_ns = None if task.slo_ms is None else int(task.slo_ms * 1e6)
        with self._changed:
            if self._closed:
                raise RuntimeError("the scheduler is closed")
            number = self._queue.submit(task.name, task.critical, task.priority, slo_ns, time.monotonic_ns())
            self._waiting[number] = _Call(number, functools.partial(task, *arguments, *args, **keywords), future)
            self._update_stream()
            self._changed.notify_all()
        future.add_done_callback(lambda done: self._cancel(number) if done.cancelled() else None)
        return future

    async def asubmit(self, task: Task[R], /, *arguments: Any, args: Sequence[Any] = (), **keywords: Any) -> R:
        """Submits a task and awaits its result. Cancelling the awaiting coroutine cancels the task until it starts."""
        return await asyncio.wrap_future(self.submit(task, *arguments, args=args, **keywords))

    def get_metrics(self) -> dict[str, Any]:
        """The figures since the scheduler began.

        * `mode`: `preemptive`; `priorities` (of streams alone: no libsluice.so); `unprioritised` (no GPU). `reason` says why.
        * `preemptions` of the best-effort stream, and the `preemption_level` of the last: `device` or `host`.
        * `hint`: the result of the last announcement to the pod-manager, such as `OK` or `NOT_CRITICAL`.
        * `utilisation`: the part of the time, 0 to 1, in which a task ran. `slo_violations`: the sum over all tasks.
        * `tasks`: by function name `class`, `count`, `failed`, `cancelled`, `slo_violations`, and `p50_us`, `p99_us` of the last
          4,096 latencies from submission to end.
        """
        own = {"mode": self._mode, "reason": self._reason, "preemption_level": self._level, "hint": self._hinted.name}
        return {**own, **self._queue.metrics(time.monotonic_ns())}

    def hint(self, lead_us: int = 300) -> Result:
        """Announces a request to the pod-manager, as `sluice.hint`, from any thread. Latency-critical tasks do so by themselves."""
        return self._told(lambda hook: hook.hint(lead_us))

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Marks a request that waits for the GPU several times, as `sluice.request`, in any thread."""
        self._told(lambda hook: hook.request_begin())
        try:
            yield
        finally:
            self._told(lambda hook: hook.request_end())

    def close(self, *, cancel_waiting: bool = False) -> None:
        """Waits until all tasks have ended, then ends threads and streams. `cancel_waiting` cancels those that have not started."""
        if threading.current_thread() in self._threads:
            raise RuntimeError("a task cannot close its scheduler")
        with self._changed:
            self._closed = True
            dropped = list(self._waiting.values()) if cancel_waiting else []
            self._changed.notify_all()
        for call in dropped:
            call.future.cancel()
        for thread in self._threads:
            thread.join()
        with self._changed:
            streams, self._streams = self._streams, {}
            gpu, self._gpu = self._gpu, None
        if self._mode == "preemptive" and streams:
            self._hook.disable(streams[False].handle)
        for stream in streams.values():
            stream.close()
        if gpu is not None:
            gpu.close()

    def __enter__(self) -> GPUScheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_streams(self) -> tuple[str, Optional[str]]:
        """Creates both streams. Returns the mode and, unless it is the best, the reason."""
        self._streams = {critical: ClassStream(self._gpu, urgent=critical) for critical in (True, False)}
        if self._hook is None:
            return "priorities", "libsluice.so is not loaded"
        if self._config.preemption == "none":
            return "priorities", "preemption is none in the configuration"
        with self._gpu.current():
            result = self._hook.enable(self._streams[False].handle, self._config.preemption, self._config.longest_stop_ms)
        return ("preemptive", None) if result == Result.OK else ("priorities", f"preemption cannot be enabled: {result.name}")

    def _told(self, call: Callable[[_hook.Hook], Result]) -> Result:
        """The result of a call to the hook with the GPU's context current."""
        hook, gpu = self._hook, self._gpu
        if hook is None or gpu is None:
            return Result.NOT_MANAGED
        with gpu.current():
            self._hinted = call(hook)
        return self._hinted

    def _update_stream(self) -> None:
        """Stops or restores the best-effort stream as the queue requires. The lock is held."""
        if self._mode != "preemptive":
            return
        action, stream = self._queue.stream_action(), self._streams[False].handle
        if action == "preempt":
            result, level = self._hook.preempt(stream)
            if result == Result.OK:
                self._level = level
            else:
                self._queue.preemption_failed()
        elif action == "restore":
            self._hook.restore(stream)

    def _cancel(self, number: int) -> None:
        with self._changed:
            if self._queue.cancel(number):
                del self._waiting[number]
                self._update_stream()
                self._changed.notify_all()

    def _work(self, critical: bool) -> None:
        """The body of the thread of a class."""
        with self._gpu.current() if self._gpu else contextlib.nullcontext():
            while (call := self._next(critical)) is not None:
                self._run(call, critical)
                # The result belongs to the future's owner alone.
                del call

    def _next(self, critical: bool) -> Optional[_Call]:
        """The next task of a class, once it may start; `None` when the scheduler is closed and no task waits."""
        with self._changed:
            while (number := self._queue.start(critical, time.monotonic_ns())) is None:
                if self._closed and not self._waiting:
                    return None
                self._changed.wait()
            return self._waiting.pop(number)

    def _run(self, call: _Call, critical: bool) -> None:
        if not call.future.set_running_or_notify_cancel():
            self._finish(call, cancelled=True)
            return
        # The best-effort stream continues, and the figures are complete, before the caller learns of the end.
        try:
            if critical and self._config.hint_us:
                self.hint(self._config.hint_us)
            result = _run_on_stream(call.run, self._streams.get(critical))
        except BaseException as error:  # noqa: BLE001: the future carries it, as those of concurrent.futures do.
            self._finish(call, failed=True)
            call.future.set_exception(error)
            # The error's traceback has this frame: it would keep the future, which keeps the error.
            del call
        else:
            self._finish(call)
            call.future.set_result(result)

    def _finish(self, call: _Call, *, failed: bool = False, cancelled: bool = False) -> None:
        with self._changed:
            self._queue.finish(call.number, time.monotonic_ns(), failed=failed, cancelled=cancelled)
            self._update_stream()
            self._changed.notify_all()


def _run_on_stream(run: Callable[[], R], stream: Optional[ClassStream]) -> R:
    """Runs a task and waits for its GPU work, also after an error: the next task needs an empty stream."""
    if stream is None:
        return run()
    with stream.current():
        try:
            return run()
        finally:
            stream.synchronize()


MEANING = {"priorities": "with stream priorities alone", "unprioritised": "on the host, in the order of their class"}


@atexit.register
def _close_all() -> None:
    """Lets running tasks end before the interpreter does."""
    for scheduler in list(_open):
        scheduler.close(cancel_waiting=True)

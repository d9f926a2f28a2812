"""The scheduler of one process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Optional, TypeVar, Union

from sluice._backend import Backend
from sluice._call import FORKED, Call, without_stop_iteration
from sluice._config import Config
from sluice._hook import Result
from sluice._task import Priority, Task

R = TypeVar("R")
_open: weakref.WeakSet[GPUScheduler] = weakref.WeakSet()


class GPUScheduler:
    """Runs latency-critical and best-effort tasks of one process on one GPU.

    Each class has a thread and a CUDA stream, and runs one task at a time. Tasks start in the order of class, then priority, then
    submission. No best-effort task starts while a latency-critical one waits or runs; the one that runs is preempted meanwhile, if
    libsluice.so is loaded. A future is resolved when the GPU has finished the task's work on its stream.

    `config_file` is a YAML file with the keys of `Config`, or a `Config`; `gpu_id` counts as CUDA does. Close the scheduler, or use it as a context
    manager: at the end of `with` all submitted tasks have ended.
    """

    def __init__(self, config_file: Union[str, os.PathLike[str], Config, None] = None, gpu_id: int = 0) -> None:
        # Imported here, so that the rest of the package, such as `sluice.serve`, also runs from a source folder where nothing is compiled.
        from sluice._native import TaskQueue

        config = Config() if config_file is None else config_file
        self._backend = Backend(config if isinstance(config, Config) else Config.from_file(config), gpu_id)
        # Guards all below. It is also held while the best-effort stream is stopped or restored, so that the last of both applies.
        self._changed = threading.Condition()
        self._queue = TaskQueue(time.monotonic_ns())
        self._waiting: dict[int, Call] = {}
        #: The task of each class that runs, or whose future is being resolved.
        self._running: dict[bool, Call] = {}
        self._closed = False
        self._pid = os.getpid()
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

        The future's `cancel` succeeds until the task starts. Raises `RuntimeError` after `close`, and in a forked process.
        """
        if not isinstance(task, Task):
            raise TypeError(f"{task!r} is not a task: decorate it with latency_critical or best_effort")
        future: Future[R] = Future()
        with self._changed:
            if self._is_forked:
                raise RuntimeError(FORKED % self._pid)
            if self._closed:
                raise RuntimeError("the scheduler is closed")
            number = self._queue.submit(task.name, task.critical, task.priority, task.slo_ns, time.monotonic_ns())
            self._waiting[number] = Call(number, functools.partial(task, *arguments, *args, **keywords), future)
            self._update_stream()
            self._changed.notify_all()
        future.add_done_callback(lambda done: self._cancel(number) if done.cancelled() else None)
        return future

    async def asubmit(self, task: Task[R], /, *arguments: Any, args: Sequence[Any] = (), **keywords: Any) -> R:
        """Submits a task and awaits its result. Cancelling the awaiting coroutine cancels the task until it starts."""
        return await asyncio.wrap_future(self.submit(without_stop_iteration(task), *arguments, args=args, **keywords))

    def get_metrics(self) -> dict[str, Any]:
        """The figures since the scheduler began.

        * `mode`: `preemptive`; `priorities` (of streams alone: no libsluice.so); `unprioritised` (no GPU). `reason` says why.
        * `preemptions` of the best-effort stream, and the `preemption_level` of the last: `device` or `host`.
        * `hint`: the result of the last announcement to the pod-manager, such as `OK` or `NOT_CRITICAL`.
        * `utilisation`: the part of the time, 0 to 1, in which a task ran. `slo_violations`: the sum over all tasks.
        * `tasks`: by function name `class`, `count`, `failed`, `cancelled`, `slo_violations`, and `p50_us`, `p99_us` of the last
          4,096 latencies from submission to end.
        """
        return {**self._backend.metrics(), **self._queue.metrics(time.monotonic_ns())}

    def hint(self, lead_us: int = 300) -> Result:
        """Announces a request to the pod-manager, as `sluice.hint`, from any thread. Latency-critical tasks do so by themselves."""
        return self._backend.tell(lambda hook: hook.hint(lead_us))

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Marks a request that waits for the GPU several times, as `sluice.request`, in any thread."""
        self._backend.tell(lambda hook: hook.request_begin())
        try:
            yield
        finally:
            self._backend.tell(lambda hook: hook.request_end())

    def close(self, *, cancel_waiting: bool = False) -> None:
        """Waits until all tasks have ended, then ends threads and streams. `cancel_waiting` cancels those that have not started."""
        if threading.current_thread() in self._threads:
            raise RuntimeError("a task cannot close its scheduler")
        if self._is_forked:
            # Threads and streams are the parent's.
            return
        with self._changed:
            is_first, self._closed = not self._closed, True
            dropped = list(self._waiting.values()) if cancel_waiting else []
            self._changed.notify_all()
        for call in dropped:
            call.future.cancel()
        for thread in self._threads:
            thread.join()
        if is_first:
            self._backend.close()

    def __enter__(self) -> GPUScheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _update_stream(self) -> None:
        """Stops or restores the best-effort stream as the queue requires. The lock is held."""
        if self._backend.mode != "preemptive" or self._is_forked:
            return
        action = self._queue.stream_action()
        if action == "preempt" and not self._backend.preempt():
            self._queue.preemption_failed()
        elif action == "restore":
            self._backend.restore()

    def _cancel(self, number: int) -> None:
        with self._changed:
            if self._queue.cancel(number):
                del self._waiting[number]
                self._update_stream()
                self._changed.notify_all()

    def _work(self, critical: bool) -> None:
        """The body of the thread of a class."""
        with self._backend.current():
            while (call := self._next(critical)) is not None:
                self._run(call, critical)
                # The result belongs to the future's owner alone.
                del call

    def _next(self, critical: bool) -> Optional[Call]:
        """The next task of a class, once it may start; `None` when the scheduler is closed and no task waits, and in a forked process."""
        with self._changed:
            # A task has forked, and its thread is the only one here. The queue has the parent's tasks.
            if self._is_forked:
                return None
            while (number := self._queue.start(critical, time.monotonic_ns())) is None:
                if self._closed and not self._waiting:
                    return None
                self._changed.wait()
            call = self._running[critical] = self._waiting.pop(number)
            return call

    def _run(self, call: Call, critical: bool) -> None:
        if not call.future.set_running_or_notify_cancel():
            self._finish(call, critical, cancelled=True)
            self._forget(call, critical)
            return
        # The best-effort stream continues, and the figures are complete, before the caller learns of the end.
        try:
            result = self._backend.run(critical, call.run)
        except BaseException as error:  # noqa: BLE001: the future carries it, as those of concurrent.futures do.
            self._finish(call, critical, failed=True)
            call.resolve(error=error)
            self._forget(call, critical)
            # The error's traceback has this frame: it would keep the future, which keeps the error.
            del call
        else:
            self._finish(call, critical)
            call.resolve(result)
            self._forget(call, critical)

    def _finish(self, call: Call, critical: bool, *, failed: bool = False, cancelled: bool = False) -> None:
        with self._changed:
            self._queue.finish(call.number, time.monotonic_ns(), failed=failed, cancelled=cancelled)
            self._update_stream()
            self._changed.notify_all()

    def _forget(self, call: Call, critical: bool) -> None:
        """Removes a task whose future is resolved. Not before: a process that is forked meanwhile must find the future."""
        with self._changed:
            if self._running.get(critical) is call:
                del self._running[critical]

    @property
    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    def _leave_to_parent(self) -> None:
        """In a forked process, where neither thread exists: ends the unresolved futures with an error, without their callbacks."""
        # Another thread may have held the old locks, also those of the futures, which nothing releases here.
        self._changed = threading.Condition()
        self._closed, self._threads = True, []
        for call in (*self._waiting.values(), *self._running.values()):
            call.abandon(RuntimeError(FORKED % self._pid))
        self._waiting, self._running = {}, {}


@atexit.register
def _close_all() -> None:
    """Lets running tasks end before the interpreter does."""
    for scheduler in list(_open):
        scheduler.close(cancel_waiting=True)


def _after_fork() -> None:
    for scheduler in list(_open):
        scheduler._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)

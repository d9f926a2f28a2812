"""The functions of `sluice.h`, if libsluice.so is loaded into this process."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import threading
from collections.abc import Iterator
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any, Optional


class Result(enum.IntEnum):
    """The result of a call, as `enum sluice_result` of [sluice.h](../../hook/include/sluice.h) describes it."""

    OK = 0
    INVALID = 1
    NOT_MANAGED = 2
    NOT_CRITICAL = 3
    ALONE = 4
    RUNNING = 5
    BEGUN = 6
    NO_CONTEXT = 7
    CAPTURING = 8
    PREPARING = 9
    UNSUPPORTED = 10
    DISABLED = 11
    INTERNAL = 12
    TIMEOUT = 13
    CONTEXT_SAVE_FAILED = 14
    INSUFFICIENT_MEMORY = 15
    GPU_HUNG = 16
    INVALID_STATE = 17
    NOT_ENABLED = 18
    ALREADY_ENABLED = 19
    INVALID_STREAM = 20

    @classmethod
    def _missing_(cls, value: object) -> Result:
        """Numbers of a later libsluice.so."""
        return cls.INTERNAL


class _PreemptionConfig(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("queue_size", c_uint), ("batch_size", c_uint), ("task_timeout_us", c_int), ("level", c_int),
        ("bound_us", c_uint), ("outage_ms", c_uint), ("idle", c_void_p), ("idle_argument", c_void_p),
    ]


class _Preemption(ctypes.Structure):
    _fields_ = [("level", c_int), ("took_ns", c_ulonglong)]


LEVELS = ("host", "device", "full")

FUNCTIONS: dict[str, list[Any]] = {
    "sluice_hint": [c_uint],
    "sluice_request_begin": [],
    "sluice_request_end": [],
    "sluice_preemption_defaults": [POINTER(_PreemptionConfig)],
    "sluice_preemption_enable": [c_void_p, POINTER(_PreemptionConfig)],
    "sluice_preemption_disable": [c_void_p],
    "sluice_preempt": [c_void_p, c_int, POINTER(_Preemption)],
    "sluice_restore": [c_void_p],
}


class Hook:
    """libsluice.so in this process. Raises `AttributeError` if it is not loaded."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None)
        for name, types in FUNCTIONS.items():
            getattr(self._c, name).argtypes = types
        # An end counts for the process: it would also end the requests of other threads.
        self._lock, self._requests, self._begun = threading.Lock(), 0, Result.OK
        # In a forked process the lock may be held by a thread that does not exist there.
        os.register_at_fork(after_in_child=self._forget_lock)

    def _forget_lock(self) -> None:
        self._lock = threading.Lock()

    def hint(self, lead_us: int) -> Result:
        return Result(self._c.sluice_hint(lead_us))

    def request_begin(self) -> Result:
        """Begins a request, or extends those of other threads."""
        with self._lock:
            self._requests += 1
            self._begun = Result(self._c.sluice_request_begin())
            return self._begun

    def request_end(self) -> Result:
        """Ends a request. While others last, nothing happens, and the result is that of the last begin."""
        with self._lock:
            self._requests -= 1
            return self._begun if self._requests else Result(self._c.sluice_request_end())

    def enable(self, stream: int, level: str, longest_stop_ms: int) -> Result:
        """Enables preemption of a stream."""
        config = _PreemptionConfig()
        self._c.sluice_preemption_defaults(byref(config))
        config.level, config.outage_ms = LEVELS.index(level), longest_stop_ms
        return Result(self._c.sluice_preemption_enable(stream, byref(config)))

    def disable(self, stream: int) -> Result:
        """Disables preemption of a stream, and restores it."""
        return Result(self._c.sluice_preemption_disable(stream))

    def preempt(self, stream: int) -> tuple[Result, Optional[str]]:
        """Stops a stream, without a wait until it stands. The second value is the level that took effect."""
        done = _Preemption()
        result = Result(self._c.sluice_preempt(stream, 0, byref(done)))
        return result, LEVELS[done.level] if result == Result.OK else None

    def restore(self, stream: int) -> Result:
        """Lets a stream continue."""
        return Result(self._c.sluice_restore(stream))


_found: Optional[Hook] = None


def find() -> Optional[Hook]:
    """libsluice.so, if it is loaded."""
    global _found
    if _found is None:
        with contextlib.suppress(AttributeError):
            _found = Hook()
    return _found


def hint(lead_us: int = 300) -> Result:
    """Announces that this process will submit a request to the GPU in about `lead_us` microseconds, at most 1,000,000.

    The calling thread needs a current CUDA context; `GPUScheduler.hint` brings its own. Without libsluice.so nothing happens:

    >>> hint(300).name
    'NOT_MANAGED'
    """
    hook = find()
    return hook.hint(lead_us) if hook else Result.NOT_MANAGED


@contextlib.contextmanager
def request() -> Iterator[None]:
    """Marks a request that waits for the GPU several times: Sluice keeps the GPU with this process until its end. If requests of several
    threads overlap, it does so until the end of the last.

    The calling thread needs a current CUDA context; `GPUScheduler.request` brings its own.

    >>> with request():
    ...     pass
    """
    hook = find()
    if hook is None:
        yield
        return
    hook.request_begin()
    try:
        yield
    finally:
        hook.request_end()

"""The stream of a class, and what makes it the current one of the libraries that a task uses."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from sluice._driver import Gpu

_local = threading.local()


def current_stream() -> int:
    """The CUstream of the running task as a number; 0 outside of tasks and without a GPU.

    PyTorch and CuPy already use it. For others: `numba.cuda.external_stream(sluice.current_stream())`.

    >>> current_stream()
    0
    """
    return getattr(_local, "stream", 0)


class ClassStream:
    """One stream of a GPU, for one thread that runs tasks."""

    def __init__(self, gpu: Gpu, *, urgent: bool) -> None:
        self._gpu = gpu
        self.handle = gpu.create_stream(urgent=urgent)
        self._of_library: dict[str, Any] = {}

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the stream current for `current_stream`, and for PyTorch and CuPy if they are imported."""
        with ExitStack() as stack:
            _local.stream = self.handle
            stack.callback(setattr, _local, "stream", 0)
            for enter in (self._torch, self._cupy):
                enter(stack)
            yield

    def synchronize(self) -> None:
        """Waits for the stream's work. Raises `CudaError`."""
        self._gpu.synchronize(self.handle)

    def close(self) -> None:
        """Destroys the stream."""
        self._gpu.destroy_stream(self.handle)

    def _torch(self, stack: ExitStack) -> None:
        cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
        if not hasattr(cuda, "ExternalStream"):
            return
        if "torch" not in self._of_library:
            self._of_library["torch"] = cuda.ExternalStream(self.handle, device=self._gpu.id) if cuda.is_available() else None
        if self._of_library["torch"] is not None:
            stack.enter_context(cuda.stream(self._of_library["torch"]))

    def _cupy(self, stack: ExitStack) -> None:
        cuda: Any = getattr(sys.modules.get("cupy"), "cuda", None)
        if not hasattr(cuda, "ExternalStream"):
            return
        stack.enter_context(cuda.Device(self._gpu.id))
        stack.enter_context(cuda.ExternalStream(self.handle, self._gpu.id))

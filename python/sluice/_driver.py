"""The few functions of the CUDA driver that the scheduler needs, by ctypes. No CUDA toolkit is needed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p

NO_DEVICE, NON_BLOCKING = 100, 1

FUNCTIONS = {
    "cuInit": [c_uint],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuDevicePrimaryCtxRelease_v2": [c_int],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuCtxGetStreamPriorityRange": [POINTER(c_int), POINTER(c_int)],
    "cuStreamCreateWithPriority": [POINTER(c_void_p), c_uint, c_int],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamDestroy_v2": [c_void_p],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
}


class CudaError(RuntimeError):
    """A call of the CUDA driver failed; `code` is the driver's number."""

    def __init__(self, function: str, code: int, name: str) -> None:
        super().__init__(f"{function}: {name} ({code})")
        self.code = code


class NoGpu(Exception):
    """There is no GPU or no driver; the message says which."""


class Gpu:
    """The primary context of a GPU, which PyTorch, CuPy and numba use too."""

    def __init__(self, gpu_id: int) -> None:
        """Raises `NoGpu` without a GPU, and `ValueError` if there are GPUs but not this one."""
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise NoGpu("no CUDA driver (libcuda.so.1)") from None
        for name, types in FUNCTIONS.items():
            getattr(self._library, name).argtypes = types
        count, device, self._context = c_int(), c_int(), c_void_p()
        try:
            self.call("cuInit", 0)
            self.call("cuDeviceGetCount", byref(count))
        except CudaError as error:
            raise NoGpu(str(error)) from None
        if count.value == 0:
            raise NoGpu("the CUDA driver has no GPU")
        if not 0 <= gpu_id < count.value:
            raise ValueError(f"gpu_id is {gpu_id}, expected 0 to {count.value - 1}")
        self.call("cuDeviceGet", byref(device), gpu_id)
        self.id, self._device = gpu_id, device.value
        self.call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)

    def call(self, function: str, *arguments: object) -> None:
        """Calls a function of the driver. Raises `CudaError`."""
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            name = c_char_p()
            self._library.cuGetErrorName(code, byref(name))
            raise CudaError(function, code, (name.value or b"unknown error").decode())

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the context current in this thread. A failure shows in the next call of the driver."""
        is_pushed = self._library.cuCtxPushCurrent_v2(self._context) == 0
        try:
            yield
        finally:
            if is_pushed:
                self._library.cuCtxPopCurrent_v2(byref(c_void_p()))

    def create_stream(self, *, urgent: bool) -> int:
        """A stream of the highest or the lowest priority, which does not wait for the default stream."""
        least, greatest, stream = c_int(), c_int(), c_void_p()
        with self.current():
            self.call("cuCtxGetStreamPriorityRange", byref(least), byref(greatest))
            priority = greatest.value if urgent else least.value
            self.call("cuStreamCreateWithPriority", byref(stream), NON_BLOCKING, priority)
        return stream.value or 0

    def synchronize(self, stream: int) -> None:
        """Waits for a stream's work."""
        self.call("cuStreamSynchronize", stream)

    def destroy_stream(self, stream: int) -> None:
        """Destroys a stream, which has to be idle. It ended with the context if that was lost to an error."""
        with self.current():
            self._library.cuStreamDestroy_v2(stream)

    def close(self) -> None:
        """Gives the context back."""
        self._library.cuDevicePrimaryCtxRelease_v2(self._device)

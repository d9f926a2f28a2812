"""The functions of the CUDA driver that the server calls itself, by ctypes: green contexts, graphs, copies and events.

Each call releases Python's lock, so that a thread that waits for the GPU does not stop the others.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

SM_RESOURCE, KERNEL_NODE, GREEN_DEFAULT_STREAM = 1, 0, 1
NO_TIMING, BLOCKING_WAIT = 2, 1


class DriverError(RuntimeError):
    """A call of the driver failed. The GPU may have stopped working for this process."""

    fatal = True


class DevResource(ctypes.Structure):
    """CUdevResource: an amount of SMs."""

    _fields_ = [("type", c_int), ("private", ctypes.c_ubyte * 92), ("count", c_uint), ("smallest", c_uint), ("alignment", c_uint), ("rest", ctypes.c_ubyte * 36)]


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("func", c_void_p), ("dimensions", c_uint * 7), ("params", c_void_p), ("extra", c_void_p), ("kern", c_void_p), ("ctx", c_void_p)]


class Driver:
    """The driver's library and the primary context of GPU 0, which PyTorch uses too."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.primary = self.made("cuDevicePrimaryCtxRetain", 0)

    def call(self, function: str, *arguments: object) -> None:
        """Calls a function. Raises `DriverError`."""
        code = getattr(self.library, function)(*arguments)
        if code:
            name = ctypes.c_char_p()
            self.library.cuGetErrorName(code, byref(name))
            raise DriverError(f"{function}: {(name.value or b'unknown error').decode()} ({code})")

    def made(self, function: str, *arguments: object) -> c_void_p:
        """What a function with a handle as its first argument makes."""
        handle = c_void_p()
        self.call(function, byref(handle), *arguments)
        return handle

    def use_here(self) -> None:
        """Makes the primary context current in the calling thread."""
        self.call("cuCtxSetCurrent", self.primary)

    def sms(self) -> DevResource:
        """All SMs of the GPU."""
        resource = DevResource()
        self.call("cuDeviceGetDevResource", 0, byref(resource), SM_RESOURCE)
        return resource

    def green_context(self, count: int) -> tuple[int, c_void_p]:
        """A context limited to so many SMs, which the driver rounds up: the number, and the context."""
        chosen, others, groups, everything = DevResource(), DevResource(), c_uint(1), self.sms()
        self.call("cuDevSmResourceSplitByCount", byref(chosen), byref(groups), byref(everything), byref(others), 0, count)
        description = self.made("cuDevResourceGenerateDesc", byref(chosen), 1)
        green = self.made("cuGreenCtxCreate", description, 0, GREEN_DEFAULT_STREAM)
        return chosen.count, self.made("cuCtxFromGreenCtx", green)

    def copy_in(self, device: int, host: int, size: int, stream: int) -> None:
        """Copies pinned memory to the GPU, in the order of the stream."""
        self.call("cuMemcpyHtoDAsync_v2", c_ulonglong(device), c_void_p(host), c_size_t(size), c_void_p(stream))

    def copy_out(self, host: int, device: int, size: int, stream: int) -> None:
        """Copies memory of the GPU to pinned memory, in the order of the stream."""
        self.call("cuMemcpyDtoHAsync_v2", c_void_p(host), c_ulonglong(device), c_size_t(size), c_void_p(stream))

    def instantiate(self, graph: int, context: object = None) -> c_void_p:
        """An executable graph. With a context, all kernels of a copy of the graph run in that context: the same kernels on other SMs."""
        if context is None:
            return self.made("cuGraphInstantiateWithFlags", c_void_p(graph), c_ulonglong(0))
        clone = self.made("cuGraphClone", c_void_p(graph))
        try:
            for node in self.kernel_nodes(clone):
                params = KernelNode()
                self.call("cuGraphKernelNodeGetParams_v2", c_void_p(node), byref(params))
                # A kernel names no context; a function does. From CUDA 12.2 on the driver reports the kernel of every node.
                params.kern, params.func, params.ctx = params.kern or params.func, None, context.value
                self.call("cuGraphKernelNodeSetParams_v2", c_void_p(node), byref(params))
            return self.made("cuGraphInstantiateWithFlags", clone, c_ulonglong(0))
        finally:
            self.call("cuGraphDestroy", clone)

    def kernel_nodes(self, graph: c_void_p) -> list[int]:
        """The nodes of a graph that launch kernels."""
        count = c_size_t()
        self.call("cuGraphGetNodes", graph, None, byref(count))
        nodes, kernels = (c_void_p * count.value)(), []
        self.call("cuGraphGetNodes", graph, nodes, byref(count))
        for node in nodes:
            kind = c_int()
            self.call("cuGraphNodeGetType", c_void_p(node), byref(kind))
            if kind.value == KERNEL_NODE:
                kernels.append(node)
        return kernels

    def launch(self, executable: c_void_p, stream: int) -> None:
        """Submits a graph."""
        self.call("cuGraphLaunch", executable, c_void_p(stream))

    def destroy(self, executables: list[c_void_p]) -> None:
        """Destroys executable graphs that do not run."""
        for each in executables:
            self.call("cuGraphExecDestroy", each)


class Event:
    """An event of the driver. `sleeping`: its wait sleeps instead of polling."""

    def __init__(self, driver: Driver, *, sleeping: bool) -> None:
        self.driver, self.handle = driver, driver.made("cuEventCreate", c_uint(NO_TIMING | (BLOCKING_WAIT if sleeping else 0)))

    def record(self, stream: int) -> "Event":
        """Records it behind the stream's work."""
        self.driver.call("cuEventRecord", self.handle, c_void_p(stream))
        return self

    def wait(self) -> None:
        """Returns when the work before its record is complete."""
        self.driver.call("cuEventSynchronize", self.handle)

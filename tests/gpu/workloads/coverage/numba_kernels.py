"""Kernels compiled by numba-cuda: one with global memory, one with shared memory and barriers."""

import numpy

# numba-cuda 0.30 looks up a name that NumPy 2.5 no longer has.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

import numba
import numba_cuda
from numba import cuda

from filling import fill

THREADS, COUNT = 256, 1 << 20


@cuda.jit
def mix(words, rounds):
    at = cuda.grid(1)
    if at < words.size:
        word = words[at]
        for _ in range(rounds):
            word = word * numba.uint32(1664525) + numba.uint32(1013904223)
        words[at] = word


@cuda.jit
def add_up(words, sums):
    shared = cuda.shared.array(THREADS, numba.uint32)
    own = cuda.threadIdx.x
    shared[own] = words[cuda.grid(1)]
    cuda.syncthreads()
    width = THREADS // 2
    while width > 0:
        if own < width:
            shared[own] += shared[own + width]
        cuda.syncthreads()
        width //= 2
    if own == 0:
        sums[cuda.blockIdx.x] = sums[cuda.blockIdx.x] * numba.uint32(3) + shared[0]


class Kernels:
    def __init__(self, _device):
        self.words = cuda.to_device(numpy.arange(COUNT, dtype=numpy.uint32))
        self.sums = cuda.to_device(numpy.zeros(COUNT // THREADS, dtype=numpy.uint32))
        self.held = []
        self.about = {"version": numba_cuda.__version__, "total_memory": cuda.current_context().get_memory_info().total}

    def step(self):
        mix[COUNT // THREADS, THREADS](self.words, 20_000)
        add_up[COUNT // THREADS, THREADS](self.words, self.sums)

    def wait(self):
        cuda.synchronize()

    def results(self):
        return [("words", self.words.copy_to_host().tobytes()), ("sums", self.sums.copy_to_host().tobytes())]

    def fill(self):
        return fill(self.held, lambda size: cuda.device_array(size, numpy.uint8), cuda.cudadrv.driver.CudaAPIError, "OUT_OF_MEMORY")

    def recover(self):
        self.held.clear()
        cuda.current_context().deallocations.clear()

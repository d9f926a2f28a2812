"""Arrays in CuPy: an own kernel, a matrix product, a sort and a reduction."""

import cupy

from filling import fill

WORDS = 1 << 20
OWN = cupy.RawKernel(r"""
extern "C" __global__ void mix(unsigned long long *x, int n, int rounds)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n)
        for (int r = 0; r < rounds; r++)
            x[i] = x[i] * 6364136223846793005ull + 1442695040888963407ull + i;
}
""", "mix")


class Arrays:
    def __init__(self, _device):
        self.words = cupy.arange(WORDS, dtype=cupy.uint64)
        self.sums = cupy.zeros(1024, dtype=cupy.float32)
        self.held = []
        self.about = {"version": cupy.__version__, "total_memory": cupy.cuda.runtime.memGetInfo()[1]}

    def step(self):
        OWN((WORDS // 256,), (256,), (self.words, cupy.int32(WORDS), cupy.int32(2000)))
        values = cupy.sort((self.words >> cupy.uint64(40)).astype(cupy.float32)).reshape(1024, 1024) / 2**24
        self.sums = (values @ values).sum(axis=1) + self.sums / 2

    def wait(self):
        cupy.cuda.runtime.deviceSynchronize()

    def results(self):
        return [("words", cupy.asnumpy(self.words).tobytes()), ("sums", cupy.asnumpy(self.sums).tobytes())]

    def fill(self):
        return fill(self.held, lambda size: cupy.empty(size, dtype=cupy.uint8), cupy.cuda.memory.OutOfMemoryError)

    def recover(self):
        self.held.clear()
        cupy.get_default_memory_pool().free_all_blocks()

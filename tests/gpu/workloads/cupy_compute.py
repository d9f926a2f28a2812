"""One computation in CuPy (own kernel, reduction, sort, matrix product, FFT) and a digest of every result's bits."""

import hashlib
import json

import cupy

OWN = cupy.RawKernel(r"""
extern "C" __global__ void mix(unsigned long long *x, int n, int rounds)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n)
        for (int r = 0; r < rounds; r++)
            x[i] = x[i] * 6364136223846793005ull + 1442695040888963407ull + i;
}
""", "mix")


def main():
    results = {}
    words = cupy.arange(1 << 20, dtype=cupy.uint64)
    for _ in range(50):
        OWN((1 << 12,), (256,), (words, cupy.int32(1 << 20), cupy.int32(100)))
    results["own kernel"] = words
    values = (words >> 40).astype(cupy.float32) / 1e6
    results["sort"] = cupy.sort(values)
    results["sum"] = values.reshape(1024, -1).sum(axis=1)
    square = values.reshape(1024, 1024)
    product = square
    for _ in range(20):
        product = (product @ square) / 1e4
    results["product"] = product
    results["scan"] = cupy.cumsum(words)
    skipped = []
    try:
        results["fft"] = cupy.fft.fft2(square)
    except (ImportError, RuntimeError) as why:
        skipped.append(f"fft: {why}")
    digests = {name: hashlib.sha256(cupy.asnumpy(value).tobytes()).hexdigest() for name, value in results.items()}
    free, total = cupy.cuda.runtime.memGetInfo()
    print(json.dumps({"digest": digests, "finite": bool(cupy.isfinite(product).all()), "skipped": skipped, "version": cupy.__version__, "total": total}), flush=True)


if __name__ == "__main__":
    main()

"""Tasks of PyTorch, CuPy and numba: is the stream of the task the library's current one, and is the result right? Prints a JSON line."""

import importlib.util
import json

import sluice

SIZE = 512


def torch_task():
    import torch

    ones = torch.ones(SIZE, SIZE, device="cuda")
    product = (ones @ ones).cpu()
    return torch.cuda.current_stream().cuda_stream, float(product.min()), float(product.max())


def cupy_task():
    import cupy

    ones = cupy.ones((SIZE, SIZE), dtype=cupy.float32)
    product = ones @ ones
    return cupy.cuda.get_current_stream().ptr, float(product.min()), float(product.max())


def numba_task():
    import numpy
    if not hasattr(numpy, "row_stack"):
        # numba-cuda 0.30 uses it, NumPy 2.5 has no more than its other name.
        numpy.row_stack = numpy.vstack
    from numba import cuda

    # numba has no current stream: the program passes it.
    stream = cuda.external_stream(sluice.current_stream())

    @cuda.jit
    def fill(numbers):
        at = cuda.grid(1)
        if at < numbers.size:
            numbers[at] = SIZE

    numbers = cuda.to_device(numpy.zeros(SIZE), stream=stream)
    fill[SIZE // 64, 64, stream](numbers)
    found = numbers.copy_to_host(stream=stream)
    stream.synchronize()
    return sluice.current_stream(), float(found.min()), float(found.max())


def main():
    seen, tasks = {}, {"torch": torch_task, "cupy": cupy_task, "numba": numba_task}
    with sluice.GPUScheduler() as scheduler:
        for library, function in tasks.items():
            if importlib.util.find_spec(library) is None:
                seen[library] = {"cannot": "not installed"}
                continue

            def task(function=function):
                return function(), sluice.current_stream()

            # Before it is imported, a library cannot be told of the stream.
            importlib.import_module(library)
            for decorate in (scheduler.latency_critical, scheduler.best_effort):
                try:
                    (stream, least, most), expected = scheduler.submit(decorate()(task)).result(timeout=120)
                    seen[f"{library}, {decorate.__name__}"] = {"ok": stream == expected and least == most == SIZE}
                except Exception as error:  # noqa: BLE001: reported.
                    seen[f"{library}, {decorate.__name__}"] = {"ok": False, "why": repr(error)[-300:]}
        print(json.dumps({"seen": seen, "mode": scheduler.get_metrics()["mode"]}))


if __name__ == "__main__":
    main()

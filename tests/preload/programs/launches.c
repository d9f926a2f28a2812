/* launches WAY COUNT: COUNT kernels by one entry point: kernel, cooperative, ex, graph, ptsz. */
#include "common.h"

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "kernel";
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 100;
    unsigned n = 64, micros = 200;
    CUgraphExec exec = NULL;
    CUgraph graph;
    CUstream stream;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(n);
    void *arguments[] = {&data, &n, &micros};
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    LaunchConfig config = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = stream};
    if (!strcmp(way, "graph")) {
        DO(cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL));
        DO(launch(gpu.mix, data, n, micros, stream));
        DO(cuStreamEndCapture(stream, &graph));
        DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    for (unsigned i = 0; i < count; i++) {
        if (exec)
            DO(cuGraphLaunch(exec, stream));
        else if (!strcmp(way, "cooperative"))
            DO(cuLaunchCooperativeKernel(gpu.mix, 1, 1, 1, 32, 1, 1, 0, stream, arguments));
        else if (!strcmp(way, "ex"))
            DO(cuLaunchKernelEx(&config, gpu.mix, arguments, NULL));
        else if (!strcmp(way, "ptsz"))
            DO(cuLaunchKernel_ptsz(gpu.mix, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
        else
            DO(launch(gpu.mix, data, n, micros, stream));
    }
    DO(cuStreamSynchronize(stream));
    EXPECT(mixed(data, n, count));
    SAY("%u", count);
    return 0;
}

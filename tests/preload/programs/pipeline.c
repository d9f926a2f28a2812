/* pipeline SECONDS STEP_US: one process whose model is split between two GPUs, as a `device_map` of PyTorch programs has it. A step is kernels of
 * STEP_US: half of them on the first GPU, then the other half on the second with what the first has computed. One thread launches for both.
 *
 * It prints "ready", runs for SECONDS from a line on stdin on, checks that each kernel ran exactly once and in its turn, and prints its steps
 * per second and its number of steps. */
#include "common.h"
#include <time.h>

enum { NUMBERS = 64, KERNEL_US = 500, GPUS = 2 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    if (count != 3) exit(EXIT_BROKEN);
    double limit = atof(arguments[1]);
    unsigned kernels = (unsigned)atoi(arguments[2]) / KERNEL_US / GPUS;
    Gpu gpus[GPUS];
    CUstream streams[GPUS];
    CUdeviceptr data[GPUS];
    uint64_t passed[NUMBERS];
    for (int i = 0; i < GPUS; i++) {
        gpus[i] = open_gpu_number(i);
        DO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        data[i] = numbers(NUMBERS);
    }
    for (unsigned i = 0; i < NUMBERS; i++) passed[i] = i;
    SAY("ready");
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return 0;
    double begin = seconds(), now = begin;
    unsigned long steps = 0;
    for (; now < begin + limit; now = seconds(), steps++) {
        for (int i = 0; i < GPUS; i++) {
            DO(cuCtxSetCurrent(gpus[i].context));
            DO(cuMemcpyHtoDAsync_v2(data[i], passed, sizeof passed, streams[i]));
            for (unsigned k = 0; k < kernels; k++) DO(launch(gpus[i].mix, data[i], NUMBERS, KERNEL_US, streams[i]));
            DO(cuMemcpyDtoHAsync_v2(passed, data[i], sizeof passed, streams[i]));
            DO(cuStreamSynchronize(streams[i]));
        }
    }
    EXPECT(mixed(data[GPUS - 1], NUMBERS, steps * kernels * GPUS));
    SAY("%.3f %lu", (double)steps / (now - begin), steps);
    return 0;
}

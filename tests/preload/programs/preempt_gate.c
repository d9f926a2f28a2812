/* preempt_gate MICROS [REFUSALS]: keeps a dozen kernels in flight on each of two streams until stdin closes, then checks that each ran
 * once and in order. Knows nothing of preemption. So many times the driver has no memory for it to register any. */
#include "common.h"
#include <dlfcn.h>
#include <poll.h>

enum { N = 64, DEPTH = 12 };

int main(int argc, char **argv) {
    unsigned micros = argc > 1 ? (unsigned)atoi(argv[1]) : 200;
    void (*refuse)(const char *, unsigned, unsigned);
    Gpu gpu = open_gpu();
    CUdeviceptr data[2] = {numbers(N), numbers(N)};
    CUstream streams[2];
    CUevent events[2];
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned long launched = 0;
    for (int i = 0; i < 2; i++) {
        DO(cuStreamCreate(&streams[i], i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        DO(cuEventCreate(&events[i], 2));
    }
    if (argc > 2) {
        *(void **)&refuse = dlsym(RTLD_DEFAULT, "sluiceSimRefuse");
        EXPECT(refuse);
        refuse("cuMemHostRegister_v2", CUDA_ERROR_OUT_OF_MEMORY, (unsigned)atoi(argv[2]));
    }
    SAY("ready");
    while (poll(&input, 1, 0) == 0) {
        for (int i = 0; i < 2; i++) {
            for (int depth = 0; depth < DEPTH; depth++) DO(launch(gpu.mix, data[i], N, micros, streams[i]));
            DO(cuEventRecord(events[i], streams[i]));
        }
        launched += DEPTH;
        DO(cuStreamWaitEvent(streams[0], events[1], 0));
        DO(cuStreamSynchronize(streams[launched / DEPTH % 2]));
    }
    DO(cuCtxSynchronize());
    EXPECT(mixed(data[0], N, launched) && mixed(data[1], N, launched));
    SAY("%lu", launched);
    return 0;
}

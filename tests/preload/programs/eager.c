/* eager LAUNCHES GAP_US MICROS: a service whose steps are LAUNCHES kernels of MICROS with at least GAP_US between two launches, then a
 * wait. Makes steps until stdin closes, then checks that each kernel ran exactly once. */
#include "common.h"
#include <poll.h>
#include <time.h>

/* The host's work between two launches: it does not sleep. */
static void prepare(unsigned us) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 < us);
}

int main(int argc, char **argv) {
    EXPECT(argc == 4);
    unsigned launches = (unsigned)atoi(argv[1]), gap_us = (unsigned)atoi(argv[2]), micros = (unsigned)atoi(argv[3]);
    const unsigned n = 64;
    unsigned long launched = 0;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    CUstream stream;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(n);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY("ready");
    while (poll(&input, 1, 0) == 0) {
        for (unsigned i = 0; i < launches; i++, launched++) {
            DO(launch(gpu.mix, data, n, micros, stream));
            prepare(gap_us);
        }
        DO(cuStreamSynchronize(stream));
    }
    EXPECT(mixed(data, n, launched));
    SAY("%lu", launched);
    return 0;
}

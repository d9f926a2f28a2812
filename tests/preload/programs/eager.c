/* eager LAUNCHES GAP_US MICROS: a host-bound service. Each step is LAUNCHES kernels of MICROS, one each GAP_US, then a wait. The times of the
 * launches are fixed in advance, so that a step takes as long on a busy machine. Makes steps until stdin closes, then checks that each
 * kernel ran exactly once. */
#include "common.h"
#include <poll.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t ns) {
    struct timespec at = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {}
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
        uint64_t begin = now_ns();
        for (unsigned i = 0; i < launches; i++, launched++) {
            sleep_until(begin + (uint64_t)i * gap_us * 1000);
            DO(launch(gpu.mix, data, n, micros, stream));
        }
        DO(cuStreamSynchronize(stream));
    }
    EXPECT(mixed(data, n, launched));
    SAY("%lu", launched);
    return 0;
}

/* periodic PERIOD_US MICROS: a service with a request of one kernel of MICROS every PERIOD_US, and a wait for it. Prints "ready" after the
 * first one. Ends at a line of stdin, or its end. */
#include "common.h"
#include <poll.h>
#include <time.h>

enum { NUMBERS = 64 };

int main(int count, char **arguments) {
    if (count != 3) exit(EXIT_BROKEN);
    long period_ns = strtol(arguments[1], NULL, 10) * 1000;
    unsigned micros = (unsigned)strtoul(arguments[2], NULL, 10);
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(NUMBERS);
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUfunction spin;
    DO(cuModuleGetFunction(&spin, load_kernels(), "spin"));
    (void)gpu;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    struct pollfd end = {.fd = 0, .events = POLLIN};
    for (int number = 0; poll(&end, 1, 0) == 0; number++) {
        DO(launch(spin, data, NUMBERS, micros, stream));
        DO(cuStreamSynchronize(stream));
        if (!number) SAY("ready");
        next.tv_nsec += period_ns;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    return 0;
}

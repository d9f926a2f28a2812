/* waiting MICROS WHAT: again and again a kernel and a command that uses no multiprocessor, and a wait for both, until stdin closes. It
   prints the number of such turns.
   WHAT: "function" of the host that takes 20 ms, after the kernel; "kernel-last", the same before the kernel; "copy" of 64 MiB from the
   host, before the kernel. */
#include "common.h"
#include <poll.h>
#include <string.h>

enum { NUMBERS = 64, FUNCTION_US = 20000, COPIED = 64 << 20 };

static void function(void *argument) {
    (void)argument;
    usleep(FUNCTION_US);
}

int main(int count, char **arguments) {
    if (count != 3) exit(EXIT_BROKEN);
    unsigned micros = (unsigned)atoi(arguments[1]);
    int copies = strcmp(arguments[2], "copy") == 0, kernel_last = strcmp(arguments[2], "function") != 0;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(NUMBERS), copied = 0;
    void *host = NULL;
    if (copies) {
        DO(cuMemAlloc_v2(&copied, COPIED));
        DO(cuMemAllocHost_v2(&host, COPIED));
    }
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned long turns = 0;
    SAY("ready");
    for (; poll(&input, 1, 0) == 0; turns++) {
        if (!kernel_last) DO(launch(gpu.spin, data, NUMBERS, micros, stream));
        if (copies) DO(cuMemcpyHtoDAsync_v2(copied, host, COPIED, stream));
        else DO(cuLaunchHostFunc(stream, function, NULL));
        if (kernel_last) DO(launch(gpu.spin, data, NUMBERS, micros, stream));
        DO(cuStreamSynchronize(stream));
    }
    SAY("%lu", turns);
    return 0;
}

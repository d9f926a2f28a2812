/* commands WHAT SECONDS: makes commands of one kind for some time, eight in flight. WHAT: set and copy (within the GPU), set_waiting and
 * copy_waiting by the calls without a stream, to_gpu from the host. */
#include "common.h"
#include <time.h>

enum { BYTES = 1 << 20 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "set";
    double end = seconds() + (argc > 2 ? atof(argv[2]) : 1);
    CUdeviceptr to, from;
    CUstream stream;
    void *host;
    open_gpu();
    DO(cuMemAlloc_v2(&to, BYTES));
    DO(cuMemAlloc_v2(&from, BYTES));
    DO(cuMemAllocHost_v2(&host, BYTES));
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (seconds() < end) {
        for (int i = 0; i < 8; i++) {
            if (!strcmp(what, "set")) DO(cuMemsetD32Async(to, 7, BYTES / 4, stream));
            if (!strcmp(what, "copy")) DO(cuMemcpyDtoDAsync_v2(to, from, BYTES, stream));
            if (!strcmp(what, "set_waiting")) DO(cuMemsetD8_v2(to, 7, BYTES));
            if (!strcmp(what, "copy_waiting")) DO(cuMemcpyDtoD_v2(to, from, BYTES));
            if (!strcmp(what, "to_gpu")) DO(cuMemcpyHtoDAsync_v2(to, host, BYTES, stream));
        }
        DO(cuCtxSynchronize());
    }
    return 0;
}

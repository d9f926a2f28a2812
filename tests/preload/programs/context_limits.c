/* context_limits: lowers and raises the limits of a context that take memory, the heap of kernels and the stack of each thread. After each call
 * prints its result and the MiB that are free, and at last those after the primary context was reset. Waits for the end of its input. */
#include "common.h"

enum { STACK = 0, HEAP = 2, INITIAL_STACK = 1 << 10, INITIAL_HEAP = 8 << 20 };

static size_t free_mib(void) {
    size_t free_now, total;
    DO(cuMemGetInfo_v2(&free_now, &total));
    return free_now >> 20;
}

static void set(int limit, size_t value) {
    int result = cuCtxSetLimit(limit, value);
    SAY("%d %zu", result, free_mib());
}

int main(void) {
    Gpu gpu = open_gpu();
    CUcontext context;
    set(STACK, INITIAL_STACK / 2);
    set(STACK, INITIAL_STACK);
    set(HEAP, INITIAL_HEAP + ((size_t)512 << 20));
    set(STACK, 3 * INITIAL_STACK);
    set(HEAP, INITIAL_HEAP);
    set(STACK, 3 * INITIAL_STACK);
    set(STACK, 2 * INITIAL_STACK);
    DO(cuDevicePrimaryCtxReset_v2(gpu.device));
    DO(cuDevicePrimaryCtxRetain(&context, gpu.device));
    DO(cuCtxSetCurrent(context));
    SAY("%zu", free_mib());
    while (getchar() != EOF) {}
    return 0;
}

/* attached: allocates 512 MiB in a context that it uses twice. Prints the MiB that are free after the end of each use, and waits for the end
 * of its input. */
#include "common.h"

static size_t free_mib(CUcontext current) {
    size_t free_now, total;
    DO(cuCtxSetCurrent(current));
    DO(cuMemGetInfo_v2(&free_now, &total));
    return free_now >> 20;
}

int main(void) {
    Gpu gpu = open_gpu();
    CUcontext made, attached;
    CUdeviceptr data;
    DO(cuCtxCreate_v2(&made, 0, gpu.device));
    DO(cuMemAlloc_v2(&data, (size_t)512 << 20));
    DO(cuCtxAttach(&attached, 0));
    for (int use = 0; use < 2; use++) {
        DO(cuCtxDetach(attached));
        SAY("%zu", free_mib(gpu.context));
    }
    while (getchar() != EOF) {}
    return 0;
}

/* The plug-in of deepbind.c: keeps the GPU busy, or takes so many bytes of its memory. */
#include "escape.h"

void run_plugin(size_t bytes) {
    Gpu gpu = open_gpu();
    if (bytes == 0) return work(gpu);
    CUdeviceptr data;
    for (size_t taken = 0; taken < bytes; taken += 64UL << 20)
        if (cuMemAlloc_v2(&data, 64UL << 20)) break;
    rest();
}

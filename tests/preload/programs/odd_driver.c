/* A driver that does two things of its own and leaves the rest to the library it depends on: it allocates pitched memory by
 * calling its own cuMemAlloc by name, and returns an unknown function. */
#include "cu.h"
#include <string.h>

CUresult cuMemAllocPitch_v2(CUdeviceptr *data, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(data, *pitch * height);
}

static CUresult other_alloc(CUdeviceptr *data, size_t bytes, int more) {
    return more ? CUDA_ERROR_NOT_FOUND : cuMemAlloc_v2(data, bytes);
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version;
    (void)flags;
    *function = !strcmp(name, "cuMemAlloc") ? (void *)other_alloc : NULL;
    *status = *function ? 0 : 1;
    return CUDA_SUCCESS;
}

/* A driver that calls the program after it has unmapped memory or ended a primary context, before its own call returns: what another
 * thread of the program may do in that time. */
#include "cu.h"
#include <stddef.h>

void (*after_call)(void);

static CUresult then_call(CUresult result) {
    void (*call)(void) = after_call;
    after_call = NULL;
    if (call) call();
    return result;
}

/* The library's own function: the hook does not know the one in this file, and so leaves the answer as it is. */
static void *real(const char *name) {
    void *found = NULL;
    int status;
    cuGetProcAddress_v2(name, &found, 12000, 0, &status);
    return found;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    CUresult (*unmap)(CUdeviceptr, size_t) = real("cuMemUnmap");
    return then_call(unmap(address, bytes));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult (*release)(CUdevice) = real("cuDevicePrimaryCtxRelease");
    CUresult (*state)(CUdevice, unsigned *, int *) = real("cuDevicePrimaryCtxGetState");
    unsigned flags;
    int active = 1;
    CUresult result = release(device);
    state(device, &flags, &active);
    return active ? result : then_call(result);
}

/* A driver that calls the program before its own call returns: after it has allocated or unmapped memory or ended a primary context, while
 * it makes a primary context, tells the size of a pool or is about to query a stream. So the program sees what may happen in that time. */
#include "cu.h"
#include <stddef.h>

void (*after_call)(void);
/* Called once within the next making of a primary context. */
void (*in_retain)(void);
/* Called once after the next allocation, and once before the next query of a stream. */
void (*in_allocation)(void), (*in_query)(void);
/* A pool was destroyed while a thread asked for its size. */
int was_used_after_end;
static volatile int is_asked;

static void call_once(void (**what)(void)) {
    void (*call)(void) = *what;
    *what = NULL;
    if (call) call();
}

static CUresult then_call(CUresult result) {
    call_once(&after_call);
    return result;
}

/* The library's own function: the hook does not know the one in this file, and so leaves the answer as it is. */
static void *real(const char *name) {
    void *found = NULL;
    int status;
    cuGetProcAddress_v2(name, &found, 12000, 0, &status);
    return found;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CUresult (*allocate)(CUdeviceptr *, size_t) = real("cuMemAlloc");
    CUresult result = allocate(address, bytes);
    call_once(&in_allocation);
    return result;
}

CUresult cuStreamQuery(CUstream stream) {
    CUresult (*query)(CUstream) = real("cuStreamQuery");
    call_once(&in_query);
    return query(stream);
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

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    CUresult (*get)(CUmemoryPool, int, void *) = real("cuMemPoolGetAttribute");
    void (*call)(void) = after_call;
    if (!call) return get(pool, attribute, value);
    after_call = NULL;
    is_asked = 1;
    call();
    CUresult result = get(pool, attribute, value);
    is_asked = 0;
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUresult (*destroy)(CUmemoryPool) = real("cuMemPoolDestroy");
    if (is_asked) was_used_after_end = 1;
    return destroy(pool);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult (*retain)(CUcontext *, CUdevice) = real("cuDevicePrimaryCtxRetain");
    call_once(&in_retain);
    return retain(context, device);
}

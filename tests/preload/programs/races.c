/* races WHAT: another thread uses an address or a context again before the driver's call that ended its former use has returned. Needs
 * programs/racing_driver.c in the place of the driver. It says how many MiB are in use at the end. WHAT: unmap, release. */
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>

CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUhandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);

enum { MIB = 1 << 20, BYTES = 64 * MIB };
static CUdeviceptr address;
static CUhandle second;
static pthread_t thread;

static void do_on_another_thread(void *(*what)(void *)) {
    struct timespec limit;
    EXPECT(pthread_create(&thread, NULL, what, NULL) == 0);
    /* It may have to wait for the call that this is part of. */
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += 300 * 1000 * 1000;
    limit.tv_sec += limit.tv_nsec / 1000000000;
    limit.tv_nsec %= 1000000000;
    if (pthread_timedjoin_np(thread, NULL, &limit) == 0) thread = 0;
}

static void *map_second(void *unused) {
    DO(cuMemMap(address, BYTES / 2, 0, second, 0));
    DO(cuMemRelease(second));
    return unused;
}

static void map_meanwhile(void) { do_on_another_thread(map_second); }

static void *retain(void *unused) {
    CUcontext context;
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    return unused;
}

static void retain_meanwhile(void) { do_on_another_thread(retain); }

static void unmap(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    CUhandle first;
    DO(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    DO(cuMemCreate(&first, BYTES, &prop, 0));
    DO(cuMemCreate(&second, BYTES / 2, &prop, 0));
    DO(cuMemMap(address, BYTES, 0, first, 0));
    DO(cuMemRelease(first));
    DO(cuMemUnmap(address, BYTES));
}

/* The memory ends with the context. */
static void release(void) {
    CUdeviceptr data;
    DO(cuMemAlloc_v2(&data, BYTES));
    DO(cuDevicePrimaryCtxRelease_v2(0));
}

int main(int argc, char **argv) {
    int unmaps = argc > 1 && !strcmp(argv[1], "unmap");
    size_t available, total;
    CUcontext context;
    open_gpu();
    void *driver = dlopen(getenv("SLUICE_REAL_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
    void (**after_call)(void) = driver ? dlsym(driver, "after_call") : NULL;
    EXPECT(after_call);
    *after_call = unmaps ? map_meanwhile : retain_meanwhile;
    if (unmaps) unmap();
    else release();
    if (thread) pthread_join(thread, NULL);
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    DO(cuMemGetInfo_v2(&available, &total));
    SAY("%zu", (total - available) / MIB);
    return 0;
}

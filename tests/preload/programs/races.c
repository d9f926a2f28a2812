/* races WHAT: another thread does something before a call of the driver has returned. Needs programs/racing_driver.c in the place of the
 * driver.
 *   unmap, release  it uses an address or a context again of which that call ended the former use -> MiB in use at the end
 *   allocate        it allocates while the driver tells the size of a pool -> a line when it has
 *   destroy         it destroys the pool meanwhile -> whether the pool had ended before its size was told
 *   cancel          the calling thread is cancelled while it allocates -> MiB in use when the memory was freed
 *   capture         a capture begins before a stream is queried, for which an allocation beyond a limit of 1 GiB waits -> the result of
 *                   the allocation, and of the end of the capture
 *   fork            it forks while the driver makes a primary context; the child retains that context -> a line when the child has ended */
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUhandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);

enum { MIB = 1 << 20, BYTES = 64 * MIB };
/* What the driver calls next, and once. */
static void (**after_call)(void);
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

static CUmemoryPool pool;
static CUcontext current;

static void *allocate(void *unused) {
    CUdeviceptr data;
    DO(cuCtxSetCurrent(current));
    DO(cuMemAllocFromPoolAsync(&data, BYTES, pool, NULL));
    return unused;
}

/* Ends a process of which a call hangs. */
enum { PATIENCE_S = 20 };

static void join(void *(*what)(void *)) {
    EXPECT(pthread_create(&thread, NULL, what, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static void allocate_meanwhile(void) {
    alarm(PATIENCE_S);
    join(allocate);
}

static void *destroy(void *unused) {
    DO(cuMemPoolDestroy(pool));
    return unused;
}

static void destroy_meanwhile(void) { do_on_another_thread(destroy); }

/* A pool that is in use, of which the hook asks for the size; `meanwhile` is done in that question. */
static void ask_for_size(void (*meanwhile)(void)) {
    PoolProps props = {.type = 1, .location = {1, 0}};
    size_t available, total;
    DO(cuMemPoolCreate(&pool, &props));
    allocate(NULL);
    *after_call = meanwhile;
    DO(cuMemGetInfo_v2(&available, &total));
}

static void (**in_allocation)(void);
static CUdeviceptr taken;

static void cancel_this_thread(void) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

static void *take(void *unused) {
    DO(cuCtxSetCurrent(current));
    *in_allocation = cancel_this_thread;
    DO(cuMemAlloc_v2(&taken, BYTES));
    pthread_testcancel();
    return unused;
}

static void cancel(void) {
    void *result;
    EXPECT(pthread_create(&thread, NULL, take, NULL) == 0 && pthread_join(thread, &result) == 0);
    EXPECT(result == PTHREAD_CANCELED);
    thread = 0;
    DO(cuMemFree_v2(taken));
}

static CUstream captured;
static sem_t begun, allocated;
static CUresult ended;

static void *capture(void *unused) {
    CUgraph graph;
    DO(cuCtxSetCurrent(current));
    DO(cuStreamBeginCapture_v2(captured, CAPTURE_GLOBAL));
    sem_post(&begun);
    sem_wait(&allocated);
    ended = cuStreamEndCapture(captured, &graph);
    return unused;
}

static void capture_meanwhile(void) {
    EXPECT(pthread_create(&thread, NULL, capture, NULL) == 0);
    sem_wait(&begun);
}

static void capture_in_query(void (**in_query)(void), CUfunction spin) {
    const size_t big = (size_t)900 * MIB;
    CUstream streams[2];
    CUdeviceptr data;
    for (int i = 0; i < 2; i++) DO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    DO(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DO(cuMemAllocAsync(&data, big, streams[0]));
    DO(launch(spin, 0, 0, 300 * 1000, streams[0]));
    DO(cuMemFreeAsync(data, streams[0]));
    DO(launch(spin, 0, 0, 300 * 1000, streams[1]));
    *in_query = capture_meanwhile;
    CUresult result = cuMemAllocAsync(&data, big, streams[1]);
    sem_post(&allocated);
    EXPECT(thread && pthread_join(thread, NULL) == 0);
    SAY("%d %d", result, ended);
}

static void *fork_child(void *unused) {
    int status;
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        CUcontext context;
        alarm(PATIENCE_S);
        cuDevicePrimaryCtxRetain(&context, 0);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return unused;
}

static void fork_meanwhile(void) { join(fork_child); }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int unmaps = !strcmp(what, "unmap");
    size_t available, total;
    CUcontext context;
    Gpu gpu = open_gpu();
    current = gpu.context;
    void *driver = dlopen(getenv("SLUICE_REAL_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
    after_call = driver ? dlsym(driver, "after_call") : NULL;
    EXPECT(after_call);
    if (!strcmp(what, "allocate")) {
        ask_for_size(allocate_meanwhile);
        SAY("allocated");
        return 0;
    }
    if (!strcmp(what, "destroy")) {
        ask_for_size(destroy_meanwhile);
        if (thread) pthread_join(thread, NULL);
        SAY("%d", *(int *)dlsym(driver, "was_used_after_end"));
        return 0;
    }
    if (!strcmp(what, "fork")) {
        *(void (**)(void))dlsym(driver, "in_retain") = fork_meanwhile;
        DO(cuDevicePrimaryCtxRetain(&context, 0));
        SAY("ended");
        return 0;
    }
    if (!strcmp(what, "capture")) {
        capture_in_query(dlsym(driver, "in_query"), gpu.spin);
        return 0;
    }
    if (!strcmp(what, "cancel")) {
        in_allocation = dlsym(driver, "in_allocation");
        cancel();
    } else {
        *after_call = unmaps ? map_meanwhile : retain_meanwhile;
        if (unmaps) unmap();
        else release();
    }
    if (thread) pthread_join(thread, NULL);
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    DO(cuMemGetInfo_v2(&available, &total));
    SAY("%zu", (total - available) / MIB);
    return 0;
}

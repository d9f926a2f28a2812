/* pools CASE: stream-ordered memory under a limit of 1 GiB. Prints what the test compares, then waits for the end of its input.
 *   live      eight streams allocate 900 MiB each behind a long kernel and free it -> number of allocations that succeeded
 *   reuse     one stream allocates and frees 900 MiB eight times behind a long kernel -> the same number, and the driver's calls that
 *             wait for a stream or trim a pool
 *   other     a stream behind a kernel allocates 900 MiB that another stream has freed behind a longer one -> the result, and MiB of the pool
 *   held      two streams that a host function holds allocate 900 MiB that a third one has freed behind it -> the results, and MiB of
 *             the pool
 *   retained  a pool keeps freed memory until it is trimmed -> free bytes, before and after
 *   needed    a pool keeps freed memory that a later allocation outside of it needs -> free bytes
 *   captured  a captured allocation is never launched -> free bytes
 *   launched  a captured allocation is launched -> free bytes
 *   added     an allocation is added to a graph, by each of the two functions, and both graphs are launched -> free bytes after each
 *   host      a pool of host memory -> free bytes
 *   destroyed a pool is destroyed before its last allocation is freed -> free bytes, before and after the free
 *   plain     memory of a pool is freed by cuMemFree -> free bytes
 *   ending    a pool is destroyed behind a free that the GPU has not reached -> the result of another allocation, then and later
 *   behind    memory of cuMemAlloc is freed in a stream behind a long kernel -> the same
 *   own       as behind, in the thread's own default stream, while the program preempts another stream -> the same
 *   waiting   memory of cuMemAlloc is freed in a preempted stream, behind a kernel that waits in it -> the same
 *   emptied   a pool is destroyed behind such a free of its memory -> the same
 *   reset     the primary context is reset while two pools, one of them destroyed, have memory -> MiB free before and after
 *   fragments a pool keeps 500 MiB that allocations of 300 and 400 MiB cannot use -> the results, and MiB of the
 *             pool
 *   steady    a pool that keeps 900 MiB serves 100 allocations of 1 MiB, each of which is freed again -> the messages that the hook sent
 *   quiet     waits after a captured allocation, without a launch of its graph -> the driver's calls for sizes in them */
#include "preempt.h"

enum { ROUNDS = 8, RELEASE_THRESHOLD = 4, RESERVED = 5, LOCATION_HOST = 2 };
static const size_t BIG = (size_t)900 << 20;

static size_t free_bytes(void) {
    size_t free_now, total;
    DO(cuMemGetInfo_v2(&free_now, &total));
    return free_now;
}

static CUstream new_stream(void) {
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUmemoryPool new_pool(int location) {
    PoolProps props = {.type = 1, .location = {location, 0}};
    CUmemoryPool pool;
    DO(cuMemPoolCreate(&pool, &props));
    return pool;
}

static uint64_t calls_of(const char *function) {
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "sluiceSimCalls");
    return calls(function);
}

static uint64_t waits_and_trims(void) {
    return calls_of("cuStreamQuery") + calls_of("cuStreamSynchronize") + calls_of("cuMemPoolTrimTo");
}

/* Returns how many of the allocations succeeded. */
static int many(int streams) {
    CUstream stream[ROUNDS];
    CUdeviceptr data;
    int took = 0;
    for (int i = 0; i < streams; i++) stream[i] = new_stream();
    for (int i = 0; i < ROUNDS; i++) {
        CUstream on = stream[i % streams];
        CUresult result = cuMemAllocAsync(&data, BIG, on);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) continue;
        DO(result);
        took++;
        DO(launch(gpu.spin, 0, 0, 300 * 1000, on));
        DO(cuMemFreeAsync(data, on));
    }
    return took;
}

static void reuse(void) {
    uint64_t before = waits_and_trims();
    int took = many(1);
    SAY("%d %d", took, (int)(waits_and_trims() - before));
}

static uint64_t pool_mib(void) {
    CUmemoryPool pool;
    uint64_t bytes;
    DO(cuDeviceGetDefaultMemPool(&pool, gpu.device));
    DO(cuMemPoolGetAttribute(pool, RESERVED, &bytes));
    return bytes >> 20;
}

static void other(void) {
    CUstream first = new_stream(), second = new_stream();
    CUdeviceptr data;
    DO(cuMemAllocAsync(&data, BIG, first));
    DO(launch(gpu.spin, 0, 0, 100 * 1000, first));
    DO(cuMemFreeAsync(data, first));
    DO(launch(gpu.spin, 0, 0, 300 * 1000, second));
    int result = cuMemAllocAsync(&data, BIG, second);
    SAY("%d %d", result, (int)pool_mib());
}

static void hold(void *released) {
    while (!__atomic_load_n((int *)released, __ATOMIC_ACQUIRE)) usleep(1000);
}

static void held(void) {
    static int released;
    CUstream streams[3];
    CUdeviceptr data;
    int results[3];
    for (int i = 0; i < 3; i++) {
        streams[i] = new_stream();
        if (i > 0) DO(cuLaunchHostFunc(streams[i], hold, &released));
        results[i] = cuMemAllocAsync(&data, BIG, streams[i]);
        if (i > 0) continue;
        DO(cuLaunchHostFunc(streams[i], hold, &released));
        DO(cuMemFreeAsync(data, streams[i]));
    }
    uint64_t mib = pool_mib();
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
    SAY("%d %d %d", results[1], results[2], (int)mib);
}

/* The default pool, which keeps 900 MiB that are free. */
static CUmemoryPool full_pool(void) {
    CUmemoryPool pool;
    CUdeviceptr data;
    uint64_t most = UINT64_MAX;
    DO(cuDeviceGetDefaultMemPool(&pool, gpu.device));
    DO(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &most));
    DO(cuMemAllocAsync(&data, BIG, NULL));
    DO(cuMemFreeAsync(data, NULL));
    DO(cuCtxSynchronize());
    return pool;
}

static void needed(void) {
    CUdeviceptr data;
    full_pool();
    DO(cuMemAlloc_v2(&data, BIG));
    SAY("%zu", free_bytes());
}

static void retained(void) {
    CUmemoryPool pool = full_pool();
    size_t kept = free_bytes();
    DO(cuMemPoolTrimTo(pool, 0));
    SAY("%zu %zu", kept, free_bytes());
}

static void captured(int launches) {
    CUstream stream = new_stream();
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr data;
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
    DO(cuMemAllocAsync(&data, BIG, stream));
    if (launches) DO(cuMemFreeAsync(data, stream));
    DO(cuStreamEndCapture(stream, &graph));
    if (launches) {
        DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
        DO(cuGraphLaunch(exec, stream));
        DO(cuStreamSynchronize(stream));
    } else {
        DO(cuGraphDestroy(graph));
    }
    SAY("%zu", free_bytes());
}

/* Bytes that are free after a graph with one node was launched. */
static size_t after_launch(CUgraph graph) {
    CUgraphExec exec;
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, NULL));
    DO(cuStreamSynchronize(NULL));
    return free_bytes();
}

static void added_to_graphs(void) {
    enum { MEM_ALLOC = 10 };
    AllocNode alloc = {.props = {.type = 1, .location = {1, 0}}, .bytes = BIG / 2};
    GraphNodeParams node = {.type = MEM_ALLOC, .alloc = alloc};
    CUgraph graphs[2];
    void *added;
    for (int i = 0; i < 2; i++) DO(cuGraphCreate(&graphs[i], 0));
    DO(cuGraphAddMemAllocNode(&added, graphs[0], NULL, 0, &alloc));
    size_t first = after_launch(graphs[0]);
    DO(cuGraphAddNode(&added, graphs[1], NULL, 0, &node));
    SAY("%zu %zu", first, after_launch(graphs[1]));
}

static void host(void) {
    CUmemoryPool pool = new_pool(LOCATION_HOST);
    CUdeviceptr data;
    DO(cuMemAllocFromPoolAsync(&data, BIG, pool, NULL));
    size_t left = free_bytes();
    DO(cuMemFreeAsync(data, NULL));
    SAY("%zu", left);
}

static void destroyed(void) {
    CUmemoryPool pool = new_pool(1);
    CUdeviceptr data;
    DO(cuMemAllocFromPoolAsync(&data, BIG, pool, NULL));
    DO(cuMemPoolDestroy(pool));
    size_t held = free_bytes();
    DO(cuMemFreeAsync(data, NULL));
    DO(cuCtxSynchronize());
    SAY("%zu %zu", held, free_bytes());
}

static void plain(void) {
    CUdeviceptr data;
    DO(cuMemAllocAsync(&data, BIG, NULL));
    DO(cuMemFree_v2(data));
    SAY("%zu", free_bytes());
}

/* Whether 900 MiB more can be had: now, and when all work is done. */
static void now_and_later(void) {
    CUdeviceptr data;
    int now = cuMemAlloc_v2(&data, BIG);
    DO(cuCtxSynchronize());
    SAY("%d %d", now, cuMemAlloc_v2(&data, BIG));
}

static void ending(void) {
    CUmemoryPool pool = new_pool(1);
    CUstream stream = new_stream();
    CUdeviceptr data;
    DO(cuMemAllocFromPoolAsync(&data, BIG, pool, stream));
    DO(launch(gpu.spin, 0, 0, 300 * 1000, stream));
    DO(cuMemFreeAsync(data, stream));
    DO(cuMemPoolDestroy(pool));
    now_and_later();
}

static void behind(void) {
    CUstream stream = new_stream();
    CUdeviceptr data;
    DO(cuMemAlloc_v2(&data, BIG));
    DO(launch(gpu.spin, 0, 0, 300 * 1000, stream));
    DO(cuMemFreeAsync(data, stream));
    now_and_later();
}

static void own(void) {
    CUdeviceptr data;
    look_up();
    stream(CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2(&data, BIG));
    DO(launch(gpu.spin, 0, 0, 300 * 1000, CU_STREAM_PER_THREAD));
    DO(cuMemFreeAsync(data, CU_STREAM_PER_THREAD));
    now_and_later();
}

/* Whether 900 MiB more can be had: while the stream is preempted, and when its work is done. */
static void preempted_and_later(CUstream preempted) {
    CUdeviceptr data;
    int now = cuMemAlloc_v2(&data, BIG);
    WELL(restore(preempted));
    DO(cuStreamSynchronize(preempted));
    SAY("%d %d", now, cuMemAlloc_v2(&data, BIG));
}

static void waiting(void) {
    CUdeviceptr data;
    look_up();
    CUstream preempted = stream(CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2(&data, BIG));
    stop(preempted);
    DO(launch(gpu.spin, 0, 0, MICROS, preempted));
    DO(cuMemFreeAsync(data, preempted));
    preempted_and_later(preempted);
}

static void emptied(void) {
    CUdeviceptr data;
    look_up();
    CUstream preempted = stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = new_pool(1);
    DO(cuMemAllocFromPoolAsync(&data, BIG, pool, preempted));
    stop(preempted);
    DO(launch(gpu.spin, 0, 0, MICROS, preempted));
    DO(cuMemFreeAsync(data, preempted));
    DO(cuMemPoolDestroy(pool));
    preempted_and_later(preempted);
}

static void reset(void) {
    CUmemoryPool kept = new_pool(1), destroyed = new_pool(1);
    CUcontext context;
    CUdeviceptr data;
    DO(cuMemAllocFromPoolAsync(&data, BIG / 3, kept, NULL));
    DO(cuMemAllocFromPoolAsync(&data, BIG / 3, destroyed, NULL));
    DO(cuMemPoolDestroy(destroyed));
    size_t before = free_bytes();
    DO(cuDevicePrimaryCtxReset_v2(gpu.device));
    DO(cuDevicePrimaryCtxRetain(&context, gpu.device));
    DO(cuCtxSetCurrent(context));
    SAY("%zu %zu", before >> 20, free_bytes() >> 20);
}

/* The simulated driver uses freed memory again for the same size only. */
static void fragments(void) {
    static const size_t sizes[] = {300, 400};
    CUmemoryPool pool;
    CUdeviceptr data;
    uint64_t most = UINT64_MAX;
    int results[2];
    DO(cuDeviceGetDefaultMemPool(&pool, gpu.device));
    DO(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &most));
    DO(cuMemAllocAsync(&data, (size_t)500 << 20, NULL));
    DO(cuMemFreeAsync(data, NULL));
    DO(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) results[i] = cuMemAllocAsync(&data, sizes[i] << 20, NULL);
    SAY("%d %d %d", results[0], results[1], (int)pool_mib());
}

/* With the library `count_sends` before the hook. */
static void steady(void) {
    enum { TIMES = 100 };
    int (*sends)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "sends_of_this_thread");
    CUdeviceptr data;
    full_pool();
    int before = 0;
    for (int i = 0; i <= TIMES; i++) {
        /* The first allocation may still correct the pool's charge. */
        if (i == 1) before = sends();
        DO(cuMemAllocAsync(&data, 1 << 20, NULL));
        DO(cuMemFreeAsync(data, NULL));
    }
    int after = sends();
    DO(cuMemAlloc_v2(&data, 1 << 20));
    SAY("%d %d", after - before, sends() - after);
}

static void quiet(void) {
    CUstream stream = new_stream();
    CUgraph graph;
    CUdeviceptr data;
    full_pool();
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
    DO(cuMemAllocAsync(&data, BIG, stream));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuCtxSynchronize());
    uint64_t pools = calls_of("cuMemPoolGetAttribute"), graphs = calls_of("cuDeviceGetGraphMemAttribute");
    for (int i = 0; i < ROUNDS; i++) DO(cuCtxSynchronize());
    SAY("%d %d", (int)(calls_of("cuMemPoolGetAttribute") - pools), (int)(calls_of("cuDeviceGetGraphMemAttribute") - graphs));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    gpu = open_gpu();
    if (!strcmp(what, "live")) SAY("%d", many(ROUNDS));
    if (!strcmp(what, "reuse")) reuse();
    if (!strcmp(what, "other")) other();
    if (!strcmp(what, "held")) held();
    if (!strcmp(what, "retained")) retained();
    if (!strcmp(what, "needed")) needed();
    if (!strcmp(what, "captured")) captured(0);
    if (!strcmp(what, "launched")) captured(1);
    if (!strcmp(what, "added")) added_to_graphs();
    if (!strcmp(what, "host")) host();
    if (!strcmp(what, "destroyed")) destroyed();
    if (!strcmp(what, "plain")) plain();
    if (!strcmp(what, "ending")) ending();
    if (!strcmp(what, "behind")) behind();
    if (!strcmp(what, "own")) own();
    if (!strcmp(what, "waiting")) waiting();
    if (!strcmp(what, "emptied")) emptied();
    if (!strcmp(what, "reset")) reset();
    if (!strcmp(what, "fragments")) fragments();
    if (!strcmp(what, "steady")) steady();
    if (!strcmp(what, "quiet")) quiet();
    while (getchar() != EOF) {}
    DO(cuCtxSynchronize());
    return 0;
}

/* preempt_calls PART LEVEL: a program that preempts its own streams, at level 0 (host), 1 (device) or 2 (full). Each part checks that nothing
 * but time tells a preempted stream from another. */
#include "preempt.h"
#include <sys/wait.h>

static void order(void) {
    Toggler toggler = {.streams = {stream(CU_STREAM_NON_BLOCKING)}, .count = 1, .seed = 7};
    pthread_t thread;
    CUdeviceptr data = numbers(N);
    EXPECT(pthread_create(&thread, NULL, toggle, &toggler) == 0);
    for (int i = 0; i < 3000; i++) DO(launch(gpu.mix, data, N, 5, toggler.streams[0]));
    DO(cuStreamSynchronize(toggler.streams[0]));
    atomic_store(&toggler.ended, 1);
    pthread_join(thread, NULL);
    EXPECT(mixed(data, N, 3000));
}

/* Four streams hand one piece of memory round by events, while all of them are stopped and go on at random. */
static void ring(void) {
    Toggler toggler = {.count = 4, .seed = 11};
    pthread_t thread;
    CUdeviceptr data = numbers(N);
    CUevent done;
    for (int i = 0; i < 4; i++) toggler.streams[i] = stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    DO(cuEventCreate(&done, 2));
    EXPECT(pthread_create(&thread, NULL, toggle, &toggler) == 0);
    for (int i = 0; i < 1000; i++) {
        CUstream on = toggler.streams[i % 4];
        DO(cuStreamWaitEvent(on, done, 0));
        DO(launch(gpu.mix, data, N, 5, on));
        DO(cuEventRecord(done, on));
    }
    DO(cuEventSynchronize(done));
    atomic_store(&toggler.ended, 1);
    pthread_join(thread, NULL);
    EXPECT(mixed(data, N, 1000));
}

static atomic_int restored;
static CUstream waited;
static CUevent recorded;

static void *wait_for_stream(void *arrived) {
    DO(cuCtxSetCurrent(gpu.context));
    atomic_store((atomic_int *)arrived, 1);
    DO(cuStreamSynchronize(waited));
    EXPECT(atomic_load(&restored));
    return NULL;
}

static void *wait_for_event(void *arrived) {
    DO(cuCtxSetCurrent(gpu.context));
    atomic_store((atomic_int *)arrived, 1);
    DO(cuEventSynchronize(recorded));
    EXPECT(atomic_load(&restored));
    return NULL;
}

static void waits(void) {
    atomic_int arrived[2] = {0, 0};
    pthread_t threads[2];
    CUdeviceptr data = numbers(N);
    waited = stream(CU_STREAM_NON_BLOCKING);
    DO(cuEventCreate(&recorded, 0));
    EXPECT(cuStreamQuery(waited) == CUDA_SUCCESS && cuEventQuery(recorded) == CUDA_SUCCESS);
    stop(waited);
    DO(launch(gpu.add, data, N, MICROS, waited));
    DO(cuEventRecord(recorded, waited));
    EXPECT(cuStreamQuery(waited) == CUDA_ERROR_NOT_READY);
    EXPECT(cuEventQuery(recorded) == CUDA_ERROR_NOT_READY);
    EXPECT(pthread_create(&threads[0], NULL, wait_for_stream, &arrived[0]) == 0);
    EXPECT(pthread_create(&threads[1], NULL, wait_for_event, &arrived[1]) == 0);
    while (!atomic_load(&arrived[0]) || !atomic_load(&arrived[1])) sched_yield();
    EXPECT(peek(data) == 0);
    atomic_store(&restored, 1);
    WELL(restore(waited));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    EXPECT(cuStreamQuery(waited) == CUDA_SUCCESS && cuEventQuery(recorded) == CUDA_SUCCESS);
    EXPECT(added(data, N, 1));
}

static void arguments(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N), other = numbers(N), third = numbers(N);
    uint64_t host[N], *pinned;
    unsigned n = N, micros = MICROS;
    CUdeviceptr pointer = data;
    void *given[] = {&pointer, &n, &micros};
    struct { CUdeviceptr data; unsigned n, micros; } packed = {third, N, MICROS};
    size_t size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, NULL};
    DO(cuMemAllocHost_v2((void **)&pinned, sizeof host));
    for (int i = 0; i < N; i++) host[i] = pinned[i] = i;
    stop(on);
    DO(cuLaunchKernel(gpu.mix, 1, 1, 1, 32, 1, 1, 0, on, given, NULL));
    LaunchConfig as = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = on};
    DO(cuLaunchKernelEx(&as, gpu.mix, given, NULL));
    DO(cuLaunchCooperativeKernel(gpu.mix, 1, 1, 1, 32, 1, 1, 0, on, given));
    DO(cuLaunchKernel(gpu.add, 1, 1, 1, 32, 1, 1, 0, on, NULL, extra));
    DO(cuMemcpyHtoDAsync_v2(other, host, sizeof host, on));
    DO(cuMemcpyDtoHAsync_v2(pinned, other, sizeof host, on));
    /* All arguments of the calls are overwritten. */
    pointer = 0, n = 0, micros = 1000000, given[0] = NULL, packed.data = 0, size = 0;
    memset(extra, 0, sizeof extra);
    memset(&as, 0, sizeof as);
    memset(host, 255, sizeof host);
    pinned[1] = 77;
    EXPECT(cuLaunchKernel(gpu.mix, 0, 1, 1, 32, 1, 1, 0, on, given, NULL) == 1);
    EXPECT(peek(third) == 0);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(pinned[1] == 1);
    EXPECT(mixed(data, N, 3) && added(third, N, 1) && added(other, N, 0));
}

static void destroyed(void) {
    CUdeviceptr data = numbers(N);
    for (int round = 0; round < 50; round++) {
        CUstream on = stream(CU_STREAM_NON_BLOCKING);
        stop(on);
        DO(launch(gpu.add, data, N, MICROS, on));
        DO(cuStreamDestroy_v2(on));
        if (round % 2) EXPECT(launch(gpu.add, data, N, MICROS, on) == 400);
        EXPECT(peek(data) == (uint64_t)round);
        WELL(restore(on));
        DO(cuCtxSynchronize());
        EXPECT(peek(data) == (uint64_t)round + 1);
    }
    EXPECT(added(data, N, 50));
}

/* A wait for an event uses its last record before the wait, also if that record waits itself. */
static void events(void) {
    CUstream first = stream(CU_STREAM_NON_BLOCKING), second = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N);
    CUevent event, begin, end;
    float ms = -1;
    DO(cuEventCreate(&event, 2));
    DO(cuEventCreate(&begin, 0));
    DO(cuEventCreate(&end, 0));
    stop(first);
    DO(cuEventRecord(begin, first));
    DO(launch(gpu.mix, data, N, MICROS, first));
    DO(cuEventRecord(event, first));
    EXPECT(peek(data) == 0);
    /* The stream that runs waits for the one that is stopped, which does this much. */
    DO(cuStreamWaitEvent(second, event, 0));
    DO(launch(gpu.mix, data, N, MICROS, second));
    DO(launch(gpu.add, data, N, 500000, first));
    DO(cuEventRecord(event, first));
    DO(cuEventRecord(end, first));
    DO(cuStreamSynchronize(second));
    EXPECT(mixed(data, N, 2));
    EXPECT(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    EXPECT(cuEventElapsedTime(&ms, begin, end) == CUDA_ERROR_NOT_READY);
    DO(cuEventDestroy_v2(event));
    EXPECT(cuEventQuery(event) != CUDA_SUCCESS);
    WELL(restore(first));
    DO(cuStreamSynchronize(first));
    DO(cuEventElapsedTime(&ms, begin, end));
    EXPECT(ms >= 500);
}

/* One stream stops on the GPU, the other one of the context does not. */
static void two(void) {
    CUstream stopped, running = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N), other = numbers(N);
    sluice_preemption_config all_of_it = config();
    all_of_it.bound_us = 10000000;
    DO(cuStreamCreate(&stopped, CU_STREAM_NON_BLOCKING));
    WELL(enable(stopped, &all_of_it));
    for (int i = 0; i < 20; i++) DO(launch(gpu.add, data, N, 5000, stopped));
    stop(stopped);
    uint64_t before = 0;
    for (int round = 0; round < 2; round++) {
        /* The simulated GPU learns of a store when its host has a processor for it: by the end of the first round. */
        if (round == 1) before = peek(data);
        for (int i = 0; i < 100; i++) DO(launch(gpu.add, other, N, 200, running));
        DO(cuStreamSynchronize(running));
    }
    EXPECT(added(other, N, 200));
    EXPECT(peek(data) == before);
    WELL(restore(stopped));
    DO(cuStreamSynchronize(stopped));
    EXPECT(added(data, N, 20));
    SAY("stopped after %d of 20", (int)before);
}

/* The legacy default stream comes after what is earlier on blocking streams, and before what is later. */
static void legacy(void) {
    CUstream on = stream(CU_STREAM_DEFAULT), beside = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N), other = numbers(N), unused = numbers(N);
    stop(on);
    stop(beside);
    DO(launch(gpu.add, other, N, MICROS, beside));
    DO(launch(gpu.mix, data, N, MICROS, on));
    DO(launch(gpu.mix, data, N, MICROS, NULL));
    DO(launch(gpu.mix, data, N, MICROS, on));
    /* A synchronous call on the default stream keeps its place in the order as well. */
    uint64_t host[N];
    DO(cuMemcpyDtoH_v2(host, data, sizeof host));
    EXPECT(host[0] != 0);
    EXPECT(peek(other) == 0);
    EXPECT(restore(on) == SLUICE_OK && restore(beside) == SLUICE_OK);
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, N, 3) && added(other, N, 1) && added(unused, N, 0));
}

static int calls;
static int order_of_calls[100];

static void called(void *number) { order_of_calls[calls++] = (int)(intptr_t)number; }

static void functions(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    Toggler toggler = {.streams = {on}, .count = 1, .seed = 3};
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, toggle, &toggler) == 0);
    for (int i = 0; i < 100; i++) DO(cuLaunchHostFunc(on, called, (void *)(intptr_t)i));
    DO(cuStreamSynchronize(on));
    atomic_store(&toggler.ended, 1);
    pthread_join(thread, NULL);
    EXPECT(calls == 100);
    for (int i = 0; i < 100; i++) EXPECT(order_of_calls[i] == i);
}

static void graphs(void) {
    CUstream stopped = stream(CU_STREAM_NON_BLOCKING), captured = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N), other = numbers(N);
    CUgraph graph;
    CUgraphExec exec;
    stop(stopped);
    DO(launch(gpu.add, other, N, MICROS, stopped));
    DO(cuStreamBeginCapture_v2(captured, CAPTURE_GLOBAL));
    for (int i = 0; i < 3; i++) DO(launch(gpu.mix, data, N, MICROS, captured));
    DO(cuStreamEndCapture(captured, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, captured));
    DO(cuStreamSynchronize(captured));
    EXPECT(mixed(data, N, 3));
    DO(cuGraphLaunch(exec, stopped));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphUpload(exec, stopped));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    EXPECT(mixed(data, N, 3) && peek(other) == 0);
    WELL(restore(stopped));
    DO(cuStreamSynchronize(stopped));
    EXPECT(mixed(data, N, 6) && added(other, N, 1));
}

static void memory(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr made = 0, data = numbers(N);
    static uint64_t many[1 << 15];
    stop(on);
    DO(cuMemAllocAsync(&made, N * 8, on));
    EXPECT(made != 0);
    DO(cuMemcpyDtoDAsync_v2(made, data, N * 8, on));
    DO(launch(gpu.mix, made, N, MICROS, on));
    DO(cuMemcpyDtoDAsync_v2(data, made, N * 8, on));
    DO(cuMemFreeAsync(made, on));
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, 1));
    /* More pageable memory than is copied aside: while the stream runs this is as ever. */
    DO(cuMemAlloc_v2(&made, sizeof many));
    for (unsigned i = 0; i < sizeof many / 8; i++) many[i] = i;
    DO(cuMemcpyHtoDAsync_v2(made, many, sizeof many, on));
    memset(many, 0, sizeof many);
    DO(cuMemcpyDtoHAsync_v2(many, made, sizeof many, on));
    DO(cuStreamSynchronize(on));
    EXPECT(many[1000] == 1000);
}

static void *restore_it(void *arrived) {
    DO(cuCtxSetCurrent(gpu.context));
    while (!atomic_load((atomic_int *)arrived)) sched_yield();
    for (int i = 0; i < 1000; i++) sched_yield();
    atomic_store(&restored, 1);
    WELL(restore(waited));
    return NULL;
}

/* Memory that a command which waits will use is not freed under it. */
static void frees(void) {
    atomic_int arrived = 0;
    pthread_t thread;
    CUdeviceptr data = numbers(N), used = numbers(N);
    waited = stream(CU_STREAM_NON_BLOCKING);
    stop(waited);
    DO(launch(gpu.mix, used, N, MICROS, waited));
    DO(cuMemcpyDtoDAsync_v2(data, used, N * 8, waited));
    EXPECT(pthread_create(&thread, NULL, restore_it, &arrived) == 0);
    atomic_store(&arrived, 1);
    DO(cuMemFree_v2(used));
    EXPECT(atomic_load(&restored));
    pthread_join(thread, NULL);
    DO(cuStreamSynchronize(waited));
    EXPECT(mixed(data, N, 1));
}

typedef CUresult Launch(CUfunction, CUdeviceptr, unsigned, unsigned, CUstream);

/* As `launch`, with the stream in a configuration. */
static CUresult launch_by_config(CUfunction kernel, CUdeviceptr data, unsigned n, unsigned micros, CUstream stream) {
    void *arguments[] = {&data, &n, &micros};
    LaunchConfig as = {.grid = {132, 1, 1}, .block = {256, 1, 1}, .stream = stream};
    return cuLaunchKernelEx(&as, kernel, arguments, NULL);
}

static void *own_stream(void *by_config) {
    Launch *launch_own = by_config ? launch_by_config : launch;
    sluice_preemption_config as = config();
    unsigned n = N, micros = MICROS;
    uint64_t host[N];
    DO(cuCtxSetCurrent(gpu.context));
    CUdeviceptr data = numbers(N);
    void *given[] = {&data, &n, &micros};
    DO(launch_own(gpu.mix, data, N, MICROS, CU_STREAM_PER_THREAD));
    WELL(enable(CU_STREAM_PER_THREAD, &as));
    stop(CU_STREAM_PER_THREAD);
    DO(cuLaunchKernel_ptsz(gpu.mix, 1, 1, 1, 32, 1, 1, 0, NULL, given, NULL));
    DO(launch_own(gpu.mix, data, N, MICROS, CU_STREAM_PER_THREAD));
    EXPECT(cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
    WELL(restore(CU_STREAM_PER_THREAD));
    /* A synchronous call on the thread's own stream names none. */
    DO(launch(gpu.spin, data, N, 20000, CU_STREAM_PER_THREAD));
    DO(launch_own(gpu.add, data, N, MICROS, CU_STREAM_PER_THREAD));
    DO(cuMemcpyDtoH_v2_ptds(host, data, sizeof host));
    uint64_t first = 0;
    for (int i = 0; i < 3; i++) first = first * 6364136223846793005u + 1442695040888963407u;
    EXPECT(host[0] == first + 1);
    DO(cuMemFree_v2(data));
    data = numbers(N);
    DO(launch_own(gpu.mix, data, N, 20000, CU_STREAM_PER_THREAD));
    DO(cuStreamSynchronize_ptsz(NULL));
    EXPECT(peek(data) != 0);
    EXPECT(mixed(data, N, 1));
    WELL(disable(CU_STREAM_PER_THREAD));
    first = peek(data) * 6364136223846793005u + 1442695040888963407u;
    DO(launch(gpu.spin, data, N, 20000, CU_STREAM_PER_THREAD));
    DO(launch(gpu.mix, data, N, MICROS, CU_STREAM_PER_THREAD));
    DO(launch_own(gpu.add, data, N, MICROS, CU_STREAM_PER_THREAD));
    DO(cuStreamSynchronize_ptsz(NULL));
    EXPECT(peek(data) == first + 1);
    return NULL;
}

/* A copy on the thread's own stream follows the launches before it, also if the driver has no memory for the event that orders them. If
 * the driver does not wait either, the copy is not made. */
static void refused_order(void) {
    uint64_t host[N] = {0};
    CUdeviceptr data = numbers(N);
    void (*refuse)(const char *, unsigned, unsigned);
    *(void **)&refuse = dlsym(RTLD_DEFAULT, "sluiceSimRefuse");
    EXPECT(refuse);
    for (int refused = 0; refused < 3; refused++) {
        DO(launch(gpu.add, data, N, 20000, CU_STREAM_PER_THREAD));
        if (refused > 0) refuse("cuEventRecord", CUDA_ERROR_OUT_OF_MEMORY, 1);
        if (refused > 1) refuse("cuStreamSynchronize", CUDA_ERROR_OUT_OF_MEMORY, 1);
        EXPECT(cuMemcpyDtoH_v2_ptds(host, data, sizeof host) == (refused > 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS));
        EXPECT(host[0] == (refused > 1 ? 2u : refused + 1u));
    }
    DO(cuCtxSynchronize());
    EXPECT(added(data, N, 3));
}

static void own(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) EXPECT(pthread_create(&threads[i], NULL, own_stream, i % 2 ? "by config" : NULL) == 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    refused_order();
}

static void outcomes(void) {
    CUstream on;
    sluice_preemption_config as = config();
    const char *reason = "";
    int can = -1;
    DO(cuStreamCreate(&on, CU_STREAM_NON_BLOCKING));
    EXPECT(preempt(on, 0, NULL) == SLUICE_NOT_ENABLED && restore(on) == SLUICE_NOT_ENABLED);
    EXPECT(disable(on) == SLUICE_NOT_ENABLED);
    as.batch_size = as.queue_size + 1;
    EXPECT(enable(on, &as) == SLUICE_INVALID);
    as = config();
    as.level = 3;
    EXPECT(enable(on, &as) == SLUICE_INVALID);
    as = config();
    as.size--;
    EXPECT(enable(on, &as) == SLUICE_INVALID);
    as = config();
    EXPECT(enable(on, &as) == SLUICE_OK && enable(on, &as) == SLUICE_ALREADY_ENABLED);
    as.queue_size = 64;
    WELL(enable(on, &as));
    WELL(restore(on));
    EXPECT(preempt(on, 0, NULL) == SLUICE_OK && preempt(on, 1, NULL) == SLUICE_OK);
    EXPECT(level_of(on, &can, &reason) == SLUICE_OK);
    SAY("can %d because %s", can, reason ? reason : "nothing is in the way");
    CUdeviceptr data = numbers(N);
    DO(launch(gpu.mix, data, N, MICROS, on));
    WELL(disable(on));
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, 1));
    EXPECT(restore(on) == SLUICE_NOT_ENABLED);
    WELL(enable(on, NULL));
    DO(cuCtxSetCurrent(NULL));
    EXPECT(enable(NULL, NULL) == SLUICE_NO_CONTEXT);
    DO(cuCtxSetCurrent(gpu.context));
    WELL(enable(NULL, &as));
    sluice_preemption achieved;
    EXPECT(preempt(NULL, 1, &achieved) == SLUICE_OK && achieved.level == SLUICE_LEVEL_HOST);
    WELL(restore(NULL));
}

/* What a driver refuses for lack of memory, or in a state that passes, is asked for again; what it has not is not. Each time in a
 * context of its own, and asked twice. */
static void refusals(void) {
    static const struct { const char *call; unsigned code; int passes; } refused[] = {
        {"cuMemHostRegister_v2", 2, 1},  {"cuStreamBatchMemOp_v2", 2, 1},   {"cuStreamCreate", 2, 1},
        {"cuStreamBatchMemOp_v2", 600, 1}, {"cuStreamBatchMemOp_v2", 802, 1}, {"cuStreamBatchMemOp_v2", 901, 1},
        {"cuMemHostRegister_v2", 1, 0},  {"cuStreamBatchMemOp_v2", 1, 0},   {"cuStreamBatchMemOp_v2", 801, 0},
    };
    void (*refuse)(const char *, unsigned, unsigned);
    *(void **)&refuse = dlsym(RTLD_DEFAULT, "sluiceSimRefuse");
    EXPECT(refuse);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CUcontext context;
        CUstream on;
        int can[2];
        const char *reason[2];
        DO(cuCtxCreate_v2(&context, 0, gpu.device));
        DO(cuStreamCreate(&on, CU_STREAM_NON_BLOCKING));
        refuse(refused[i].call, refused[i].code, 1);
        for (int time = 0; time < 2; time++) WELL(level_of(on, &can[time], &reason[time]));
        SAY("%s %u: %d, %s; then %d", refused[i].call, refused[i].code, can[0], reason[0], can[1]);
        EXPECT((can[1] > SLUICE_LEVEL_HOST) == refused[i].passes);
        if (refused[i].passes) {
            sluice_preemption_config as = config();
            WELL(enable(on, &as));
            stop(on);
        }
        DO(cuCtxDestroy_v2(context));
        DO(cuCtxSetCurrent(gpu.context));
    }
}

static void *load_once(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    load_kernels();
    return NULL;
}

/* The context of a module load that began before any preemption is unknown: while the load lasts, nothing is
 * stopped at gates. It waits here for a stream that the program itself has made wait. */
static void early(void) {
    atomic_uint *word;
    unsigned (*draining)(void);
    sluice_preemption achieved;
    CUstream beside;
    pthread_t loader;
    *(void **)&draining = dlsym(RTLD_DEFAULT, "sluiceSimDraining");
    EXPECT(draining);
    DO(cuMemAllocHost_v2((void **)&word, sizeof *word));
    atomic_init(word, 0);
    DO(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    DO(cuStreamWaitValue32_v2(beside, (CUdeviceptr)(uintptr_t)word, 1, 0));
    EXPECT(pthread_create(&loader, NULL, load_once, NULL) == 0);
    while (draining() == 0) sched_yield();
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    sluice_result result;
    do result = preempt(on, 1, &achieved);
    while (result == SLUICE_TIMEOUT);
    EXPECT(result == SLUICE_OK && achieved.level == SLUICE_LEVEL_HOST && draining() == 1);
    atomic_store(word, 1);
    pthread_join(loader, NULL);
    WELL(restore(on));
    stop(on);
}

static atomic_int idles;

static void idle(CUstream stream, void *expected) {
    EXPECT((void *)stream == expected);
    atomic_fetch_add(&idles, 1);
}

static void notices(void) {
    CUstream on;
    sluice_preemption_config as = config();
    CUdeviceptr data = numbers(N);
    DO(cuStreamCreate(&on, CU_STREAM_NON_BLOCKING));
    as.task_timeout_us = 2000;
    as.idle = idle;
    as.idle_argument = on;
    WELL(enable(on, &as));
    DO(launch(gpu.add, data, N, MICROS, on));
    while (atomic_load(&idles) < 1) sched_yield();
    DO(launch(gpu.add, data, N, MICROS, on));
    while (atomic_load(&idles) < 2) sched_yield();
    /* An outage ends by itself. */
    as.task_timeout_us = -1;
    as.outage_ms = 20;
    WELL(enable(on, &as));
    WELL(preempt(on, 0, NULL));
    DO(launch(gpu.add, data, N, MICROS, on));
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, 3));
}

static void forks(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N);
    stop(on);
    DO(launch(gpu.add, data, N, MICROS, on));
    pid_t child = fork();
    if (child == 0) {
        launch(gpu.add, data, N, MICROS, on);
        int refused = restore(on) == SLUICE_DISABLED && enable(on, NULL) == SLUICE_DISABLED;
        cuStreamSynchronize(on);
        _exit(refused ? 0 : EXIT_WRONG);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(cuStreamQuery(on) == CUDA_ERROR_NOT_READY);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, 1));
}

static void exits(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N);
    for (int i = 0; i < 30; i++) DO(launch(gpu.add, data, N, 200, on));
    WELL(preempt(on, 0, NULL));
    for (int i = 0; i < 30; i++) DO(launch(gpu.add, data, N, 200, on));
    exit(0);
}

static void contexts(void) {
    for (int round = 0; round < 10; round++) {
        CUcontext context;
        CUfunction mix;
        DO(cuCtxCreate_v2(&context, 0, gpu.device));
        DO(cuModuleGetFunction(&mix, load_kernels(), "mix"));
        CUdeviceptr data = numbers(N);
        CUstream on = stream(CU_STREAM_NON_BLOCKING);
        for (int i = 0; i < 10; i++) DO(launch(mix, data, N, 100, on));
        if (round % 2) stop(on);
        for (int i = 0; i < 10; i++) DO(launch(mix, data, N, 100, on));
        DO(cuCtxDestroy_v2(context));
        DO(cuCtxSetCurrent(gpu.context));
    }
}

static atomic_int reached;

static void reach(void *unused) {
    (void)unused;
    atomic_fetch_add(&reached, 1);
}

/* A preempted stream of the primary context, with a host function behind it that reports. */
static CUstream standing(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    stop(on);
    DO(cuLaunchHostFunc(on, reach, NULL));
    EXPECT(cuStreamQuery(on) == CUDA_ERROR_NOT_READY);
    return on;
}

/* A stream of the primary context stays preempted when one of several users releases the context, and runs before the context ends. */
static void retains(void) {
    CUcontext again;
    CUstream on = standing();
    for (int i = 0; i < 3; i++) {
        DO(cuDevicePrimaryCtxRetain(&again, gpu.device));
        if (i) DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    }
    DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    EXPECT(atomic_load(&reached) == 0 && cuStreamQuery(on) == CUDA_ERROR_NOT_READY);
    DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    EXPECT(atomic_load(&reached) == 1);
    gpu = open_gpu();
    DO(cuDevicePrimaryCtxRetain(&again, gpu.device));
    standing();
    DO(cuDevicePrimaryCtxReset_v2(gpu.device));
    EXPECT(atomic_load(&reached) == 2);
    /* How many retains a reset leaves is the driver's secret, so each release may be the last. */
    gpu = open_gpu();
    on = standing();
    DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    DO(cuStreamSynchronize(on));
    EXPECT(atomic_load(&reached) == 3);
}

/* A kernel is stopped in its middle; another use of the context resumes it. */
static void full(void) {
    char line[16];
    const char *reason = "";
    int can = -1;
    CUstream on = stream(CU_STREAM_NON_BLOCKING), other;
    CUdeviceptr data = numbers(N), beside = numbers(N);
    sluice_preemption achieved;
    WELL(level_of(on, &can, &reason));
    EXPECT(can == SLUICE_LEVEL_FULL && reason == NULL);
    DO(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DO(launch(gpu.mix, data, N, 1000000, on));
    SAY("launched");
    EXPECT(fgets(line, sizeof line, stdin) != NULL);
    stop(on);
    DO(launch(gpu.mix, data, N, MICROS, on));
    SAY("stopped");
    EXPECT(fgets(line, sizeof line, stdin) != NULL);
    DO(launch(gpu.mix, beside, N, MICROS, other));
    DO(cuStreamSynchronize(other));
    EXPECT(mixed(beside, N, 1));
    SAY("beside");
    EXPECT(cuStreamQuery(on) == CUDA_ERROR_NOT_READY);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, 2));
    /* With work on another stream it stops at its gates. */
    DO(launch(gpu.mix, beside, N, 200000, other));
    DO(launch(gpu.mix, data, N, 1000, on));
    DO(launch(gpu.mix, data, N, 1000, on));
    sluice_result result;
    do result = preempt(on, 1, &achieved);
    while (result == SLUICE_TIMEOUT);
    EXPECT(result == SLUICE_OK && achieved.level == SLUICE_LEVEL_DEVICE);
    WELL(restore(on));
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, N, 4) && mixed(beside, N, 2));
    /* A group that is stopped at the end would stay so. */
    stop(on);
}

int main(int count, char **given) {
    static const struct { const char *name; void (*part)(void); } parts[] = {
        {"order", order},         {"ring", ring},     {"waits", waits},       {"arguments", arguments}, {"destroyed", destroyed},
        {"events", events},       {"two", two},       {"legacy", legacy},     {"functions", functions}, {"graphs", graphs},
        {"memory", memory},       {"own", own},       {"outcomes", outcomes}, {"notices", notices},     {"forks", forks},
        {"exits", exits},         {"contexts", contexts}, {"full", full},         {"frees", frees},
        {"refusals", refusals}, {"retains", retains},   {"early", early},
    };
    look_up();
    gpu = open_gpu();
    level = count > 2 ? atoi(given[2]) : 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (count > 1 && !strcmp(parts[i].name, given[1])) {
            parts[i].part();
            SAY("done");
            return 0;
        }
    }
    return EXIT_BROKEN;
}

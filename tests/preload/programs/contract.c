/* contract NUMBER LEVEL: one of the black-box tests of the preemption contract, at level 0 (host), 1 (device) or 2 (full). The same
 * program runs on the simulated GPU and on a real one, where it does more of everything.
 *
 * Exit status: 0 if the contract holds, 10 to 12 as in the other programs, 77 with a line on stderr if the case cannot be tried. */
#include "preempt.h"
#include <fcntl.h>
#include <time.h>

enum { CANNOT = 77 };

#define CANNOT_BECAUSE(...)                                                                                            \
    do {                                                                                                               \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        exit(CANNOT);                                                                                                  \
    } while (0)

/* So many on the simulated GPU, so many on a real one. */
static int times(int simulated, int real) { return is_real ? real : simulated; }

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double middle_us(uint64_t *took, int count) {
    qsort(took, (size_t)count, sizeof *took, by_value);
    return (double)took[count / 2] / 1e3;
}

/* 1 and 3: kernels that must neither be lost, nor run twice, nor change places. */
static void one(void) {
    const int count = times(3000, 100000);
    CUdeviceptr data = numbers(N);
    Toggler toggler = {.streams = {stream(CU_STREAM_NON_BLOCKING)}, .count = 1, .seed = 7, .progress = data};
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, toggle, &toggler) == 0);
    for (int i = 0; i < count; i++) DO(launch(gpu.mix, data, N, 1, toggler.streams[0]));
    DO(cuStreamSynchronize(toggler.streams[0]));
    end_toggling(&toggler, thread);
    EXPECT(mixed(data, N, (unsigned long)count));
}

/* 2: eight streams hand one piece of memory round by events. */
static void two(void) {
    const int count = times(800, 20000);
    CUdeviceptr data = numbers(N);
    Toggler togglers[2] = {{.count = 4, .seed = 11, .progress = data}, {.count = 4, .seed = 12, .progress = data}};
    pthread_t threads[2];
    CUstream streams[8];
    CUevent done;
    DO(cuEventCreate(&done, 2));
    for (int i = 0; i < 8; i++)
        streams[i] = togglers[i / 4].streams[i % 4] = stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    for (int i = 0; i < 2; i++) EXPECT(pthread_create(&threads[i], NULL, toggle, &togglers[i]) == 0);
    for (int i = 0; i < count; i++) {
        DO(cuStreamWaitEvent(streams[i % 8], done, 0));
        DO(launch(gpu.mix, data, N, 1, streams[i % 8]));
        DO(cuEventRecord(done, streams[i % 8]));
    }
    DO(cuEventSynchronize(done));
    for (int i = 0; i < 2; i++) end_toggling(&togglers[i], threads[i]);
    EXPECT(mixed(data, N, (unsigned long)count));
}

static atomic_int restored, arrived;
static CUstream waited;

static void *wait_for_it(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    atomic_store(&arrived, 1);
    DO(cuStreamSynchronize(waited));
    EXPECT(atomic_load(&restored));
    return NULL;
}

/* 4: questions are answered at once, waits last until the stream is restored. */
static void four(void) {
    enum { ASKED = 1001 };
    static uint64_t took[ASKED];
    pthread_t thread;
    CUdeviceptr data = numbers(N);
    CUevent event;
    waited = stream(CU_STREAM_NON_BLOCKING);
    DO(cuEventCreate(&event, 2));
    stop(waited);
    DO(launch(gpu.add, data, N, MICROS, waited));
    DO(cuEventRecord(event, waited));
    for (int i = 0; i < ASKED; i++) {
        uint64_t begun = now_ns();
        EXPECT(cuStreamQuery(waited) == CUDA_ERROR_NOT_READY && cuEventQuery(event) == CUDA_ERROR_NOT_READY);
        took[i] = now_ns() - begun;
    }
    EXPECT(pthread_create(&thread, NULL, wait_for_it, NULL) == 0);
    while (!atomic_load(&arrived)) sched_yield();
    EXPECT(peek(data) == 0);
    atomic_store(&restored, 1);
    WELL(restore(waited));
    pthread_join(thread, NULL);
    EXPECT(added(data, N, 1));
    SAY("two questions took %.2f us", middle_us(took, ASKED));
}

/* 5: once preempt has returned no more than was on its way is done; once it has waited, nothing more. On the simulated GPU there are more
 * kernels than may complete after the call, and together the permitted ones take longer than a busy machine delays the simulator. */
static void five(void) {
    const int kernels = times(level ? 8 : 200, 400);
    const unsigned micros = (unsigned)times(level ? 150000 : 20000, 200);
    const unsigned beside_micros = (unsigned)times((int)micros / 4, 500);
    CUdeviceptr data = numbers(N);
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < kernels; i++) DO(launch(gpu.add, data, N, micros, on));
    while (peek(data) < 3) {}
    WELL(preempt(on, 0, NULL));
    uint64_t soon = peek(data);
    stop(on);
    uint64_t stopped = peek(data);
    /* The queue of the default configuration, and the one that was running; behind gates the one that was running, and one whose gate
     * the GPU had come to. */
    EXPECT(stopped - soon <= (level ? 2 : 33) && stopped < (uint64_t)kernels);
    /* On the simulated GPU another stream's work takes as long as five of the kernels. */
    CUdeviceptr other = numbers(N);
    CUstream beside;
    DO(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 20; i++) DO(launch(gpu.add, other, N, beside_micros, beside));
    DO(cuStreamSynchronize(beside));
    EXPECT(peek(data) == stopped);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, (unsigned long)kernels));
    SAY("stopped after %llu of %d, %llu of them after the call", (unsigned long long)stopped, kernels,
        (unsigned long long)(stopped - soon));
}

/* 6: submissions to a preempted stream return, thousands of them, and none is done before it is restored. */
static void six(void) {
    enum { COUNT = 5000 };
    static uint64_t took[COUNT];
    CUdeviceptr data = numbers(N);
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    stop(on);
    for (int i = 0; i < COUNT; i++) {
        uint64_t begun = now_ns();
        DO(launch(gpu.add, data, N, 1, on));
        took[i] = now_ns() - begun;
    }
    EXPECT(peek(data) == 0);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, COUNT));
    SAY("a submission took %.2f us", middle_us(took, COUNT));
}

/* 7 and 8: what a call was given may be overwritten. */
static void seven(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N), other = numbers(N), pointer = data;
    unsigned n = N, micros = MICROS;
    void *given[] = {&pointer, &n, &micros};
    uint64_t source[N];
    for (int i = 0; i < N; i++) source[i] = (uint64_t)i + 5;
    stop(on);
    DO(cuLaunchKernel(gpu.mix, 1, 1, 1, N, 1, 1, 0, on, given, NULL));
    DO(cuMemcpyHtoDAsync_v2(other, source, sizeof source, on));
    pointer = 0, n = 0, micros = 100000, given[0] = NULL;
    memset(source, 0, sizeof source);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, 1) && added(other, N, 5));
}

static void *restore_it(void *unused) {
    (void)unused;
    while (!atomic_load(&arrived)) sched_yield();
    atomic_store(&restored, 1);
    WELL(restore(waited));
    return NULL;
}

/* 9: a copy to pageable memory returns when the data are there, and so not before the stream is restored. */
static void nine(void) {
    pthread_t thread;
    CUdeviceptr data = numbers(N);
    uint64_t *pageable = calloc(N, sizeof *pageable);
    waited = stream(CU_STREAM_NON_BLOCKING);
    stop(waited);
    DO(launch(gpu.add, data, N, MICROS, waited));
    EXPECT(pthread_create(&thread, NULL, restore_it, NULL) == 0);
    atomic_store(&arrived, 1);
    DO(cuMemcpyDtoHAsync_v2(pageable, data, N * sizeof *pageable, waited));
    EXPECT(atomic_load(&restored));
    DO(cuStreamSynchronize(waited));
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < N; i++) EXPECT(pageable[i] == i + 1);
}

/* 10: memory in stream order is there at once. */
static void ten(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING), beside;
    CUdeviceptr made = 0, data = numbers(N);
    stop(on);
    DO(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    DO(cuMemAllocAsync(&made, N * 8, on));
    EXPECT(made != 0);
    DO(cuMemcpyDtoDAsync_v2(made, data, N * 8, on));
    DO(launch(gpu.mix, made, N, MICROS, on));
    DO(cuMemcpyDtoDAsync_v2(data, made, N * 8, on));
    DO(cuMemFreeAsync(made, on));
    EXPECT(peek(data) == 0);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, 1));
}

/* Pages of memory that the process has. */
static long resident(void) {
    char text[128] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    long all, in_memory;
    EXPECT(sscanf(text, "%ld %ld", &all, &in_memory) == 2);
    return in_memory;
}

/* 11: streams are destroyed while preempted; their work is done when they are restored, and nothing is left of them. */
static void eleven(void) {
    const int rounds = times(400, 10000), settled = rounds / 4;
    CUdeviceptr data = numbers(N);
    long before = 0;
    /* The driver itself may keep memory of destroyed streams; that is not counted. */
    for (int i = 0; i < rounds; i++) {
        CUstream plain;
        if (i == settled) before = resident();
        DO(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
        DO(launch(gpu.spin, data, N, 1, plain));
        DO(cuStreamDestroy_v2(plain));
        DO(cuCtxSynchronize());
    }
    long drivers = resident() - before;
    for (int i = 0; i < rounds; i++) {
        if (i == settled) before = resident();
        CUstream on = stream(CU_STREAM_NON_BLOCKING);
        stop(on);
        DO(launch(gpu.add, data, N, 1, on));
        DO(cuStreamDestroy_v2(on));
        if (i < 10) EXPECT(peek(data) == (uint64_t)i);
        WELL(restore(on));
        DO(cuCtxSynchronize());
    }
    EXPECT(added(data, N, (unsigned long)rounds));
    long grown = resident() - before;
    SAY("%ld pages more after %d rounds, %ld by the driver alone", grown, rounds - settled, drivers);
    if (drivers > 0) grown -= drivers;
    /* Less than a hundred bytes each: streams that stayed would be thousands. */
    EXPECT(grown * 4096 < (rounds - settled) * 100L + (2 << 20));
}

/* 12: events are destroyed while their record waits. */
static void twelve(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING), other = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N);
    stop(on);
    stop(other);
    for (int i = 0; i < 100; i++) {
        CUevent event;
        DO(cuEventCreate(&event, 2));
        DO(launch(gpu.mix, data, N, 1, on));
        DO(cuEventRecord(event, on));
        DO(cuStreamWaitEvent(other, event, 0));
        DO(launch(gpu.mix, data, N, 1, other));
        DO(cuEventRecord(event, other));
        DO(cuStreamWaitEvent(on, event, 0));
        DO(cuEventDestroy_v2(event));
    }
    EXPECT(peek(data) == 0);
    WELL(restore(other));
    WELL(restore(on));
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, N, 200));
}

static int calls;
static int numbers_called[1000];

static void called(void *number) { numbers_called[calls++] = (int)(intptr_t)number; }

/* 13: host functions run once and in order. */
static void thirteen(void) {
    enum { COUNT = 200 };
    CUdeviceptr data = numbers(N);
    Toggler toggler = {.streams = {stream(CU_STREAM_NON_BLOCKING)}, .count = 1, .seed = 3, .progress = data};
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, toggle, &toggler) == 0);
    for (int i = 0; i < COUNT; i++) {
        DO(launch(gpu.mix, data, N, 1, toggler.streams[0]));
        DO(cuLaunchHostFunc(toggler.streams[0], called, (void *)(intptr_t)i));
    }
    DO(cuStreamSynchronize(toggler.streams[0]));
    end_toggling(&toggler, thread);
    EXPECT(calls == COUNT && mixed(data, N, COUNT));
    for (int i = 0; i < COUNT; i++) EXPECT(numbers_called[i] == i);
}

/* 14 and 15: a capture in global mode while another stream is preempted, and while what it held is being handed over. */
static void fourteen(void) {
    CUstream other = stream(CU_STREAM_NON_BLOCKING), captured = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N), beside = numbers(N);
    const int rounds = times(10, 50);
    for (int round = 0; round < rounds; round++) {
        CUgraph graph;
        CUgraphExec exec;
        stop(other);
        for (int i = 0; i < 500; i++) DO(launch(gpu.add, beside, N, 1, other));
        DO(cuStreamBeginCapture_v2(captured, CAPTURE_GLOBAL));
        if (round % 2) WELL(restore(other));
        for (int i = 0; i < 3; i++) DO(launch(gpu.mix, data, N, 1, captured));
        DO(cuStreamEndCapture(captured, &graph));
        DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
        DO(cuGraphLaunch(exec, captured));
        DO(cuStreamSynchronize(captured));
        WELL(restore(other));
        DO(cuStreamSynchronize(other));
        DO(cuGraphExecDestroy(exec));
        DO(cuGraphDestroy(graph));
    }
    EXPECT(mixed(data, N, 3ul * (unsigned long)rounds) && added(beside, N, 500ul * (unsigned long)rounds));
}

/* 16: the order by the legacy default stream holds for every set of preempted streams; a non-blocking stream is not part of it. */
static void sixteen(void) {
    for (unsigned stopped_set = 0; stopped_set < 8; stopped_set++) {
        CUstream one = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_DEFAULT), free = stream(CU_STREAM_NON_BLOCKING);
        CUdeviceptr data = numbers(N), beside = numbers(N);
        if (stopped_set & 1) stop(one);
        if (stopped_set & 2) stop(other);
        if (stopped_set & 4) stop(free);
        for (int i = 0; i < 5; i++) {
            DO(launch(gpu.mix, data, N, 50, one));
            DO(launch(gpu.mix, data, N, 1, NULL));
            DO(launch(gpu.mix, data, N, 50, other));
            DO(launch(gpu.mix, data, N, 1, NULL));
            DO(launch(gpu.add, beside, N, 1, free));
        }
        if (!(stopped_set & 4)) {
            DO(cuStreamSynchronize(free));
            EXPECT(peek(beside) == 5);
        }
        WELL(restore(other));
        WELL(restore(one));
        WELL(restore(free));
        DO(cuCtxSynchronize());
        EXPECT(mixed(data, N, 20) && added(beside, N, 5));
        DO(cuStreamDestroy_v2(one));
        DO(cuStreamDestroy_v2(other));
        DO(cuStreamDestroy_v2(free));
    }
}

static pthread_barrier_t in_step;

static void *own_stream(void *unused) {
    (void)unused;
    sluice_preemption_config as = config();
    DO(cuCtxSetCurrent(gpu.context));
    CUdeviceptr data = numbers(N);
    /* The copies of numbers() and mixed() are on the legacy default stream, which runs: it lets through what a stopped stream holds. */
    pthread_barrier_wait(&in_step);
    WELL(enable(CU_STREAM_PER_THREAD, &as));
    for (int i = 0; i < 20; i++) {
        stop(CU_STREAM_PER_THREAD);
        DO(launch(gpu.mix, data, N, 1, CU_STREAM_PER_THREAD));
        EXPECT(cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
        WELL(restore(CU_STREAM_PER_THREAD));
    }
    DO(cuStreamSynchronize_ptsz(NULL));
    pthread_barrier_wait(&in_step);
    EXPECT(mixed(data, N, 20));
    return NULL;
}

/* 17: sixteen threads with a default stream each. */
static void seventeen(void) {
    pthread_t threads[16];
    EXPECT(pthread_barrier_init(&in_step, NULL, 16) == 0);
    for (int i = 0; i < 16; i++) EXPECT(pthread_create(&threads[i], NULL, own_stream, NULL) == 0);
    for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
}

/* 18: a stream that runs waits for one that is preempted: what it waits for is let through, and no more. */
static void eighteen(void) {
    CUstream stopped = stream(CU_STREAM_NON_BLOCKING), running;
    CUdeviceptr data = numbers(N);
    CUevent event;
    DO(cuStreamCreate(&running, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&event, 2));
    stop(stopped);
    DO(launch(gpu.mix, data, N, MICROS, stopped));
    DO(cuEventRecord(event, stopped));
    DO(launch(gpu.add, data, N, MICROS, stopped));
    DO(cuStreamWaitEvent(running, event, 0));
    DO(launch(gpu.mix, data, N, MICROS, running));
    DO(cuStreamSynchronize(running));
    EXPECT(mixed(data, N, 2));
    WELL(restore(stopped));
    DO(cuStreamSynchronize(stopped));
    EXPECT(!mixed(data, N, 2));
}

/* 19: errors are reported: at once where that is possible, otherwise at the next wait and at every later call; the process lives. */
static void nineteen(void) {
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr data = numbers(N), nowhere = 0x10;
    unsigned n = N, micros = 1;
    void *given[] = {&nowhere, &n, &micros};
    stop(on);
    EXPECT(cuLaunchKernel(gpu.mix, 1, 1, 1, 4096, 1, 1, 0, on, given, NULL) != CUDA_SUCCESS);
    EXPECT(cuLaunchKernel(gpu.mix, 0, 1, 1, 32, 1, 1, 0, on, given, NULL) != CUDA_SUCCESS);
    DO(launch(gpu.mix, data, N, 1, on));
    DO(cuLaunchKernel(gpu.mix, 1, 1, 1, 32, 1, 1, 0, on, given, NULL));
    WELL(restore(on));
    CUresult first = cuStreamSynchronize(on);
    EXPECT(first == 700 || first == 719);
    EXPECT(cuStreamSynchronize(on) == first && cuCtxSynchronize() == first);
    EXPECT(launch(gpu.mix, data, N, 1, on) == first);
    restore(on);
    disable(on);
    SAY("reported %d", first);
}

/* 20: a stream in one context is preempted, another in another context is not. */
static void twenty(void) {
    CUcontext other;
    CUfunction mix;
    CUdeviceptr data = numbers(N);
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    peek(data);
    stop(on);
    DO(launch(gpu.mix, data, N, MICROS, on));
    DO(cuCtxCreate_v2(&other, 0, gpu.device));
    DO(cuModuleGetFunction(&mix, load_kernels(), "mix"));
    CUstream beside = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr its = numbers(N);
    for (int i = 0; i < 50; i++) DO(launch(mix, its, N, MICROS, beside));
    DO(cuCtxSynchronize());
    EXPECT(mixed(its, N, 50));
    DO(cuCtxDestroy_v2(other));
    DO(cuCtxSetCurrent(gpu.context));
    EXPECT(peek(data) == 0);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, 1));
}

/* 21: runs until its input ends; each line on stdin is answered with the number of kernels done so far. */
static void twenty_one(void) {
    char line[16];
    CUdeviceptr data = numbers(N);
    CUstream on;
    DO(cuStreamCreate(&on, CU_STREAM_NON_BLOCKING));
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < 20; i++) DO(launch(gpu.add, data, N, 500, on));
        SAY("done %llu", (unsigned long long)peek(data));
    }
    DO(cuStreamSynchronize(on));
}

/* 22: keeps a stream preempted until it is killed. */
static void twenty_two(void) {
    CUdeviceptr data = numbers(N);
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 100; i++) DO(launch(gpu.add, data, N, 500, on));
    stop(on);
    for (int i = 0; i < 100; i++) DO(launch(gpu.add, data, N, 500, on));
    SAY("preempted");
    for (;;) pause();
}

/* 26: a kernel that would never end is taken off the GPU. */
static void twenty_six(void) {
    CUfunction endless;
    const char *reason = NULL;
    int can = 0;
    if (!is_real) CANNOT_BECAUSE("the simulated GPU has no endless kernel");
    CUstream on = stream(CU_STREAM_NON_BLOCKING), beside;
    WELL(level_of(on, &can, &reason));
    if (can < SLUICE_LEVEL_FULL) CANNOT_BECAUSE("level full: %s", reason ? reason : "not to be had");
    DO(cuModuleGetFunction(&endless, load_kernels(), "endless"));
    CUdeviceptr word = numbers(N), data = numbers(N);
    uint64_t *one;
    DO(cuMemAllocHost_v2((void **)&one, sizeof *one));
    *one = 1;
    DO(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    DO(launch(endless, word, 1, 0, on));
    sluice_preemption achieved;
    WELL(preempt(on, 1, &achieved));
    EXPECT(achieved.level == SLUICE_LEVEL_FULL);
    WELL(restore(on));
    DO(cuMemcpyHtoDAsync_v2(word, one, sizeof *one, beside));
    DO(launch(gpu.add, data, N, 1, on));
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, 1));
}

/* 27: the cost of a launch without preemption. Without Sluice there is nothing to enable. */
static void twenty_seven(void) {
    enum { COUNT = 100000, BATCH = 100, EVERY = COUNT / BATCH };
    static uint64_t took[EVERY];
    CUstream plain;
    CUdeviceptr data = numbers(N);
    const int every = times(20, EVERY);
    DO(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    for (int which = 0; which < (preempt ? 2 : 1); which++) {
        CUstream on = which ? stream(CU_STREAM_NON_BLOCKING) : plain;
        for (int i = 0; i < every; i++) {
            uint64_t begun = now_ns();
            for (int k = 0; k < BATCH; k++) DO(launch(gpu.spin, data, N, 0, on));
            took[i] = now_ns() - begun;
            DO(cuStreamSynchronize(on));
        }
        SAY("%s %.0f ns for a launch", which ? "enabled" : "plain", middle_us(took, every) * 1e3 / BATCH);
    }
}

/* 28: a stream is enabled and disabled again and again, with work on it. */
static void twenty_eight(void) {
    const int rounds = times(2000, 100000);
    CUdeviceptr data = numbers(N);
    CUstream on;
    sluice_preemption_config as = config();
    long before = 0;
    DO(cuStreamCreate(&on, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < rounds; i++) {
        if (i == rounds / 4) before = resident();
        WELL(enable(on, &as));
        if (i % 100 == 0) DO(launch(gpu.mix, data, N, 1, on));
        WELL(disable(on));
    }
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, (unsigned long)rounds / 100));
    EXPECT((resident() - before) * 4096 < (2 << 20));
}

/* 29: memory is freed in one context while a stream of another is preempted. */
static void twenty_nine(void) {
    CUcontext other;
    CUdeviceptr data = numbers(N), freed;
    CUstream on = stream(CU_STREAM_NON_BLOCKING);
    peek(data);
    stop(on);
    DO(launch(gpu.mix, data, N, MICROS, on));
    DO(cuCtxCreate_v2(&other, 0, gpu.device));
    for (int i = 0; i < 10; i++) {
        DO(cuMemAlloc_v2(&freed, 1 << 20));
        DO(cuMemFree_v2(freed));
    }
    DO(cuCtxSetCurrent(gpu.context));
    EXPECT(peek(data) == 0);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(mixed(data, N, 1));
    DO(cuCtxDestroy_v2(other));
}

/* 30: launches of cooperating blocks, and of clusters where there are any. */
static void thirty(void) {
    struct { int id; char pad[4]; struct { unsigned x, y, z; char rest[52]; } value; } cluster = {4, "", {2, 1, 1, ""}};
    unsigned n = N, micros = MICROS;
    CUdeviceptr data = numbers(N);
    void *given[] = {&data, &n, &micros};
    Toggler toggler = {.streams = {stream(CU_STREAM_NON_BLOCKING)}, .count = 1, .seed = 5, .progress = data};
    CUstream on = toggler.streams[0];
    const int rounds = times(200, 2000);
    pthread_t thread;
    int clusters = 0;
    EXPECT(pthread_create(&thread, NULL, toggle, &toggler) == 0);
    for (int i = 0; i < rounds; i++) {
        LaunchConfig as = {.grid = {4, 1, 1}, .block = {32, 1, 1}, .stream = on, .attributes = &cluster, .attribute_count = 1};
        DO(cuLaunchCooperativeKernel(gpu.mix, 4, 1, 1, 32, 1, 1, 0, on, given));
        if (!is_real) continue;
        DO(cuLaunchKernelEx(&as, gpu.mix, given, NULL));
        clusters++;
    }
    DO(cuStreamSynchronize(on));
    end_toggling(&toggler, thread);
    EXPECT(mixed(data, N, (unsigned long)(rounds + clusters)));
    SAY("%d cooperative launches, %d of clusters", rounds, clusters);
}

/* For 31: "add" with more local memory than any kernel before it. */
static const char DEEP[] = "SLUICE-SIM 1\nkernel deep params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000 local=16384 effect=add\n";
static const char DEEP_PTX[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry deep(.param .u64 ptr, .param .u32 n, .param .u32 iters)\n{\n.local .align 8 .b8 stack[16384];\n"
    ".reg .pred %p;\n.reg .b32 %i, %w;\n.reg .b64 %at, %value, %wide, %own, %other;\n"
    "mov.u32 %i, %ctaid.x;\nmov.u32 %w, %ntid.x;\nmul.lo.u32 %i, %i, %w;\nmov.u32 %w, %tid.x;\nadd.u32 %i, %i, %w;\n"
    "ld.param.u32 %w, [n];\nsetp.ge.u32 %p, %i, %w;\n@%p bra END;\nld.param.u64 %at, [ptr];\ncvta.to.global.u64 %at, %at;\n"
    "mul.wide.u32 %wide, %i, 8;\nadd.u64 %at, %at, %wide;\nld.global.u64 %value, [%at];\n"
    /* 1 at the thread's own place, 0 at another one, and which those are is not known before. */
    "mov.u64 %other, stack;\nadd.u64 %own, %other, %wide;\nmul.wide.u32 %wide, %w, 8;\nadd.u64 %other, %other, %wide;\n"
    "mov.u64 %wide, 1;\nst.local.u64 [%own], %wide;\nmov.u64 %wide, 0;\nst.local.u64 [%other], %wide;\n"
    "ld.local.u64 %wide, [%own];\nadd.u64 %value, %value, %wide;\n" PTX_END;

enum { LOADS = 30 };
static atomic_int begun_loads, ended_loads;

static void *load_again_and_again(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    for (int i = 0; i < LOADS; i++) {
        atomic_store(&begun_loads, i + 1);
        load_kernels();
        atomic_store(&ended_loads, i + 1);
    }
    return NULL;
}

/* 31: on a stream that runs, while another waits at a gate, a kernel is loaded and launched for the first time, and one that needs more
 * local memory than any before it. For both a driver waits until all is done that it has of the context. Then one thread loads again and
 * again, and another one stops the stream about when a load begins, and restores it when that has ended. */
static void thirty_one(void) {
    CUfunction fresh, deep;
    CUmodule module;
    CUstream on = stream(CU_STREAM_NON_BLOCKING), beside;
    CUdeviceptr data = numbers(N), its = numbers(N), deeper = numbers(N);
    const unsigned long kernels = 100;
    DO(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    DO(cuModuleLoadData(&module, is_real ? DEEP_PTX : DEEP));
    DO(cuModuleGetFunction(&deep, module, "deep"));
    for (unsigned long i = 0; i < kernels; i++) DO(launch(gpu.add, data, N, 200, on));
    stop(on);
    DO(cuModuleGetFunction(&fresh, load_kernels(), "mix"));
    DO(launch(fresh, its, N, MICROS, beside));
    DO(cuStreamSynchronize(beside));
    EXPECT(mixed(its, N, 1) && peek(data) < kernels);
    /* A capture launches nothing. */
    CUgraph captured;
    DO(cuStreamBeginCapture(beside, 0));
    DO(launch(deep, deeper, N, MICROS, beside));
    DO(cuStreamEndCapture(beside, &captured));
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, kernels));
    for (unsigned long i = 0; i < kernels; i++) DO(launch(gpu.add, data, N, 200, on));
    stop(on);
    for (int i = 0; i < 2; i++) DO(launch(deep, deeper, N, MICROS, beside));
    DO(cuStreamSynchronize(beside));
    EXPECT(added(deeper, N, 2) && peek(data) < 2 * kernels);
    WELL(restore(on));
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, 2 * kernels));
    pthread_t loader;
    unsigned long more = 0;
    EXPECT(pthread_create(&loader, NULL, load_again_and_again, NULL) == 0);
    for (int ended; (ended = atomic_load(&ended_loads)) < LOADS; more += 4) {
        for (int i = 0; i < 4; i++) DO(launch(gpu.add, data, N, 200, on));
        while (atomic_load(&begun_loads) == ended) {}
        sluice_result result = preempt(on, more % 8 == 0, NULL);
        EXPECT(result == SLUICE_OK || result == SLUICE_TIMEOUT);
        while (atomic_load(&ended_loads) == ended) sched_yield();
        WELL(restore(on));
    }
    pthread_join(loader, NULL);
    DO(cuStreamSynchronize(on));
    EXPECT(added(data, N, 2 * kernels + more));
}

/* A driver loads a kernel when it is first launched, which takes milliseconds and may wait for the whole context: not in the middle of
 * what is tested, but in 31. With n of 0 none changes anything. */
static void load_all(void) {
    const CUfunction all[] = {gpu.mix, gpu.add, gpu.spin};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) DO(launch(all[i], 0, 0, 0, NULL));
    DO(cuCtxSynchronize());
}

int main(int count, char **given) {
    static const struct { int number; void (*part)(void); } parts[] = {
        {1, one},        {2, two},         {3, one},          {4, four},         {5, five},         {6, six},
        {7, seven},      {8, seven},       {9, nine},         {10, ten},         {11, eleven},      {12, twelve},
        {13, thirteen},  {14, fourteen},   {15, fourteen},    {16, sixteen},     {17, seventeen},   {18, eighteen},
        {19, nineteen},  {20, twenty},     {21, twenty_one},  {22, twenty_two},  {26, twenty_six},  {27, twenty_seven},
        {28, twenty_eight}, {29, twenty_nine}, {30, thirty},       {31, thirty_one},
    };
    const int number = count > 1 ? atoi(given[1]) : 0;
    if (number != 27 || dlsym(RTLD_DEFAULT, "sluice_preempt")) look_up();
    gpu = open_gpu();
    if (is_real) load_all();
    level = count > 2 ? atoi(given[2]) : 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].number == number) {
            parts[i].part();
            SAY("done");
            return 0;
        }
    }
    return EXIT_BROKEN;
}

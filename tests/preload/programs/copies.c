/* copies: a latency-critical service: each request copies its input from pinned memory, computes, copies its answer to pinned memory and
 * waits. Prints a line when it is ready; then each line on stdin is a command:
 *   requests N     runs N requests; prints the median of their times on the GPU in us and how many copies a kernel made
 *   until-kernel   runs requests until a kernel has made the copies of 20 in a row, and prints a line; gives up after PATIENCE requests
 *   random N SEED  runs N requests with inputs and answers of random sizes and alignments, and compares each byte, also those around;
 *                  prints how many copies a kernel made and how many it could not
 *   graph N        captures a request and launches it N times; prints how many copies a kernel made, and the nodes of the graph
 *   unregistered   copies from memory that was registered and is not any more; prints how many copies of it a kernel made before and after
 *   beside N       copies N times there and back while a kernel runs on another stream; prints how many copies a kernel made
 *   mapped         copies into the mapped part of reserved addresses and past its end; prints how many copies of each a kernel made
 *   read-only      copies to memory that the GPU may only read, which ends the context; prints how many copies a kernel made
 *   streams        copies on the default streams and on one of its own, with a kernel before and after each; prints a line */
#include "common.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>

enum { INPUT = 300000, LARGEST = 1 << 20, AROUND = 64, MODEL_US = 1500, PAUSE_US = 1000, PATIENCE = 2000, STEADY = 20, N = 64, COUNTERS = 9 };

CUresult cuMemHostUnregister(void *);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUhandle, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuGraphGetNodes(CUgraph, void **, size_t *);

static size_t (*copy_counters)(uint64_t *, size_t);
static Gpu gpu;
static CUstream stream;
static CUevent begun, ended;
static CUdeviceptr words, data;
static unsigned char *input, *answer;
static float times[4096];

static uint64_t made(void) {
    uint64_t all[COUNTERS];
    EXPECT(copy_counters(all, COUNTERS) == COUNTERS);
    return all[0];
}

static uint64_t refused(void) {
    uint64_t all[COUNTERS], sum = 0;
    EXPECT(copy_counters(all, COUNTERS) == COUNTERS);
    for (int i = 1; i < COUNTERS; i++) sum += all[i];
    return sum;
}

static float request(void) {
    float ms;
    DO(cuEventRecord(begun, stream));
    DO(cuMemcpyHtoDAsync_v2(data, input, INPUT, stream));
    DO(launch(gpu.spin, words, N, MODEL_US, stream));
    DO(cuEventRecord(ended, stream));
    DO(cuMemcpyDtoHAsync_v2(answer, data, N, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuEventElapsedTime(&ms, begun, ended));
    EXPECT(!memcmp(answer, input, N));
    input[0]++;
    /* Not in step with the time slices of a copy engine, which last 1024 us. */
    usleep(PAUSE_US + rand() % 1024);
    return ms;
}

static int by_time(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void requests(unsigned long count) {
    uint64_t before = made();
    EXPECT(count <= sizeof times / sizeof *times);
    for (unsigned long i = 0; i < count; i++) times[i] = request();
    qsort(times, count, sizeof *times, by_time);
    SAY("median %.0f made %lu", 1000 * times[count / 2], (unsigned long)(made() - before));
}

static void until_kernel(void) {
    int steady = 0;
    for (int i = 0; i < PATIENCE && steady < STEADY; i++) {
        uint64_t before = made();
        request();
        steady = made() == before + 2 ? steady + 1 : 0;
    }
    SAY("%s", steady == STEADY ? "by kernel" : "by copy engine");
}

/* Copies `bytes` bytes there and back, each between places of any alignment, and checks them and their surroundings. */
static void there_and_back(unsigned char *from, unsigned char *to, size_t bytes, size_t at_host, size_t at_device, size_t at_answer) {
    memset(to, 0x5a, LARGEST + 2 * AROUND);
    DO(cuMemsetD8Async(data, 0xa5, LARGEST + 2 * AROUND, stream));
    DO(cuStreamSynchronize(stream));
    usleep(PAUSE_US / 10);
    DO(cuMemcpyHtoDAsync_v2(data + at_device, from + at_host, bytes, stream));
    DO(launch(gpu.spin, words, N, 10, stream));
    DO(cuMemcpyAsync((CUdeviceptr)(uintptr_t)(to + at_answer), data + at_device, bytes, stream));
    DO(cuStreamSynchronize(stream));
    EXPECT(!memcmp(to + at_answer, from + at_host, bytes));
    for (size_t i = 0; i < at_answer; i++) EXPECT(to[i] == 0x5a);
    for (size_t i = at_answer + bytes; i < LARGEST + 2 * AROUND; i++) EXPECT(to[i] == 0x5a);
    static unsigned char around[2 * AROUND];
    DO(cuMemcpyDtoH_v2(around, data + at_device + bytes, AROUND));
    for (size_t i = 0; i < AROUND - at_device % AROUND; i++) EXPECT(around[i] == 0xa5);
    if (at_device) DO(cuMemcpyDtoH_v2(around, data, at_device));
    for (size_t i = 0; i < at_device; i++) EXPECT(around[i] == 0xa5);
}

static void random_copies(unsigned long count, unsigned seed) {
    uint64_t before = made(), before_refused = refused();
    srand(seed);
    for (unsigned long i = 0; i < count; i++) {
        for (int at = 0; at < 4096; at++) input[rand() % (LARGEST + 2 * AROUND)] = rand();
        /* Small sizes, sizes around a block's loads, and any size. */
        size_t any = 1 + rand() % LARGEST, bytes = i % 3 == 0 ? 1 + rand() % 100 : i % 3 == 1 ? 8192 * (1 + rand() % 64) - 20 + rand() % 40 : any;
        size_t shift = i % 2 ? 16 : 1;
        there_and_back(input, answer, bytes, shift * (rand() % (AROUND / shift)), shift * (rand() % (AROUND / shift)), shift * (rand() % (AROUND / shift)));
    }
    SAY("made %lu not %lu", (unsigned long)(made() - before), (unsigned long)(refused() - before_refused));
}

static void graph(unsigned long count) {
    CUgraph captured;
    CUgraphExec exec;
    size_t found;
    uint64_t before = made();
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    DO(cuMemcpyHtoDAsync_v2(data, input, INPUT, stream));
    DO(launch(gpu.spin, words, N, 10, stream));
    DO(cuMemcpyDtoHAsync_v2(answer, data, INPUT, stream));
    DO(cuStreamEndCapture(stream, &captured));
    DO(cuGraphGetNodes(captured, NULL, &found));
    DO(cuGraphInstantiateWithFlags(&exec, captured, 0));
    for (unsigned long i = 0; i < count; i++) {
        input[i]++;
        DO(cuGraphLaunch(exec, stream));
        DO(cuStreamSynchronize(stream));
        EXPECT(!memcmp(answer, input, INPUT));
    }
    SAY("made %lu nodes %lu", (unsigned long)(made() - before), (unsigned long)found);
}

static void unregistered(void) {
    unsigned char *own = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(own != MAP_FAILED);
    uint64_t counts[3];
    for (int part = 0; part < 2; part++) {
        counts[part] = made();
        if (part == 0) DO(cuMemHostRegister_v2(own, LARGEST, CU_MEMHOSTREGISTER_DEVICEMAP));
        for (int i = 0; i < STEADY; i++) {
            memset(own, i + part * STEADY, INPUT);
            DO(cuMemcpyHtoDAsync_v2(data, own, INPUT, stream));
            DO(launch(gpu.spin, words, N, 10, stream));
            DO(cuStreamSynchronize(stream));
            DO(cuMemcpyDtoH_v2(answer, data, INPUT));
            EXPECT(!memcmp(answer, own, INPUT));
            usleep(PAUSE_US);
        }
        if (part == 0) DO(cuMemHostUnregister(own));
    }
    counts[2] = made();
    SAY("registered %lu unregistered %lu", (unsigned long)(counts[1] - counts[0]), (unsigned long)(counts[2] - counts[1]));
}

/* A kernel that fills the GPU may wait for these copies. */
static void beside(unsigned long count) {
    CUstream other;
    uint64_t before = made();
    DO(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (unsigned long i = 0; i < count; i++) {
        DO(launch(gpu.spin, words, N, MODEL_US, other));
        DO(cuMemcpyHtoDAsync_v2(data, input, INPUT, stream));
        DO(cuMemcpyDtoHAsync_v2(answer, data, N, stream));
        DO(cuStreamSynchronize(stream));
        EXPECT(!memcmp(answer, input, N));
        DO(cuStreamSynchronize(other));
        usleep(PAUSE_US);
    }
    SAY("made %lu", (unsigned long)(made() - before));
}

/* A copy past the mapped part is an error of the program. It gets the driver's answer to it. */
static void mapped(void) {
    const size_t part = 2 << 20;
    AllocationProp properties = {.type = 1, .location = {1, 0}};
    struct { int type, id, flags; } access = {1, 0, 3};
    CUhandle memory;
    CUdeviceptr at;
    uint64_t counts[3] = {made()};
    DO(cuMemAddressReserve(&at, 2 * part, 0, 0, 0));
    DO(cuMemCreate(&memory, part, &properties, 0));
    DO(cuMemMap(at, part, 0, memory, 0));
    DO(cuMemSetAccess(at, part, &access, 1));
    for (int end = 0; end < 2; end++) {
        for (int i = 0; i < STEADY; i++) {
            CUresult result = cuMemcpyHtoDAsync_v2(at + part - INPUT + end * N, input, INPUT, stream);
            EXPECT((result == CUDA_SUCCESS) == (end == 0));
            DO(launch(gpu.spin, words, N, 10, stream));
            DO(cuStreamSynchronize(stream));
            usleep(PAUSE_US);
        }
        counts[end + 1] = made();
    }
    SAY("inside %lu past %lu", (unsigned long)(counts[1] - counts[0]), (unsigned long)(counts[2] - counts[1]));
}

static void read_only(void) {
    unsigned char *own = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(own != MAP_FAILED);
    DO(cuMemHostRegister_v2(own, LARGEST, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY));
    uint64_t before = made();
    DO(cuMemcpyHtoDAsync_v2(data, own, INPUT, stream));
    DO(cuStreamSynchronize(stream));
    uint64_t read = made();
    DO(cuMemcpyDtoHAsync_v2(own, data, INPUT, stream));
    SAY("read %lu written %lu", (unsigned long)(read - before), (unsigned long)(made() - read));
}

/* What a stream copies is what its own kernel before has written, and its kernel after works on what was copied. */
static void streams(void) {
    uint64_t before = made(), *numbers = (uint64_t *)answer;
    CUstream all[] = {stream, NULL, CU_STREAM_PER_THREAD, NULL};
    for (int i = 0; i < 4 * STEADY; i++) {
        int own = i % 4 == 3;
        CUstream on = all[i % 4];
        for (int n = 0; n < N; n++) numbers[n] = i + n;
        DO((own ? cuMemcpyAsync_ptsz : cuMemcpyAsync)(words, (CUdeviceptr)(uintptr_t)numbers, N * sizeof *numbers, on));
        void *arguments[3];
        unsigned n = N, micros = 10;
        arguments[0] = &words, arguments[1] = &n, arguments[2] = &micros;
        DO((own ? cuLaunchKernel_ptsz : cuLaunchKernel)(gpu.add, 132, 1, 1, 256, 1, 1, 0, on, arguments, NULL));
        DO((own ? cuMemcpyAsync_ptsz : cuMemcpyAsync)((CUdeviceptr)(uintptr_t)numbers, words, N * sizeof *numbers, on));
        DO((own ? cuStreamSynchronize_ptsz : cuStreamSynchronize)(on));
        for (int n = 0; n < N; n++) EXPECT(numbers[n] == (uint64_t)(i + n + 1));
        usleep(PAUSE_US);
    }
    SAY("made %lu of %d", (unsigned long)(made() - before), 8 * STEADY);
}

int main(void) {
    copy_counters = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_copies");
    EXPECT(copy_counters);
    gpu = open_gpu();
    words = numbers(N);
    DO(cuMemAlloc_v2(&data, LARGEST + 2 * AROUND));
    DO(cuMemAllocHost_v2((void **)&input, LARGEST + 2 * AROUND));
    DO(cuMemAllocHost_v2((void **)&answer, LARGEST + 2 * AROUND));
    for (int i = 0; i < LARGEST + 2 * AROUND; i++) input[i] = i * 7 + i / 256;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&begun, 0));
    DO(cuEventCreate(&ended, 0));
    SAY("ready");
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        char *end;
        if (!strncmp(line, "requests ", 9)) requests(strtoul(line + 9, NULL, 10));
        else if (!strcmp(line, "until-kernel\n")) until_kernel();
        else if (!strncmp(line, "random ", 7)) {
            unsigned long count = strtoul(line + 7, &end, 10);
            random_copies(count, strtoul(end, NULL, 10));
        } else if (!strncmp(line, "graph ", 6)) graph(strtoul(line + 6, NULL, 10));
        else if (!strcmp(line, "unregistered\n")) unregistered();
        else if (!strncmp(line, "beside ", 7)) beside(strtoul(line + 7, NULL, 10));
        else if (!strcmp(line, "mapped\n")) mapped();
        else if (!strcmp(line, "read-only\n")) read_only();
        else if (!strcmp(line, "streams\n")) streams();
        else return EXIT_BROKEN;
    }
    return 0;
}

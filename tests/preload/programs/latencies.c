/* latencies SHAPE: a service that measures its own requests: from the first call to the end of the last wait, and a pause of GAP_NS begins
 * another one. Each tenth request is three times as long. SHAPE is graph (copy, graph, copy, wait), launches (many launches and a wait),
 * decode (tokens of a launch, a copy and a wait), polled (a launch and queries of the stream) or event (a launch and a wait for an event).
 * Prints a line when it has been prepared; then each line on stdin is a number of requests, answered by
 *   COUNT MEAN P50 P98 P995, in nanoseconds. */
#include "common.h"
#include <time.h>

enum { N = 64, KERNEL_US = 1500, LAUNCHES = 60, LAUNCH_US = 30, TOKENS = 6, TOKEN_US = 500, PAUSE_US = 3000, WARM_UP = 10, MOST = 4096 };

static const uint64_t GAP_NS = 380000;

static Gpu gpu;
static CUdeviceptr data;
static CUstream stream;
static CUevent event;
static CUgraphExec graphs[2];
static uint64_t input[N], output[N];
static uint64_t samples[MOST], began, ended;
static unsigned long count;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void end_request(void) {
    EXPECT(count < MOST);
    samples[count++] = ended - began;
    ended = 0;
}

static void call(void) {
    uint64_t at = now();
    if (ended && at - ended >= GAP_NS) end_request();
    if (!ended) began = at;
}

static void waited(void) { ended = now(); }

static void wait_for_stream(void) {
    DO(cuStreamSynchronize(stream));
    waited();
}

static void capture(CUgraphExec *graph, unsigned micros) {
    CUgraph captured;
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    DO(launch(gpu.mix, data, N, micros, stream));
    DO(cuStreamEndCapture(stream, &captured));
    DO(cuGraphInstantiateWithFlags(graph, captured, 0));
}

static void graph(int times) {
    call();
    DO(cuMemcpyHtoDAsync_v2(data, input, sizeof input, stream));
    DO(cuGraphLaunch(graphs[times > 1], stream));
    DO(cuMemcpyDtoHAsync_v2(output, data, sizeof output, stream));
    wait_for_stream();
}

static void launches(int times) {
    call();
    for (int i = 0; i < LAUNCHES * times; i++) DO(launch(gpu.mix, data, N, LAUNCH_US, stream));
    wait_for_stream();
}

static void decode(int times) {
    for (int i = 0; i < TOKENS * times; i++) {
        call();
        DO(launch(gpu.mix, data, N, TOKEN_US, stream));
        DO(cuMemcpyDtoHAsync_v2(output, data, sizeof *output, stream));
        wait_for_stream();
    }
}

static void polled(int times) {
    call();
    DO(launch(gpu.mix, data, N, KERNEL_US * times, stream));
    while (cuStreamQuery(stream) != CUDA_SUCCESS) usleep(50);
    waited();
}

static void event_waited(int times) {
    call();
    DO(launch(gpu.mix, data, N, KERNEL_US * times, stream));
    DO(cuEventRecord(event, stream));
    DO(cuEventSynchronize(event));
    waited();
}

static int order(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static unsigned long quantile(double part) {
    unsigned long rank = (unsigned long)(part * count + 0.999999);
    return samples[rank ? rank - 1 : 0];
}

int main(int arguments, char **argument) {
    EXPECT(arguments == 2);
    struct { const char *name; void (*request)(int); } shapes[] = {
        {"graph", graph}, {"launches", launches}, {"decode", decode}, {"polled", polled}, {"event", event_waited}};
    void (*request)(int) = NULL;
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(shapes[i].name, argument[1])) request = shapes[i].request;
    EXPECT(request);
    gpu = open_gpu();
    data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&event, 0));
    capture(&graphs[0], KERNEL_US);
    capture(&graphs[1], 3 * KERNEL_US);
    for (int i = 0; i < WARM_UP; i++) {
        request(1);
        usleep(PAUSE_US);
    }
    SAY("ready");
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        count = ended = 0;
        for (unsigned long i = 0, all = strtoul(line, NULL, 10); i < all; i++) {
            request(i % 10 ? 1 : 3);
            usleep(PAUSE_US);
        }
        end_request();
        uint64_t sum = 0;
        for (unsigned long i = 0; i < count; i++) sum += samples[i];
        qsort(samples, count, sizeof *samples, order);
        SAY("%lu %lu %lu %lu %lu", count, (unsigned long)(sum / count), quantile(0.5), quantile(0.98), quantile(0.995));
    }
    return 0;
}

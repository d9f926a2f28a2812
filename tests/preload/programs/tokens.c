/* tokens HOW TOKENS: a service that generates tokens: each is a launch, a copy of 8 bytes to the host and a wait. HOW is learned (the hook
 * learns from the gaps) or marked (by sluice_request_begin and sluice_request_end). Prints a line when it has been prepared; then each
 * line on stdin is a command:
 *   requests N   runs N requests with a pause after each, prints how many holds were launched
 *   short N      runs N requests of one token, of which each sixth follows the one before at once, prints how many holds were launched
 *   stop         stops itself between two tokens of a request; when continued, ends the request and prints a line
 *   fork         a child between two tokens launches nothing and marks nothing; prints a line
 *   end          ends the context between two tokens and prints a line; nothing follows
 *   capture      captures between two tokens, prints a line
 *   marks N      marks N requests without work, each directly behind the one before; prints a line */
#include "common.h"
#include "../../../hook/include/sluice.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { N = 64, ITERATIONS = 50, PATIENCE_S = 60, PAUSE_US = 20000, WARM_UP = 4, SAMPLES = 20, MARKED_US = 2000, SHORT_PAUSE_US = 2000, FOLLOWS = 6 };

static sluice_result (*begin)(void), (*end)(void);
static size_t (*hold_counters)(uint64_t *, size_t);
static Gpu gpu;
static CUdeviceptr data;
static CUstream stream;
static uint64_t input[N], token[1];
static unsigned long tokens;
static int marked;

static uint64_t launched(void) {
    uint64_t all[1];
    EXPECT(hold_counters(all, 1) == 7);
    return all[0];
}

static void generate(unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        DO(launch(gpu.mix, data, N, ITERATIONS, stream));
        DO(cuMemcpyDtoHAsync_v2(token, data, sizeof token, stream));
        DO(cuStreamSynchronize(stream));
    }
}

static void start(void) {
    if (marked) begin();
    DO(cuMemcpyHtoDAsync_v2(data, input, sizeof input, stream));
}

static void finish(void) {
    if (marked) end();
    usleep(PAUSE_US);
}

static void request(void) {
    start();
    generate(tokens);
    finish();
}

static void short_requests(unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        if (i % FOLLOWS != 0) usleep(SHORT_PAUSE_US);
        DO(cuMemcpyHtoDAsync_v2(data, input, sizeof input, stream));
        generate(1);
    }
}

static void fork_child(void) {
    uint64_t before = launched();
    pid_t child = fork();
    if (child == 0) {
        int answers = begin() == SLUICE_DISABLED && end() == SLUICE_DISABLED;
        launch(gpu.mix, data, N, 1, stream);
        cuStreamSynchronize(stream);
        _exit(answers && launched() == before ? 0 : EXIT_WRONG);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void capture(void) {
    CUgraph graph;
    CUstream captured;
    DO(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DO(cuStreamBeginCapture_v2(captured, CAPTURE_RELAXED));
    uint64_t before = launched();
    EXPECT(begin() == SLUICE_CAPTURING);
    DO(cuMemcpyHtoDAsync_v2(data, input, sizeof input, captured));
    DO(launch(gpu.mix, data, N, ITERATIONS, captured));
    EXPECT(launched() == before);
    DO(cuStreamEndCapture(captured, &graph));
}

static void marks(unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        EXPECT(begin() == SLUICE_OK);
        usleep(MARKED_US);
        EXPECT(end() == SLUICE_OK);
    }
}

int main(int count, char **arguments) {
    EXPECT(count == 3);
    marked = !strcmp(arguments[1], "marked");
    tokens = strtoul(arguments[2], NULL, 10);
    begin = (sluice_result(*)(void))dlsym(RTLD_DEFAULT, "sluice_request_begin");
    end = (sluice_result(*)(void))dlsym(RTLD_DEFAULT, "sluice_request_end");
    hold_counters = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_holds");
    EXPECT(begin && end && hold_counters);
    EXPECT(end() != SLUICE_INVALID);
    gpu = open_gpu();
    data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int i = 0; i < WARM_UP || (getenv("EXPECT_HOLDS") && launched() == 0); i++) {
        request();
        clock_gettime(CLOCK_MONOTONIC, &now);
        EXPECT(now.tv_sec - begun.tv_sec < PATIENCE_S);
    }
    /* The hook first compares requests with and without a hold. */
    for (int i = 0; i < SAMPLES; i++) request();
    SAY("ready");
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        uint64_t before = launched();
        if (!strncmp(line, "requests ", 9)) {
            for (unsigned long i = strtoul(line + 9, NULL, 10); i > 0; i--) request();
            SAY("holds %lu", (unsigned long)(launched() - before));
            continue;
        }
        if (!strncmp(line, "short ", 6)) {
            short_requests(strtoul(line + 6, NULL, 10));
            SAY("holds %lu", (unsigned long)(launched() - before));
            continue;
        }
        if (!strncmp(line, "marks ", 6)) {
            marks(strtoul(line + 6, NULL, 10));
            SAY("done");
            continue;
        }
        start();
        generate(1);
        if (!strcmp(line, "stop\n")) raise(SIGSTOP);
        else if (!strcmp(line, "fork\n")) fork_child();
        else if (!strcmp(line, "capture\n")) capture();
        else if (!strcmp(line, "end\n")) {
            DO(cuCtxDestroy_v2(gpu.context));
            SAY("done");
            return 0;
        } else return EXIT_BROKEN;
        generate(1);
        finish();
        SAY("done");
    }
    return 0;
}

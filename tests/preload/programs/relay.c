/* relay TURNS MICROS processes|contexts: work that waits for other work of the same pod. It prints "ready", and after each line of stdin
 * TURNS round trips and "done". It ends with stdin.
 *   processes  two processes take turns: each launches a kernel of MICROS, waits for it, and lets the other one go on by a pipe
 *   contexts   one process does the same in two contexts in turn */
#include "common.h"
#include <sys/wait.h>

enum { NUMBERS = 64 };

/* A context with its kernel, its data and its stream. */
typedef struct {
    CUcontext context;
    CUfunction spin;
    CUdeviceptr data;
    CUstream stream;
} Worker;

static unsigned long turns;
static unsigned micros;

static Worker worker_in(CUcontext context) {
    Worker worker = {.context = context};
    DO(cuCtxSetCurrent(context));
    DO(cuModuleGetFunction(&worker.spin, load_kernels(), "spin"));
    worker.data = numbers(NUMBERS);
    DO(cuStreamCreate(&worker.stream, CU_STREAM_NON_BLOCKING));
    return worker;
}

static void work(const Worker *worker) {
    DO(cuCtxSetCurrent(worker->context));
    DO(launch(worker->spin, worker->data, NUMBERS, micros, worker->stream));
    DO(cuStreamSynchronize(worker->stream));
}

static int is_started(void) {
    char line[16];
    return fgets(line, sizeof line, stdin) != NULL;
}

static void pass_on(int to) {
    if (write(to, "", 1) != 1) exit(EXIT_BROKEN);
}

/* 0: the other process has ended. */
static int has_turn(int from) {
    char token;
    return read(from, &token, 1) == 1;
}

int main(int count, char **arguments) {
    if (count != 4) exit(EXIT_BROKEN);
    turns = strtoul(arguments[1], NULL, 10);
    micros = (unsigned)strtoul(arguments[2], NULL, 10);
    if (!strcmp(arguments[3], "contexts")) {
        Gpu gpu = open_gpu();
        CUcontext second;
        DO(cuCtxCreate_v2(&second, 0, gpu.device));
        Worker workers[] = {worker_in(gpu.context), worker_in(second)};
        SAY("ready");
        while (is_started()) {
            for (unsigned long turn = 0; turn < turns; turn++) {
                work(&workers[0]);
                work(&workers[1]);
            }
            SAY("done");
        }
        return 0;
    }
    int there[2], back[2];
    if (pipe(there) || pipe(back)) exit(EXIT_BROKEN);
    pid_t child = fork();
    if (child < 0) exit(EXIT_BROKEN);
    Worker worker = worker_in(open_gpu().context);
    if (!child) {
        /* The parent starts when this process has its context, and its end is the end of the pipe. */
        close(there[1]);
        pass_on(back[1]);
        while (has_turn(there[0])) {
            work(&worker);
            pass_on(back[1]);
        }
        return 0;
    }
    EXPECT(has_turn(back[0]));
    SAY("ready");
    while (is_started()) {
        for (unsigned long turn = 0; turn < turns; turn++) {
            work(&worker);
            pass_on(there[1]);
            EXPECT(has_turn(back[0]));
        }
        SAY("done");
    }
    close(there[1]);
    int status;
    if (waitpid(child, &status, 0) != child || status) exit(EXIT_BROKEN);
    return 0;
}

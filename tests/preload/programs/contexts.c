/* A tenant that creates and destroys contexts, for managers that control them. It prints "ready" and executes each line of stdin.
 *   go        -> going (a thread launches kernels of a millisecond and waits for each, until the end)
 *   more      -> made (a context beside the first)          less      -> destroyed (the last one of those)
 *   child     -> PID (of a forked child that lives until it is killed)
 *   close     -> closed (every descriptor from 200 on, as some programs do at their start)
 *   copies    -> closed N (the second copy of each duplicated socket)
 *   reuse     -> reused N (sockets from 200 on, which the program uses from then on)
 *   alloc     -> allocated (some memory)
 *   set       -> set (a memset without a wait, in a stream of its own)
 *   copy      -> copied (likewise)
 *   query     -> query N (the driver's status of that stream)
 *   foreign   -> foreign N (bytes that were written into the program's own sockets) */
#define _GNU_SOURCE
#include "common.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { FIRST = 200, LAST = 1024, BYTES = 1 << 20 };

static Gpu gpu;
static int own[LAST];
static int owned;

static void *keep_going(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    for (;;) {
        DO(launch(gpu.spin, 0, 0, 1000, NULL));
        DO(cuCtxSynchronize());
    }
}

static int is_socket(int fd, struct stat *found) { return !fstat(fd, found) && S_ISSOCK(found->st_mode); }

static int close_copies(void) {
    int closed = 0;
    struct stat one, other;
    for (int fd = FIRST; fd < LAST; fd++)
        for (int copy = fd + 1; copy < LAST && is_socket(fd, &one); copy++)
            if (is_socket(copy, &other) && one.st_ino == other.st_ino) closed += !close(copy);
    return closed;
}

static void reuse(void) {
    struct stat found;
    for (int fd = FIRST; fd < LAST; fd++) {
        int pair[2];
        if (!is_socket(fd, &found)) continue;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) || dup2(pair[0], fd) != fd) exit(EXIT_BROKEN);
        own[owned++] = pair[1];
    }
}

static long foreign(void) {
    long bytes = 0;
    char buffer[256];
    for (int i = 0; i < owned; i++)
        for (ssize_t got; (got = recv(own[i], buffer, sizeof buffer, 0)) > 0;) bytes += got;
    return bytes;
}

int main(void) {
    CUcontext more[80];
    int count = 0;
    char line[64];
    static char buffer[4096];
    CUdeviceptr data;
    CUstream aside;
    pthread_t thread;
    gpu = open_gpu();
    DO(launch(gpu.spin, 0, 0, 10, NULL));
    DO(cuCtxSynchronize());
    DO(cuMemAlloc_v2(&data, BYTES));
    DO(cuStreamCreate(&aside, CU_STREAM_NON_BLOCKING));
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "go", 2)) {
            if (pthread_create(&thread, NULL, keep_going, NULL)) return EXIT_BROKEN;
            SAY("going");
        } else if (!strncmp(line, "more", 4) && count < 80) {
            DO(cuCtxCreate_v2(&more[count++], 0, gpu.device));
            DO(cuCtxSetCurrent(gpu.context));
            SAY("made");
        } else if (!strncmp(line, "less", 4) && count > 0) {
            DO(cuCtxDestroy_v2(more[--count]));
            SAY("destroyed");
        } else if (!strncmp(line, "child", 5)) {
            pid_t child = fork();
            if (child == 0)
                for (;;) pause();
            SAY("%d", child);
        } else if (!strncmp(line, "close", 5)) {
            for (int fd = FIRST; fd < LAST; fd++) close(fd);
            SAY("closed");
        } else if (!strncmp(line, "copies", 6)) {
            SAY("closed %d", close_copies());
        } else if (!strncmp(line, "reuse", 5)) {
            reuse();
            SAY("reused %d", owned);
        } else if (!strncmp(line, "alloc", 5)) {
            DO(cuMemAlloc_v2(&data, BYTES));
            SAY("allocated");
        } else if (!strncmp(line, "set", 3)) {
            DO(cuMemsetD8Async(data, 1, BYTES, aside));
            SAY("set");
        } else if (!strncmp(line, "copy", 4)) {
            DO(cuMemcpyHtoDAsync_v2(data, buffer, sizeof buffer, aside));
            SAY("copied");
        } else if (!strncmp(line, "query", 5)) {
            SAY("query %d", cuStreamQuery(aside));
        } else if (!strncmp(line, "foreign", 7)) {
            SAY("foreign %ld", foreign());
        } else {
            return EXIT_BROKEN;
        }
    }
    _exit(0);
}

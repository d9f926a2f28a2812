/* A tenant whose contexts come and go, for managers that control them; says "ready" and does what each line on stdin says.
 *   go        -> going (a thread launches kernels of a millisecond and waits for each, until the end)
 *   more      -> made (a context beside the first)          less      -> destroyed (the last one of those)
 *   child     -> PID (of a forked child that lives until it is killed)
 *   close     -> closed (every descriptor from 200 on, as programs do that take themselves for the only ones in a process) */
#define _GNU_SOURCE
#include "common.h"
#include <pthread.h>

static Gpu gpu;

static void *keep_going(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    for (;;) {
        DO(launch(gpu.spin, 0, 0, 1000, NULL));
        DO(cuCtxSynchronize());
    }
}

int main(void) {
    CUcontext more[16];
    int count = 0;
    char line[64];
    pthread_t thread;
    gpu = open_gpu();
    DO(launch(gpu.spin, 0, 0, 10, NULL));
    DO(cuCtxSynchronize());
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "go", 2)) {
            if (pthread_create(&thread, NULL, keep_going, NULL)) return EXIT_BROKEN;
            SAY("going");
        } else if (!strncmp(line, "more", 4) && count < 16) {
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
            for (int fd = 200; fd < 1024; fd++) close(fd);
            SAY("closed");
        } else {
            return EXIT_BROKEN;
        }
    }
    _exit(0);
}

/* exits HOW [wait]: ends with contexts, streams and work left as they are. HOW: return, exit, quick (_exit), abort, thread
 * (exit called by a thread that never used CUDA), detach (main thread ends, another one returns the result).
 * With "wait" another thread is inside a launch that no token allows yet (the test sees to that). */
#include "common.h"
#include <pthread.h>

static Gpu gpu;
static CUdeviceptr data;

static void *launch_once(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    DO(launch(gpu.mix, data, 64, 100, NULL));
    return NULL;
}

static void *leave(void *unused) {
    (void)unused;
    exit(0);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    pthread_t thread;
    CUstream stream;
    gpu = open_gpu();
    data = numbers(64);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (argc > 2) {
        EXPECT(pthread_create(&thread, NULL, launch_once, NULL) == 0);
        SAY("waiting");
        getchar(); /* until the test has seen that the thread waits */
    } else {
        for (int i = 0; i < 50; i++) DO(launch(gpu.mix, data, 64, 1000, i % 2 ? stream : NULL));
    }
    if (!strcmp(how, "exit")) exit(0);
    if (!strcmp(how, "quick")) _exit(0);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "thread")) {
        EXPECT(pthread_create(&thread, NULL, leave, NULL) == 0);
        for (;;) pause();
    }
    if (!strcmp(how, "detach")) {
        EXPECT(pthread_create(&thread, NULL, leave, NULL) == 0);
        pthread_exit(NULL);
    }
    return 0;
}

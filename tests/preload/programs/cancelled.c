/* cancelled: a thread waits for a kernel and is cancelled meanwhile; once the kernel has run, the process has no work. */
#include "common.h"
#include <pthread.h>

static Gpu gpu;
static CUstream stream;

static void *wait_for_stream(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    SAY("waiting");
    DO(cuStreamSynchronize(stream));
    return NULL;
}

int main(void) {
    pthread_t thread;
    void *result;
    gpu = open_gpu();
    CUdeviceptr data = numbers(64);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(launch(gpu.mix, data, 64, 300 * 1000, stream));
    EXPECT(pthread_create(&thread, NULL, wait_for_stream, NULL) == 0);
    usleep(100 * 1000);
    EXPECT(pthread_cancel(thread) == 0);
    EXPECT(pthread_join(thread, &result) == 0);
    DO(cuStreamSynchronize(stream));
    SAY("idle");
    getchar();
    return 0;
}

/* streams perthread: two threads on per-thread default streams, by the _ptsz entry points and by the stream handle 2.
 * streams destroyed: streams that are used, destroyed with work in flight and replaced by new ones, thousands of times.
 * streams contexts:  contexts are created and destroyed, each with streams of its own.
 * streams primary:   the primary context is retained and released, and one of its two users releases it in between.
 * streams released:  two threads have retained the primary context, use it and release it at the same time.
 * streams asked:     several threads create and destroy streams, and query events until they complete. */
#include "common.h"
#include <pthread.h>

enum { N = 64 };
static Gpu gpu;

static void *per_thread(void *unused) {
    unsigned n = N, micros = 200;
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    CUdeviceptr data = numbers(N);
    void *arguments[] = {&data, &n, &micros};
    for (int i = 0; i < 500; i++) {
        DO(cuLaunchKernel_ptsz(gpu.mix, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
        DO(launch(gpu.mix, data, N, 200, CU_STREAM_PER_THREAD));
        if (i % 10 == 0) DO(cuStreamSynchronize_ptsz(NULL));
    }
    DO(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT(mixed(data, N, 1000));
    return NULL;
}

static void destroyed(void) {
    CUdeviceptr data = numbers(N);
    for (int round = 0; round < 300; round++) {
        CUstream streams[8];
        for (int i = 0; i < 8; i++) {
            DO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
            DO(launch(gpu.add, data, N, 100, streams[i]));
        }
        for (int i = 0; i < 8; i++) DO(cuStreamDestroy_v2(streams[i]));
    }
    DO(cuCtxSynchronize());
    EXPECT(added(data, N, 300 * 8));
}

static void contexts(void) {
    for (int round = 0; round < 20; round++) {
        CUcontext context;
        CUmodule module;
        CUfunction mix;
        CUstream stream;
        DO(cuCtxCreate_v2(&context, 0, gpu.device));
        DO(cuModuleLoadData(&module, MODULE));
        DO(cuModuleGetFunction(&mix, module, "mix"));
        DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CUdeviceptr data = numbers(N);
        for (int i = 0; i < 20; i++) DO(launch(mix, data, N, 200, stream));
        DO(cuStreamSynchronize(stream));
        EXPECT(mixed(data, N, 20));
        DO(launch(mix, data, N, 5000, stream));
        DO(cuCtxDestroy_v2(context));
    }
}

static void primary(void) {
    DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    for (int round = 0; round < 20; round++) {
        CUcontext again;
        CUevent event;
        CUstream streams[2];
        gpu = open_gpu();
        DO(cuEventCreate(&event, 0));
        for (int i = 0; i < 2; i++) DO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        CUdeviceptr data = numbers(N);
        for (int i = 0; i < 20; i++) {
            DO(launch(gpu.mix, data, N, 200, streams[i % 2]));
            DO(cuEventRecord(event, streams[i % 2]));
            DO(cuStreamWaitEvent(streams[1 - i % 2], event, 0));
            if (i % 5) continue;
            DO(cuDevicePrimaryCtxRetain(&again, gpu.device));
            DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
        }
        DO(cuEventSynchronize(event));
        EXPECT(mixed(data, N, 20));
        if (round % 2) DO(cuEventDestroy_v2(event));
        DO(launch(gpu.mix, data, N, 5000, streams[0]));
        DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    }
}

static pthread_barrier_t at_once;

static void *use_and_release(void *unused) {
    CUcontext own;
    CUstream stream;
    (void)unused;
    DO(cuDevicePrimaryCtxRetain(&own, gpu.device));
    pthread_barrier_wait(&at_once);
    DO(cuCtxSetCurrent(own));
    CUdeviceptr data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 5; i++) DO(launch(gpu.add, data, N, 20, stream));
    DO(cuStreamSynchronize(stream));
    EXPECT(added(data, N, 5));
    pthread_barrier_wait(&at_once);
    DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    return NULL;
}

static void released(void) {
    pthread_t threads[2];
    DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
    EXPECT(pthread_barrier_init(&at_once, NULL, 3) == 0);
    for (int round = 0; round < 100; round++) {
        gpu = open_gpu();
        for (int i = 0; i < 2; i++) EXPECT(pthread_create(&threads[i], NULL, use_and_release, NULL) == 0);
        pthread_barrier_wait(&at_once);
        DO(cuDevicePrimaryCtxRelease_v2(gpu.device));
        pthread_barrier_wait(&at_once);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    }
}

static CUstream handed;
static CUdeviceptr handed_data;

static void *use_up(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    DO(launch(gpu.add, handed_data, N, 20, handed));
    DO(cuStreamWriteValue32_v2(handed, handed_data + N * 8, 1, 0));
    DO(cuStreamDestroy_v2(handed));
    return NULL;
}

static void asked(void) {
    handed_data = numbers(N + 1);
    for (int round = 0; round < 300; round++) {
        pthread_t thread;
        CUevent event;
        DO(cuStreamCreate(&handed, CU_STREAM_NON_BLOCKING));
        DO(cuEventCreate(&event, 0));
        DO(cuEventRecord(event, handed));
        while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) usleep(20);
        DO(cuEventDestroy_v2(event));
        EXPECT(pthread_create(&thread, NULL, use_up, NULL) == 0);
        pthread_join(thread, NULL);
        DO(cuCtxSynchronize());
    }
    EXPECT(added(handed_data, N, 300));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t threads[2];
    gpu = open_gpu();
    if (!strcmp(what, "destroyed")) {
        destroyed();
    } else if (!strcmp(what, "contexts")) {
        contexts();
    } else if (!strcmp(what, "primary")) {
        primary();
    } else if (!strcmp(what, "released")) {
        released();
    } else if (!strcmp(what, "asked")) {
        asked();
    } else {
        for (int i = 0; i < 2; i++) EXPECT(pthread_create(&threads[i], NULL, per_thread, NULL) == 0);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    }
    return 0;
}

/* threads COUNT EACH: COUNT threads launch EACH kernels, half of them on a stream of their own, the rest on the default
 * stream, all at once; every kernel must have run exactly once. */
#include "common.h"
#include <pthread.h>

enum { N = 8 };
static Gpu gpu;
static unsigned each;
static pthread_barrier_t start;

static void *work(void *argument) {
    size_t index = (size_t)argument;
    CUstream stream = NULL;
    DO(cuCtxSetCurrent(gpu.context));
    CUdeviceptr data = numbers(N);
    if (index % 2) DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < each; i++) DO(launch(gpu.mix, data, N, 1, stream));
    DO(cuStreamSynchronize(stream));
    EXPECT(mixed(data, N, each));
    if (stream) DO(cuStreamDestroy_v2(stream));
    DO(cuMemFree_v2(data));
    return NULL;
}

int main(int argc, char **argv) {
    size_t count = argc > 1 ? (size_t)atoi(argv[1]) : 1000;
    each = argc > 2 ? (unsigned)atoi(argv[2]) : 50;
    pthread_t *threads = malloc(count * sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    pthread_barrier_init(&start, NULL, (unsigned)count);
    gpu = open_gpu();
    for (size_t i = 0; i < count; i++) {
        if (pthread_create(&threads[i], &small, work, (void *)i)) {
            fprintf(stderr, "no thread %zu\n", i);
            return EXIT_BROKEN;
        }
    }
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    SAY("%zu", count * each);
    return 0;
}

/* capture MODE ROUNDS: while one thread launches all the time, so that grants expire, another captures chains of kernels in
 * mode global, local or relaxed, instantiates and replays them; each replay must have run exactly what was captured. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>

enum { N = 64, CHAIN = 20 };
static Gpu gpu;
static atomic_int stop;
static CUdeviceptr other_data;
static CUstream other_stream;

/* Synchronising is forbidden to other threads while one captures in global mode, unless they say that they know better. */
static void *disturb(void *unused) {
    (void)unused;
    unsigned long launched = 0;
    int relaxed = CAPTURE_RELAXED;
    DO(cuThreadExchangeStreamCaptureMode(&relaxed));
    DO(cuCtxSetCurrent(gpu.context));
    while (!stop) {
        for (int i = 0; i < 10; i++, launched++) DO(launch(gpu.mix, other_data, N, 500, other_stream));
        DO(cuStreamSynchronize(other_stream));
    }
    EXPECT(mixed(other_data, N, launched));
    return NULL;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "global";
    int rounds = argc > 2 ? atoi(argv[2]) : 10;
    int mode = !strcmp(name, "relaxed") ? CAPTURE_RELAXED : !strcmp(name, "local") ? CAPTURE_THREAD_LOCAL : CAPTURE_GLOBAL;
    pthread_t thread;
    CUstream stream;
    unsigned long ran = 0;
    gpu = open_gpu();
    CUdeviceptr data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    other_data = numbers(N);
    DO(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING));
    EXPECT(pthread_create(&thread, NULL, disturb, NULL) == 0);
    for (int round = 0; round < rounds; round++) {
        CUgraph graph;
        CUgraphExec exec;
        DO(cuStreamBeginCapture_v2(stream, mode));
        for (int i = 0; i < CHAIN; i++) {
            DO(launch(gpu.mix, data, N, 300, stream));
            usleep(2000); /* a capture that lasts longer than a grant; nothing is synchronised by it */
        }
        DO(cuStreamEndCapture(stream, &graph));
        DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
        for (int replay = 0; replay < 5; replay++, ran += CHAIN) DO(cuGraphLaunch(exec, stream));
        DO(cuStreamSynchronize(stream));
        DO(cuGraphExecDestroy(exec));
        DO(cuGraphDestroy(graph));
    }
    stop = 1;
    pthread_join(thread, NULL);
    EXPECT(mixed(data, N, ran));
    SAY("%lu", ran);
    return 0;
}

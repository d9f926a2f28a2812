/* patient: one thread launches while no token is to be had; the main thread takes, asks about and gives back memory all the
 * same, prints a line, and waits for the launch at the next line on stdin. With the argument "cancel" it cancels that thread while it
 * waits, which must not end the process, and returns from main. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static Gpu gpu;
static CUdeviceptr data;
static atomic_int launched;

static void *launch_once(void *unused) {
    (void)unused;
    DO(cuCtxSetCurrent(gpu.context));
    DO(launch(gpu.mix, data, 64, 100, NULL));
    launched = 1;
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    size_t free_bytes, total;
    gpu = open_gpu();
    data = numbers(64);
    EXPECT(pthread_create(&thread, NULL, launch_once, NULL) == 0);
    for (int i = 0; i < 1000; i++) {
        CUdeviceptr block;
        DO(cuMemAlloc_v2(&block, 1 << 20));
        DO(cuMemGetInfo_v2(&free_bytes, &total));
        DO(cuMemFree_v2(block));
    }
    SAY("%s", launched ? "launched" : "waiting");
    if (count > 1 && strcmp(arguments[1], "cancel") == 0) {
        EXPECT(pthread_cancel(thread) == 0);
        usleep(200000);
        SAY("cancelled");
        return 0;
    }
    getchar();
    pthread_join(thread, NULL);
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, 64, 1));
    SAY("launched");
    return 0;
}

/* signals: computes while a timer interrupts it a thousand times a second, with a handler after which system calls are not
 * resumed, as profilers do; waits for tokens and for the GPU must go on, and every kernel run exactly once. */
#include "common.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;

static void tick(int number) {
    (void)number;
    ticks++;
}

int main(void) {
    enum { N = 64 };
    struct sigaction action = {.sa_handler = tick};
    struct itimerval every = {{0, 1000}, {0, 1000}};
    unsigned long launched = 0;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(N);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 10; i++, launched++) DO(launch(gpu.mix, data, N, 300, NULL));
        DO(cuCtxSynchronize());
        CUdeviceptr block;
        DO(cuMemAlloc_v2(&block, 1 << 20));
        DO(cuMemFree_v2(block));
    }
    EXPECT(mixed(data, N, launched));
    EXPECT(ticks > 0);
    return 0;
}

/* forks fresh:  the child uses CUDA, which the parent had not touched; then the parent does.
 * forks used:   the parent has used CUDA and another thread of it launches all the time; the child's calls must return,
 *               whatever they answer, and neither they nor its exit may harm the parent.
 * forks keep:   the parent has memory; the child only holds what it inherited, until its stdin closes; prints both pids. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { N = 64 };

static int compute(void) {
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(N);
    for (int i = 0; i < 10; i++) DO(launch(gpu.mix, data, N, 100, NULL));
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, N, 10));
    return 0;
}

static void reap(pid_t child) {
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static atomic_int stop;
static CUdeviceptr shared_data;
static Gpu shared_gpu;

/* Keeps the hook's locks busy while the main thread forks. */
static void *keep_launching(void *count) {
    DO(cuCtxSetCurrent(shared_gpu.context));
    while (!stop) {
        DO(launch(shared_gpu.mix, shared_data, N, 50, NULL));
        if (++*(unsigned long *)count % 16 == 0) DO(cuCtxSynchronize());
    }
    return NULL;
}

static int used(void) {
    unsigned long launched = 0;
    CUdeviceptr spare;
    pthread_t thread;
    shared_gpu = open_gpu();
    shared_data = numbers(N);
    EXPECT(pthread_create(&thread, NULL, keep_launching, &launched) == 0);
    for (int round = 0; round < 50; round++) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            /* CUDA does not work in such a child; each call must return and disturb no other process. */
            launch(shared_gpu.mix, shared_data, N, 1, NULL);
            if (cuMemAlloc_v2(&spare, 4096) == CUDA_SUCCESS) cuMemFree_v2(spare);
            cuMemFree_v2(shared_data);
            cuCtxSynchronize();
            exit(0);
        }
        reap(child);
        /* A child that shares the parent's memory until it execs. */
        if (round % 10 == 0) EXPECT(system("true") == 0);
    }
    stop = 1;
    pthread_join(thread, NULL);
    DO(cuCtxSynchronize());
    EXPECT(mixed(shared_data, N, launched));
    return 0;
}

static int keep(void) {
    CUdeviceptr data;
    Gpu gpu = open_gpu();
    DO(cuMemAlloc_v2(&data, 64 << 20));
    DO(launch(gpu.spin, data, 1, 100, NULL));
    DO(cuCtxSynchronize());
    pid_t child = fork();
    if (child > 0)
        SAY("%d %d", getpid(), child);
    else
        fclose(stdout);
    while (getchar() != EOF) continue;
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "used")) return used();
    if (!strcmp(what, "keep")) return keep();
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) exit(compute());
    reap(child);
    return compute();
}

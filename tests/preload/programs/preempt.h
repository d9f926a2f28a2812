/* What programs that preempt their own streams share: the functions of sluice.h, looked up as a program does that runs without Sluice
 * as well, streams that can be preempted, and a thread that preempts them at random. */
#pragma once
#include "common.h"
#include "../../../hook/include/sluice.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { N = 64, MICROS = 20 };

static void (*defaults)(sluice_preemption_config *);
static sluice_result (*enable)(CUstream, const sluice_preemption_config *);
static sluice_result (*disable)(CUstream);
static sluice_result (*preempt)(CUstream, int, sluice_preemption *);
static sluice_result (*restore)(CUstream);
static sluice_result (*level_of)(CUstream, int *, const char **);

static Gpu gpu;
static int level;

__attribute__((unused)) static void look_up(void) {
    *(void **)&defaults = dlsym(RTLD_DEFAULT, "sluice_preemption_defaults");
    *(void **)&enable = dlsym(RTLD_DEFAULT, "sluice_preemption_enable");
    *(void **)&disable = dlsym(RTLD_DEFAULT, "sluice_preemption_disable");
    *(void **)&preempt = dlsym(RTLD_DEFAULT, "sluice_preempt");
    *(void **)&restore = dlsym(RTLD_DEFAULT, "sluice_restore");
    *(void **)&level_of = dlsym(RTLD_DEFAULT, "sluice_preemption_level");
    EXPECT(defaults && enable && disable && preempt && restore && level_of);
}

/* A call of sluice.h that has to succeed. */
#define WELL(call)                                                                                                     \
    do {                                                                                                               \
        sluice_result r_ = (call);                                                                                     \
        if (r_ != SLUICE_OK) {                                                                                         \
            fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, r_);                                 \
            exit(EXIT_WRONG);                                                                                          \
        }                                                                                                              \
    } while (0)

static sluice_preemption_config config(void) {
    sluice_preemption_config config;
    defaults(&config);
    config.level = level;
    return config;
}

__attribute__((unused)) static CUstream stream(unsigned flags) {
    CUstream made;
    sluice_preemption_config as = config();
    DO(cuStreamCreate(&made, flags));
    WELL(enable(made, &as));
    return made;
}

/* Has stopped when it returns, however long that takes on a machine that has other things to do. */
__attribute__((unused)) static void stop(CUstream stream) {
    sluice_preemption achieved = {-1, 0};
    sluice_result result;
    do result = preempt(stream, 1, &achieved);
    while (result == SLUICE_TIMEOUT);
    EXPECT(result == SLUICE_OK && (achieved.level == level || level == SLUICE_LEVEL_FULL));
}

/* The first number, read beside all other streams. */
__attribute__((unused)) static uint64_t peek(CUdeviceptr data) {
    static __thread CUstream beside;
    static __thread uint64_t *number;
    if (!beside) {
        DO(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
        DO(cuMemAllocHost_v2((void **)&number, sizeof *number));
    }
    DO(cuMemcpyDtoHAsync_v2(number, data, sizeof *number, beside));
    DO(cuStreamSynchronize(beside));
    return *number;
}

/* A thread that preempts and restores at random until it is ended. If it gets the numbers that every kernel changes, it
 * goes on only after something was done since it restored: however fast it is, the streams get on. On the simulated GPU, where to ask
 * takes longer than a kernel, every sixteenth time has to do. */
typedef struct {
    CUstream streams[4];
    int count;
    atomic_int ended;
    unsigned seed;
    CUdeviceptr progress;
    unsigned long toggles;
    double seconds;
} Toggler;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

__attribute__((unused)) static void *toggle(void *argument) {
    Toggler *toggler = argument;
    DO(cuCtxSetCurrent(gpu.context));
    uint64_t seen = 0;
    const double begun = seconds_now();
    for (; !atomic_load(&toggler->ended); toggler->toggles++) {
        CUstream stream = toggler->streams[rand_r(&toggler->seed) % toggler->count];
        sluice_result result = preempt(stream, rand_r(&toggler->seed) % 4 == 0, NULL);
        EXPECT(result == SLUICE_OK || result == SLUICE_TIMEOUT);
        for (int i = rand_r(&toggler->seed) % 20; i > 0; i--) sched_yield();
        WELL(restore(stream));
        for (int i = rand_r(&toggler->seed) % 5; i > 0; i--) sched_yield();
        if (!toggler->progress || (!is_real && toggler->toggles % 16)) continue;
        for (uint64_t before = seen; !atomic_load(&toggler->ended) && (seen = peek(toggler->progress)) == before;) sched_yield();
    }
    toggler->seconds = seconds_now() - begun;
    return NULL;
}

/* Ends it; returns the number of preemptions. */
__attribute__((unused)) static void end_toggling(Toggler *toggler, pthread_t thread) {
    atomic_store(&toggler->ended, 1);
    pthread_join(thread, NULL);
    SAY("preempted %lu times, %.0f a second", toggler->toggles, (double)toggler->toggles / toggler->seconds);
}

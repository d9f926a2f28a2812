/* Preempts and restores streams of the process it is loaded into, at random moments, from a thread of its own: a library for
 * workloads that say nothing else of Sluice. cc -O1 -shared -fPIC -I hook/include preempter.c -o preempter.so -lpthread -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "sluice.h"

#define STREAMS 8
#define RESULTS 32
#define FUNCTION(name) ((__typeof__(name) *)dlsym(RTLD_DEFAULT, #name))

/* What was done: calls of sluice_preempt by result, calls that achieved each level, failed calls of sluice_restore. */
struct counts {
    uint64_t results[RESULTS], levels[4], restores_failed;
};

static struct {
    struct CUstream_st *streams[STREAMS];
    int count, level, hz;
    uint64_t state;
    atomic_int stop;
    pthread_t thread;
    struct counts counts;
} run;

static uint64_t chance(void) {
    run.state ^= run.state << 13;
    run.state ^= run.state >> 7;
    return run.state ^= run.state << 17;
}

static void until(struct timespec *moment, uint64_t later_ns) {
    uint64_t ns = moment->tv_nsec + later_ns;
    moment->tv_sec += ns / 1000000000;
    moment->tv_nsec = ns % 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, moment, NULL);
}

static void *preempt_and_restore(void *unused) {
    __typeof__(sluice_preempt) *preempt = FUNCTION(sluice_preempt);
    __typeof__(sluice_restore) *restore = FUNCTION(sluice_restore);
    uint64_t period = 1000000000ull / run.hz;
    struct timespec moment;
    prctl(PR_SET_TIMERSLACK, 1ul);
    while (!atomic_load(&run.stop)) {
        clock_gettime(CLOCK_MONOTONIC, &moment);
        struct CUstream_st *stream = run.streams[chance() % run.count];
        sluice_preemption achieved = {.level = -1};
        int result = preempt(stream, chance() & 1, &achieved);
        run.counts.results[result < 0 || result >= RESULTS ? RESULTS - 1 : result]++;
        if (result == SLUICE_OK && achieved.level >= 0 && achieved.level < 4)
            run.counts.levels[achieved.level]++;
        uint64_t stands = chance() % (period / 2);
        until(&moment, stands);
        run.counts.restores_failed += restore(stream) != SLUICE_OK;
        until(&moment, period - stands);
    }
    return unused;
}

/* Enables preemption of these streams at this level and begins; 0, or the result of the call that failed, -1 without the hook. */
int preempter_start(struct CUstream_st **streams, int count, int level, int hz, uint64_t seed) {
    __typeof__(sluice_preemption_enable) *enable = FUNCTION(sluice_preemption_enable);
    __typeof__(sluice_preemption_defaults) *defaults = FUNCTION(sluice_preemption_defaults);
    if (!enable || !defaults || !FUNCTION(sluice_preempt) || !FUNCTION(sluice_restore) || count < 1 || count > STREAMS || hz < 1)
        return -1;
    sluice_preemption_config config;
    memset(&config, 0, sizeof config);
    defaults(&config);
    config.size = sizeof config;
    config.level = level;
    for (int i = 0; i < count; i++) {
        int result = enable(streams[i], &config);
        if (result != SLUICE_OK && result != SLUICE_ALREADY_ENABLED)
            return result;
        run.streams[i] = streams[i];
    }
    run.count = count, run.level = level, run.hz = hz, run.state = seed ? seed : 1;
    atomic_store(&run.stop, 0);
    return pthread_create(&run.thread, NULL, preempt_and_restore, NULL);
}

/* Ends it with every stream restored; preemption stays enabled. */
void preempter_stop(struct counts *counts) {
    atomic_store(&run.stop, 1);
    pthread_join(run.thread, NULL);
    *counts = run.counts;
    memset(&run.counts, 0, sizeof run.counts);
}

/* What does a gate do: a batch of stream memory operations "I have come here" (write), "go on from this number" (wait), "I have passed"
 * (write), in front of kernels?
 *
 *   gates SAMPLES MICROSECONDS...     the lengths of kernels
 *
 * Which operations and flags the driver takes; where a stream stands after a store to the word that shuts its gates, and how many kernels
 * ended after it; whether the GPU says that it has come to a gate before the kernels in front of it are done; what a gate costs. A kernel
 * counts itself when it ends, in memory that the host sees. Prints a JSON line for each answer. */
#define _GNU_SOURCE
#define MORE_CALLS(X)                                                                                                  \
    X(cuStreamWaitValue32_v2, CUstream, CUdeviceptr, uint32_t, unsigned)                                               \
    X(cuStreamWriteValue32_v2, CUstream, CUdeviceptr, uint32_t, unsigned)                                              \
    X(cuStreamBatchMemOp, CUstream, unsigned, Operation *, unsigned)
#include "memops.h"

enum { KERNELS = 48, BLOCKS = 132, THREADS = 256 };
/* So far ahead of the last gate that none is shut. */
enum { AHEAD = 1 << 20 };
static const uint64_t PATIENCE_NS = 10000000000u;

static CUfunction tick;
static CUevent mark;
/* The last gate that was made. */
static uint32_t number;

static void tell_taken(void) {
    const CUdeviceptr word = gpu.at + offsetof(Page, word), arrived = gpu.at + offsetof(Page, arrived);
    Operation wait = of(WAIT, offsetof(Page, word), 0, GEQ), unfenced = of(WRITE, offsetof(Page, arrived), 0, WRITE_UNFENCED);
    Operation first = wait;
    int batch = gate(gpu.stream, 0);
    int batch_unfenced = cuStreamBatchMemOp_v2(gpu.stream, 1, &unfenced, 0);
    int one = cuStreamWaitValue32_v2(gpu.stream, word, 0, GEQ);
    int write = cuStreamWriteValue32_v2(gpu.stream, arrived, 0, WRITE_DEFAULT);
    int write_unfenced = cuStreamWriteValue32_v2(gpu.stream, arrived, 0, WRITE_UNFENCED);
    int before = cuStreamBatchMemOp ? cuStreamBatchMemOp(gpu.stream, 1, &first, 0) : -1;
    DO(cuStreamSynchronize(gpu.stream));
    TELL("{\"record\": \"taken\", \"batch\": %d, \"batch_unfenced\": %d, \"wait\": %d, \"write\": %d, \"write_unfenced\": %d, "
         "\"first_version\": %d}", batch, batch_unfenced, one, write, write_unfenced, before);
}

static void store(uint32_t word) {
    gpu.page->word = word;
    atomic_thread_fence(memory_order_seq_cst);
}

/* Where a stream is. The gates are looked at first: what is done by then is done when the kernels are counted. */
typedef struct {
    uint32_t arrived, passed;
    uint64_t done;
} Place;

static Place look(void) {
    Place place = {.arrived = gpu.page->arrived, .passed = gpu.page->passed};
    atomic_thread_fence(memory_order_seq_cst);
    place.done = gpu.page->done;
    return place;
}

/* A stream of equal kernels with a gate in front of each `every` of them, and what was seen of it. */
typedef struct {
    unsigned us, every, marks;
    /* The gate before the first, and the count before. */
    uint32_t first;
    uint64_t base;
    int samples, missed, misplaced, not_once;
    /* Kernels: of those in front of the gate that the GPU has come to, not done; behind the gate after the one that it had come to
     * when the word was stored; that ended after the store. */
    long not_done_max, beyond_max, after_max, after_sum;
} Run;

static long larger(long one, long other) { return one > other ? one : other; }

/* Kernels in front of a gate. */
static long in_front_of(const Run *run, uint32_t gate) { return ((long)gate - (long)run->first - 1) * (long)run->every; }

static long done(const Run *run, Place place) { return (long)(place.done - run->base); }

/* A look, which notes whether the gates are ahead of the kernels. */
static Place watch(Run *run) {
    Place place = look();
    if (place.arrived > run->first)
        run->not_done_max = larger(run->not_done_max, in_front_of(run, place.arrived) - done(run, place));
    return place;
}

/* Queues everything behind a first gate that is shut. */
static void queue(Run *run) {
    run->first = number;
    run->base = gpu.page->done;
    store(run->first);
    for (unsigned i = 0; i < KERNELS; i++) {
        if (i % run->every == 0) DO(gate(gpu.stream, ++number));
        DO(launch(tick, gpu.stream, BLOCKS, THREADS, run->us * 1000));
        if (run->marks && i % 8 == 7) DO(cuEventRecord(mark, gpu.stream));
    }
}

static void wait_for_kernels(Run *run, long count) {
    const uint64_t until = now_ns() + PATIENCE_NS;
    while (done(run, watch(run)) < count)
        if (now_ns() > until) DIE("%ld of %d kernels of %u us have ended, and no more", done(run, look()), KERNELS, run->us);
}

/* Returns where the stream is when two looks, three kernels' time and some apart, and all between have seen the same. The simulator
 * tells late. */
static Place wait_for_rest(Run *run) {
    const uint64_t rest = run->us * 3000u + (gpu.is_real ? 300000 : 50000000);
    Place last = watch(run);
    for (uint64_t since = now_ns();;) {
        const uint64_t begun = now_ns();
        const Place place = watch(run);
        if (memcmp(&place, &last, sizeof place)) last = place, since = now_ns();
        else if (begun >= since + rest) return last;
    }
}

/* Shuts the gates of a stream that runs, at a random moment, and looks where it comes to rest. */
static void shut_once(Run *run) {
    queue(run);
    store(number + AHEAD);
    wait_for_kernels(run, 3 + rand() % 6);
    for (uint64_t until = now_ns() + (uint64_t)rand() % (run->us * 1000); now_ns() < until;) watch(run);
    store(run->first);
    /* Whatever gate the GPU comes to after this look, it comes to after the store. */
    const Place then = watch(run);
    const Place rest = wait_for_rest(run);
    store(number + AHEAD);
    DO(cuStreamSynchronize(gpu.stream));
    run->not_once += done(run, look()) != KERNELS;
    if (done(run, then) == KERNELS || then.passed == number) {
        run->missed++;
        return;
    }
    const long after = done(run, rest) - done(run, then);
    run->samples++;
    run->after_max = larger(run->after_max, after);
    run->after_sum += after;
    run->beyond_max = larger(run->beyond_max, done(run, rest) - in_front_of(run, then.arrived + 1));
    /* It ran on to its end if it was behind its last gate. */
    const long all_in_front = rest.passed == number ? KERNELS : in_front_of(run, rest.arrived);
    run->misplaced += done(run, rest) != all_in_front || (rest.passed != number && rest.passed + 1 != rest.arrived);
}

static void tell_stops(unsigned us, unsigned every, unsigned marks, int samples) {
    Run run = {.us = us, .every = every, .marks = marks, .not_done_max = -KERNELS, .beyond_max = -KERNELS};
    for (int i = 0; i < samples; i++) shut_once(&run);
    TELL("{\"record\": \"stops\", \"kernel_us\": %u, \"every\": %u, \"events\": %u, \"samples\": %d, \"missed\": %d, \"after_mean\": %.2f, "
         "\"after_max\": %ld, \"beyond_max\": %ld, \"not_done_max\": %ld, \"misplaced\": %d, \"not_once\": %d}",
         us, every, marks, run.samples, run.missed, run.samples ? (double)run.after_sum / run.samples : 0.0, run.after_max,
         run.beyond_max, run.not_done_max, run.misplaced, run.not_once);
}

static void no_gate(void) {}

static void in_a_batch(void) { DO(gate(gpu.stream, ++number)); }

static void a_wait_alone(void) { DO(cuStreamWaitValue32_v2(gpu.stream, gpu.at + offsetof(Page, word), ++number, GEQ)); }

static void by_three_calls(void) {
    DO(cuStreamWriteValue32_v2(gpu.stream, gpu.at + offsetof(Page, arrived), ++number, WRITE_DEFAULT));
    DO(cuStreamWaitValue32_v2(gpu.stream, gpu.at + offsetof(Page, word), number, GEQ));
    DO(cuStreamWriteValue32_v2(gpu.stream, gpu.at + offsetof(Page, passed), number, WRITE_DEFAULT));
}

static const struct { const char *name; void (*put)(void); } SHAPES[] = {
    {"none", no_gate}, {"batch", in_a_batch}, {"wait", a_wait_alone}, {"calls", by_three_calls},
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

/* Time of a kernel of `us` with open gates: until all are done, and until the host has queued them. */
typedef struct { double all, host; } Cost;

static Cost cost_of(void (*put)(void), unsigned every, unsigned us) {
    enum { COUNT = 1500 };
    store(number + AHEAD);
    const uint64_t begun = now_ns();
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % every == 0) put();
        DO(launch(tick, gpu.stream, BLOCKS, THREADS, us * 1000));
    }
    Cost cost = {.host = (double)(now_ns() - begun) / 1e3 / COUNT};
    DO(cuStreamSynchronize(gpu.stream));
    cost.all = (double)(now_ns() - begun) / 1e3 / COUNT;
    return cost;
}

/* The best of some rounds, each of which has every shape. */
static void tell_costs(unsigned every, unsigned us) {
    enum { ROUNDS = 5 };
    Cost best[SHAPE_COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < SHAPE_COUNT; i++) {
            Cost cost = cost_of(SHAPES[i].put, every, us);
            if (round == 0 || cost.all < best[i].all) best[i].all = cost.all;
            if (round == 0 || cost.host < best[i].host) best[i].host = cost.host;
        }
    }
    for (size_t i = 0; i < SHAPE_COUNT; i++)
        TELL("{\"record\": \"costs\", \"gate\": \"%s\", \"every\": %u, \"kernel_us\": %u, \"us\": %.2f, \"host_us\": %.2f}",
             SHAPES[i].name, every, us, best[i].all, best[i].host);
}

int main(int count, char **given) {
    static const unsigned EVERY[] = {1, 5};
    if (count < 3) DIE("gates SAMPLES MICROSECONDS...");
    CUmodule module = open_gpu(PTX_HEAD PTX_TICK, SIMULATED_HEAD SIMULATED_KERNEL("tick"));
    DO(cuModuleGetFunction(&tick, module, "tick"));
    DO(cuEventCreate(&mark, 0));
    DO(launch(tick, gpu.stream, BLOCKS, THREADS, 1000));
    DO(cuStreamSynchronize(gpu.stream));
    srand(3);
    tell_taken();
    for (int i = 2; i < count; i++)
        for (size_t k = 0; k < sizeof EVERY / sizeof *EVERY; k++)
            for (unsigned marks = 0; marks < 2; marks++) tell_stops((unsigned)atoi(given[i]), EVERY[k], marks, atoi(given[1]));
    for (size_t k = 0; k < sizeof EVERY / sizeof *EVERY && gpu.is_real; k++) tell_costs(EVERY[k], 10);
    if (!gpu.is_real) TELL("{\"record\": \"left_out\", \"what\": \"costs\", \"why\": \"the simulator's are its own\"}");
    TELL("{\"record\": \"end\", \"simulated\": %s}", gpu.is_real ? "false" : "true");
    return 0;
}

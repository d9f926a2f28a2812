/* ddp RANK RANKS NAME SECONDS STEP_US COLLECTIVE_US [BUCKETS PARTS]: one rank of a data-parallel training, on the simulated GPU only, as
 * PyTorch's DistributedDataParallel runs one. A step is kernels of STEP_US and collectives of COLLECTIVE_US in total. The first third of the
 * kernels is the forward pass. The backward pass computes BUCKETS of gradients, and behind each a collective in PARTS starts on a stream of
 * its own. The next step waits for the last collective. The host launches ahead and waits for every second step. NAME is of one job and is
 * used once.
 *
 * If RANK is "all", the process has a thread for each rank, and the GPU of the rank's number. Each thread reads and prints as a process does.
 *
 * It prints "ready", trains for SECONDS from a line on stdin on, and prints its steps per second, its longest step in ms and its number of
 * steps. Rank 0 decides which step is the last. */
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

enum { NUMBERS = 64, KERNEL_US = 500, WAIT_EVERY = 2, EVENTS = WAIT_EVERY + 1, NO_TIMING = 2, PAGE = 4096 };
/* The collective has its blocks on some multiprocessors, and the kernels of the model run on the others beside it. */
enum { COLLECTIVE_BLOCKS = 24, MODEL_BLOCKS = 132 - COLLECTIVE_BLOCKS, THREADS = 512 };

static const char DDP_MODULE[] = "SLUICE-SIM 1\n"
                                 "kernel all_reduce params=communicator:u64,rank:u32,ranks:u32,parts:u32,iters:u32 ns_per_iter=1000 effect=collective\n";

/* FNV-1a. */
static uint64_t number_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The number of the last step, which all ranks read; 0 until it is known. */
static volatile unsigned *open_last_step(const char *name, char *path, size_t size) {
    snprintf(path, size, "/dev/shm/sluice-ddp-%016llx", (unsigned long long)number_of(name));
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, PAGE)) exit(EXIT_BROKEN);
    volatile unsigned *last = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (last == MAP_FAILED) exit(EXIT_BROKEN);
    close(file);
    return last;
}

/* Kernels of the model that take `us` in total. */
static void run_model(CUfunction spin, CUdeviceptr data, unsigned us, CUstream stream) {
    while (us > 0) {
        unsigned n = NUMBERS, now = us < 2 * KERNEL_US ? us : KERNEL_US;
        void *arguments[] = {&data, &n, &now};
        DO(cuLaunchKernel(spin, MODEL_BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL));
        us -= now;
    }
}

static int argument_count;
static char **arguments;

static int train(unsigned rank, int device) {
    int count = argument_count;
    unsigned ranks = (unsigned)atoi(arguments[2]);
    double limit = atof(arguments[4]);
    unsigned step_us = (unsigned)atoi(arguments[5]), collective_us = (unsigned)atoi(arguments[6]);
    unsigned buckets = count == 9 ? (unsigned)atoi(arguments[7]) : 1, parts = count == 9 ? (unsigned)atoi(arguments[8]) : 1;
    if (!buckets) exit(EXIT_BROKEN);
    unsigned forward_us = step_us / 3, backward_us = (step_us - forward_us) / buckets, bucket_us = collective_us / buckets;
    uint64_t communicator = number_of(arguments[3]);
    char path[64], line[16];
    volatile unsigned *last = open_last_step(arguments[3], path, sizeof path);

    Gpu gpu = open_gpu_number(device);
    CUmodule module;
    CUfunction all_reduce;
    DO(cuModuleLoadData(&module, DDP_MODULE));
    DO(cuModuleGetFunction(&all_reduce, module, "all_reduce"));
    CUdeviceptr data = numbers(NUMBERS);
    CUstream compute, communicate;
    CUevent computed, reduced[EVENTS];
    DO(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    DO(cuStreamCreate(&communicate, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&computed, NO_TIMING));
    for (int i = 0; i < EVENTS; i++) DO(cuEventCreate(&reduced[i], 0));
    void *place[] = {&communicator, &rank, &ranks, &parts, &bucket_us};

    SAY("ready");
    if (!fgets(line, sizeof line, stdin)) return 0;
    double begin = 0, end = 0, longest = 0;
    unsigned step = 0, measured = 0;
    for (double stop = seconds() + limit; !*last || step < *last;) {
        step++;
        run_model(gpu.spin, data, forward_us, compute);
        for (unsigned bucket = 0; bucket < buckets; bucket++) {
            run_model(gpu.spin, data, backward_us, compute);
            DO(cuEventRecord(computed, compute));
            DO(cuStreamWaitEvent(communicate, computed, 0));
            DO(cuLaunchKernel(all_reduce, COLLECTIVE_BLOCKS, 1, 1, THREADS, 1, 1, 0, communicate, place, NULL));
        }
        DO(cuEventRecord(reduced[step % EVENTS], communicate));
        DO(cuStreamWaitEvent(compute, reduced[step % EVENTS], 0));
        if (step % WAIT_EVERY) continue;
        DO(cuStreamSynchronize(compute));
        end = seconds();
        /* The first steps wait until every rank has started. */
        if (!begin) {
            begin = end;
            continue;
        }
        measured += WAIT_EVERY;
        for (unsigned i = 0; i < WAIT_EVERY; i++) {
            float took;
            DO(cuEventElapsedTime(&took, reduced[(step - i - 1) % EVENTS], reduced[(step - i) % EVENTS]));
            if (took > longest) longest = took;
        }
        /* The other ranks' hosts are at most WAIT_EVERY steps ahead. */
        if (rank == 0 && !*last && end >= stop) *last = step + 2 * WAIT_EVERY;
    }
    DO(cuStreamSynchronize(compute));
    if (rank == 0) unlink(path);
    SAY("%.3f %.1f %u", measured ? measured / (end - begin) : 0, longest, measured);
    return 0;
}

static void *train_rank(void *rank) {
    int number = (int)(intptr_t)rank;
    if (train((unsigned)number, number)) exit(EXIT_BROKEN);
    return NULL;
}

int main(int count, char **given) {
    if (count != 7 && count != 9) exit(EXIT_BROKEN);
    argument_count = count, arguments = given;
    if (strcmp(given[1], "all")) return train((unsigned)atoi(given[1]), 0);
    enum { MOST = 8 };
    pthread_t threads[MOST];
    int ranks = atoi(given[2]);
    if (ranks < 1 || ranks > MOST) exit(EXIT_BROKEN);
    for (intptr_t rank = 0; rank < ranks; rank++) {
        if (pthread_create(&threads[rank], NULL, train_rank, (void *)rank)) exit(EXIT_BROKEN);
    }
    for (int rank = 0; rank < ranks; rank++) pthread_join(threads[rank], NULL);
    return 0;
}

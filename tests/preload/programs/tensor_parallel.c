/* tensor_parallel RANK RANKS NAME TOKENS: one rank of a service that generates tokens on several GPUs, on the simulated GPU only. A request
 * comes to all ranks at the same time, at irregular intervals, and begins with a launch. Each token is a kernel, a collective of all ranks, a
 * copy of 8 bytes to the host and a wait. NAME is of one service and is used once.
 *
 * It prints "ready", and serves until stdin is closed. Each line on stdin, which all ranks get, is "requests N": it serves N requests and
 * prints how many hold kernels it launched. */
#include "common.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

enum { NUMBERS = 64, KERNEL_US = 500, COLLECTIVE_US = 400, PARTS = 4, PAUSE_US = 20000, POLL_US = 20, PAGE = 4096 };
enum { MODEL_BLOCKS = 132, COLLECTIVE_BLOCKS = 24, THREADS = 512 };

static const char MODULE_OF_RANKS[] = "SLUICE-SIM 1\n"
                                      "kernel all_reduce params=communicator:u64,rank:u32,ranks:u32,parts:u32,iters:u32 ns_per_iter=1000 effect=collective\n";

/* The number of the request that rank 0 has received last. */
static volatile unsigned *open_received(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/sluice-tp-%s", name);
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, PAGE)) exit(EXIT_BROKEN);
    volatile unsigned *received = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (received == MAP_FAILED) exit(EXIT_BROKEN);
    close(file);
    return received;
}

int main(int count, char **arguments) {
    if (count != 5) exit(EXIT_BROKEN);
    unsigned rank = (unsigned)atoi(arguments[1]), ranks = (unsigned)atoi(arguments[2]);
    uint64_t communicator = strtoul(arguments[3], NULL, 10);
    unsigned tokens = (unsigned)atoi(arguments[4]), parts = PARTS, us = COLLECTIVE_US, n = NUMBERS, kernel_us = KERNEL_US;
    volatile unsigned *received = open_received(arguments[3]);
    size_t (*hold_counters)(uint64_t *, size_t) = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_holds");
    EXPECT(hold_counters);

    Gpu gpu = open_gpu();
    CUmodule module;
    CUfunction all_reduce;
    CUstream stream;
    DO(cuModuleLoadData(&module, MODULE_OF_RANKS));
    DO(cuModuleGetFunction(&all_reduce, module, "all_reduce"));
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr data = numbers(NUMBERS);
    void *model[] = {&data, &n, &kernel_us}, *place[] = {&communicator, &rank, &ranks, &parts, &us};

    SAY("ready");
    char line[32];
    unsigned request = 0, random = 1;
    while (fgets(line, sizeof line, stdin)) {
        uint64_t before[1], after[1], token;
        EXPECT(hold_counters(before, 1) >= 1);
        for (unsigned long left = strtoul(line + strlen("requests "), NULL, 10); left > 0; left--) {
            request++;
            if (rank == 0) {
                random = random * 1664525u + 1013904223u;
                usleep(PAUSE_US + (random >> 8) % PAUSE_US);
                *received = request;
            } else {
                while (*received < request) usleep(POLL_US);
            }
            for (unsigned i = 0; i < tokens; i++) {
                DO(cuLaunchKernel(gpu.spin, MODEL_BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, model, NULL));
                DO(cuLaunchKernel(all_reduce, COLLECTIVE_BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, place, NULL));
                DO(cuMemcpyDtoHAsync_v2(&token, data, sizeof token, stream));
                DO(cuStreamSynchronize(stream));
            }
        }
        EXPECT(hold_counters(after, 1) >= 1);
        SAY("holds %lu", (unsigned long)(after[0] - before[0]));
    }
    return 0;
}

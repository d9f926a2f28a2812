/* ring STEPS MICROS: two processes, of which each step of one waits for the same step of the other on the GPU, by stream memory operations
 * on a page of theirs, as the ranks of a collective do. It prints "done" after STEPS steps. */
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { NUMBERS = 64, PAGE = 4096, RANK_WORDS = 64, READY = 512 };

int main(int count, char **arguments) {
    if (count != 3) exit(EXIT_BROKEN);
    unsigned steps = (unsigned)strtoul(arguments[1], NULL, 10), micros = (unsigned)strtoul(arguments[2], NULL, 10);
    volatile unsigned *words = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) exit(EXIT_BROKEN);
    pid_t child = fork();
    if (child < 0) exit(EXIT_BROKEN);
    int rank = child == 0;
    Gpu gpu = open_gpu();
    CUstream stream;
    CUdeviceptr page, data = numbers(NUMBERS);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuMemHostRegister_v2((void *)words, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    DO(cuMemHostGetDevicePointer_v2(&page, (void *)words, 0));
    CUdeviceptr own = page + 4 * RANK_WORDS * (CUdeviceptr)rank, other = page + 4 * RANK_WORDS * (CUdeviceptr)!rank;
    words[READY + rank] = 1;
    while (!words[READY + !rank]) usleep(1000);
    for (unsigned step = 1; step <= steps; step++) {
        DO(launch(gpu.spin, data, NUMBERS, micros, stream));
        DO(cuStreamWriteValue32_v2(stream, own, step, 0));
        DO(cuStreamWaitValue32_v2(stream, other, step, CU_STREAM_WAIT_VALUE_GEQ));
        DO(cuStreamSynchronize(stream));
    }
    if (rank) return 0;
    int status;
    if (waitpid(child, &status, 0) != child || status) exit(EXIT_BROKEN);
    SAY("done");
    return 0;
}

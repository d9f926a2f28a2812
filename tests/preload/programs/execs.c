/* execs: uses CUDA, leaves memory and work behind, and becomes a fresh image of itself, which uses CUDA again. */
#include "common.h"

int main(int argc, char **argv) {
    const unsigned n = 64;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(n);
    for (int i = 0; i < 10; i++) DO(launch(gpu.mix, data, n, 100, NULL));
    if (argc == 1) {
        execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        return EXIT_BROKEN;
    }
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, n, 10));
    SAY("%s", argv[1]);
    return 0;
}

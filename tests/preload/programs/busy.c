/* busy MICROS DEPTH PAUSE_MS: keeps DEPTH kernels in flight until stdin closes, then checks that each ran exactly once. It pauses after
 * each batch if PAUSE_MS is given. */
#include "common.h"
#include <poll.h>

int main(int argc, char **argv) {
    unsigned micros = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    unsigned depth = argc > 2 ? (unsigned)atoi(argv[2]) : 8;
    int pause_ms = argc > 3 ? atoi(argv[3]) : 0;
    const unsigned n = 64;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(n);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned long launched = 0;
    SAY("ready");
    while (poll(&input, 1, pause_ms) == 0) {
        for (unsigned i = 0; i < depth; i++, launched++) DO(launch(gpu.mix, data, n, micros, NULL));
        DO(cuCtxSynchronize());
    }
    EXPECT(mixed(data, n, launched));
    SAY("%lu", launched);
    return 0;
}

/* ended_stream MICROS: for each line "launch" launches a kernel on a stream, and prints "launched". For "end" destroys the stream, and prints
 * "ended". At the end of its input waits for all work, and checks that each kernel ran once. */
#include "common.h"

enum { N = 64 };

int main(int argc, char **argv) {
    unsigned micros = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
    unsigned long launched = 0;
    char line[16];
    CUstream stream;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "end", 3)) {
            DO(cuStreamDestroy_v2(stream));
            SAY("ended");
        } else {
            DO(launch(gpu.mix, data, N, micros, stream));
            launched++;
            SAY("launched");
        }
    }
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, N, launched));
    return 0;
}

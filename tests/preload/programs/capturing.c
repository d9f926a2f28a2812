/* capturing MICROS [own]: keeps a capture open on a stream of its own, and fifty kernels of MICROS in flight on the legacy default stream, until
 * stdin closes. With "own" they are on the thread's own default stream, and the program can preempt its streams. */
#include "preempt.h"
#include <poll.h>

int main(int argc, char **argv) {
    unsigned micros = argc > 1 ? (unsigned)atoi(argv[1]) : 1000, launched = 0;
    int mode = CAPTURE_RELAXED;
    CUstream on = argc > 2 ? CU_STREAM_PER_THREAD : NULL, captured;
    gpu = open_gpu();
    CUdeviceptr data = numbers(64);
    CUevent behind;
    CUgraph graph;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    if (on) {
        look_up();
        stream(CU_STREAM_NON_BLOCKING);
    }
    DO(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&behind, 0));
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    DO(cuStreamBeginCapture_v2(captured, CAPTURE_RELAXED));
    SAY("ready");
    while (poll(&input, 1, 0) == 0) {
        for (int i = 0; i < 50; i++, launched++) DO(launch(gpu.mix, data, 64, micros, on));
        DO(cuEventRecord(behind, on));
        DO(cuEventSynchronize(behind));
    }
    DO(cuStreamEndCapture(captured, &graph));
    EXPECT(mixed(data, 64, launched));
    return 0;
}

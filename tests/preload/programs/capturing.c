/* capturing MICROS: keeps a capture open on a stream of its own, and fifty kernels of MICROS in flight on the legacy default stream, until
 * stdin closes. */
#include "common.h"
#include <poll.h>

int main(int argc, char **argv) {
    unsigned micros = argc > 1 ? (unsigned)atoi(argv[1]) : 1000, launched = 0;
    int mode = CAPTURE_RELAXED;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(64);
    CUstream stream;
    CUevent behind;
    CUgraph graph;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&behind, 0));
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    SAY("ready");
    while (poll(&input, 1, 0) == 0) {
        for (int i = 0; i < 50; i++, launched++) DO(launch(gpu.mix, data, 64, micros, NULL));
        DO(cuEventRecord(behind, NULL));
        DO(cuEventSynchronize(behind));
    }
    DO(cuStreamEndCapture(stream, &graph));
    EXPECT(mixed(data, 64, launched));
    return 0;
}

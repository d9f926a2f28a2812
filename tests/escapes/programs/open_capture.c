/* A capture that never ends on one stream, and launches on another: calls during a capture pass the launch gate. */
#include "escape.h"

int main(void) {
    Gpu gpu = honest_tenant();
    CUstream captured, other;
    DO(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DO(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    ATTEMPT();
    DO(cuStreamBeginCapture_v2(captured, CAPTURE_RELAXED));
    while (!ended()) {
        for (int i = 0; i < 8; i++) DO(launch(gpu.spin, 0, 0, 1000, other));
        DO(cuStreamSynchronize(other));
    }
    return 0;
}

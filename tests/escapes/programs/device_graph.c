/* A graph that is instantiated for launches by the device, and launches itself again at its end: no call of the host follows. */
#include "escape.h"

enum { DEVICE_LAUNCH = 4 };

int main(void) {
    Gpu gpu = honest_tenant();
    CUstream stream;
    CUgraph graph;
    CUgraphExec launchable;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    for (int i = 0; i < 4; i++) DO(launch(gpu.spin, 0, 0, 1000, stream));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&launchable, graph, DEVICE_LAUNCH));
    DO(cuGraphUpload(launchable, stream));
    ATTEMPT();
    DO(cuGraphLaunch(launchable, stream));
    rest();
    _exit(0);
}

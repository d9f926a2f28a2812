/* later: keeps kernels in flight, and with its first line of input makes a second context in which a thread of its own does so
 * too, until stdin closes. The first context's thread may be in the driver all that time. */
#include "common.h"
#include <pthread.h>

static volatile int ends;

static void *busy(void *context) {
    CUfunction mix;
    DO(cuCtxSetCurrent(context));
    CUmodule module = load_kernels();
    DO(cuModuleGetFunction(&mix, module, "mix"));
    CUdeviceptr data = numbers(64);
    while (!ends) {
        for (unsigned i = 0; i < 4; i++) DO(launch(mix, data, 64, 1000, NULL));
        DO(cuCtxSynchronize());
    }
    return NULL;
}

int main(void) {
    char line[64];
    pthread_t first, second;
    CUcontext later = NULL;
    Gpu gpu = open_gpu();
    pthread_create(&first, NULL, busy, gpu.context);
    SAY("ready");
    if (fgets(line, sizeof line, stdin)) {
        DO(cuCtxCreate_v2(&later, 0, gpu.device));
        pthread_create(&second, NULL, busy, later);
        SAY("more");
        while (fgets(line, sizeof line, stdin)) {}
    }
    ends = 1;
    pthread_join(first, NULL);
    if (later) pthread_join(second, NULL);
    return 0;
}

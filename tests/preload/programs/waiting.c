/* waiting MICROS: again and again a kernel, a function of the host that takes 20 ms, and a wait for both, until stdin closes. */
#include "common.h"
#include <poll.h>

enum { NUMBERS = 64, FUNCTION_US = 20000 };

static void function(void *argument) {
    (void)argument;
    usleep(FUNCTION_US);
}

int main(int count, char **arguments) {
    if (count != 2) exit(EXIT_BROKEN);
    unsigned micros = (unsigned)atoi(arguments[1]);
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(NUMBERS);
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct pollfd input = {.fd = 0, .events = POLLIN};
    SAY("ready");
    while (poll(&input, 1, 0) == 0) {
        DO(launch(gpu.spin, data, NUMBERS, micros, stream));
        DO(cuLaunchHostFunc(stream, function, NULL));
        DO(cuStreamSynchronize(stream));
    }
    SAY("done");
    return 0;
}

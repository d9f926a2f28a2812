/* next: prints the answer of a function under a foreign interposer, launches, and prints how many launches the interposer has counted. */
#include "common.h"
#include <dlfcn.h>

const char *who_are_you(void);

int main(void) {
    int *seen = dlsym(RTLD_DEFAULT, "layer_launches");
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(64);
    for (int i = 0; i < 10; i++) DO(launch(gpu.mix, data, 64, 100, NULL));
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, 64, 10));
    SAY("%s", who_are_you());
    SAY("%d", seen ? *seen : -1);
    return 0;
}

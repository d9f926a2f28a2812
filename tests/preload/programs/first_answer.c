/* Makes a context, asks at once how much memory is free, by `cuda` or by `nvml`, and takes all of it, to the MiB. Prints the free memory
 * and the result of the allocation. */
#include "common.h"
#include <dlfcn.h>

static size_t free_by_nvml(void) {
    struct { unsigned long long total, free, used; } memory;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*get_device)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*get_memory)(void *, void *) = (int (*)(void *, void *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    if (init() || get_device(0, &device) || get_memory(device, &memory)) exit(EXIT_BROKEN);
    return memory.free;
}

int main(int argc, char **argv) {
    if (argc != 2) return EXIT_BROKEN;
    (void)open_gpu();
    size_t free = 0, total;
    if (!strcmp(argv[1], "nvml")) free = free_by_nvml();
    else DO(cuMemGetInfo_v2(&free, &total));
    CUdeviceptr data;
    SAY("%zu %d", free, cuMemAlloc_v2(&data, free >> 20 << 20));
    return 0;
}

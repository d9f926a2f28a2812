/* nvml_linked: linked against libnvidia-ml.so.1. Prints the memory and the number of processes that NVML shows. */
#include <stdio.h>

unsigned nvmlInit_v2(void);
unsigned nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
unsigned nvmlDeviceGetMemoryInfo(void *, unsigned long long *);
unsigned nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *, void *);

int main(void) {
    void *device;
    unsigned long long memory[3];
    char infos[64][24];
    unsigned count = 64;
    if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device)) return 10;
    if (nvmlDeviceGetMemoryInfo(device, memory)) return 10;
    if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos)) return 10;
    printf("%llu %llu %llu %u\n", memory[0], memory[1], memory[2], count);
    return 0;
}

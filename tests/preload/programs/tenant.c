/* A tenant under the test's control: executes each line of stdin and answers it with one line; ends with its input.
 *   take WAY BYTES    -> took N | refused CODE          drop N       -> dropped
 *   launch N MICROS   -> launched (N "mix" kernels)      sync         -> synced
 *   spin N MICROS     -> launched (N kernels that touch no memory)
 *   check             -> right | wrong (each launch ran exactly once)
 *   info              -> FREE TOTAL (cuMemGetInfo)       total        -> TOTAL (cuDeviceTotalMem)
 *   load BYTES        -> loaded (a module with a global variable of this size)
 *   churn TIMES BYTES -> churned N (allocations that succeeded before the first refusal, each freed at once)
 *   leave CODE        -> (exits without freeing anything) */
#include "memory.h"

int main(void) {
    const unsigned n = 64;
    Block blocks[4096];
    unsigned count = 0;
    unsigned long launched = 0;
    char line[128], word[32];
    Gpu gpu = open_gpu();
    CUdeviceptr data = 0;
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        unsigned long a = 0, b = 0;
        size_t free_bytes, total;
        if (sscanf(line, "take %31s %lu", word, &a) == 2 && count < 4096) {
            CUresult result = take(way_named(word), a, gpu.device, &blocks[count]);
            if (result)
                SAY("refused %d", result);
            else
                SAY("took %u", count++);
        } else if (sscanf(line, "drop %lu", &a) == 1 && a < count) {
            DO(give_back(blocks[a]));
            SAY("dropped");
        } else if (sscanf(line, "launch %lu %lu", &a, &b) == 2) {
            if (!data) data = numbers(n);
            for (unsigned long i = 0; i < a; i++, launched++) DO(launch(gpu.mix, data, n, (unsigned)b, NULL));
            SAY("launched");
        } else if (sscanf(line, "spin %lu %lu", &a, &b) == 2) {
            for (unsigned long i = 0; i < a; i++) DO(launch(gpu.spin, 0, 0, (unsigned)b, NULL));
            SAY("launched");
        } else if (!strncmp(line, "sync", 4)) {
            DO(cuCtxSynchronize());
            SAY("synced");
        } else if (!strncmp(line, "check", 5)) {
            SAY(!launched || mixed(data, n, launched) ? "right" : "wrong");
        } else if (!strncmp(line, "info", 4)) {
            DO(cuMemGetInfo_v2(&free_bytes, &total));
            SAY("%zu %zu", free_bytes, total);
        } else if (!strncmp(line, "total", 5)) {
            DO(cuDeviceTotalMem_v2(&total, gpu.device));
            SAY("%zu", total);
        } else if (sscanf(line, "load %lu", &a) == 1) {
            char text[64];
            CUmodule module;
            snprintf(text, sizeof text, "SLUICE-SIM 1\nglobal table bytes=%lu\n", a);
            DO(cuModuleLoadData(&module, text));
            SAY("loaded");
        } else if (sscanf(line, "churn %lu %lu", &a, &b) == 2) {
            unsigned long times = 0;
            CUdeviceptr memory;
            for (; times < a && cuMemAlloc_v2(&memory, b) == CUDA_SUCCESS; times++) DO(cuMemFree_v2(memory));
            SAY("churned %lu", times);
        } else if (sscanf(line, "leave %lu", &a) == 1) {
            exit((int)a);
        } else {
            fprintf(stderr, "not understood: %s", line);
            return EXIT_BROKEN;
        }
    }
    return 0;
}

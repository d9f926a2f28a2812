/* A second process imports the first one's memory and then allocates until it is refused: the memory counts once, for the first one. */
#include "escape.h"
#include <signal.h>
#include <sys/prctl.h>

typedef struct { unsigned char bytes[64]; } IpcHandle;
CUresult cuIpcGetMemHandle(IpcHandle *, CUdeviceptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, IpcHandle, unsigned);

enum { NUMBERS = 1000 };

static void import(int from) {
    IpcHandle handle;
    CUdeviceptr imported, data;
    EXPECT(read(from, &handle, sizeof handle) == sizeof handle);
    open_gpu();
    DO(cuIpcOpenMemHandle_v2(&imported, handle, 1));
    EXPECT(added(imported, NUMBERS, 0));
    ATTEMPT();
    while (cuMemAlloc_v2(&data, 64UL << 20) == CUDA_SUCCESS) {}
    rest();
}

int main(int argc, char **argv) {
    if (argc > 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        import(atoi(argv[1]));
        return 0;
    }
    int ends[2];
    EXPECT(pipe(ends) == 0);
    if (fork() == 0) {
        char end[16];
        snprintf(end, sizeof end, "%d", ends[0]);
        execl("/proc/self/exe", argv[0], end, NULL);
        _exit(EXIT_BROKEN);
    }
    honest_tenant();
    IpcHandle handle;
    CUdeviceptr data;
    uint64_t host[NUMBERS];
    for (uint64_t i = 0; i < NUMBERS; i++) host[i] = i;
    DO(cuMemAlloc_v2(&data, 512UL << 20));
    DO(cuMemcpyHtoD_v2(data, host, sizeof host));
    DO(cuIpcGetMemHandle(&handle, data));
    EXPECT(write(ends[1], &handle, sizeof handle) == sizeof handle);
    rest();
    return 0;
}

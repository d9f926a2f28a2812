/* memory pool|managed BYTES: takes memory in pieces of 64 MiB until the driver refuses, or until it has BYTES. */
#include "escape.h"

int main(int argc, char **argv) {
    EXPECT(argc > 2);
    const size_t piece = 64UL << 20;
    size_t limit = strtoull(argv[2], NULL, 0);
    int managed = !strcmp(argv[1], "managed");
    honest_tenant();
    if (!managed) {
        CUmemoryPool pool;
        uint64_t keep = UINT64_MAX;
        DO(cuDeviceGetDefaultMemPool(&pool, 0));
        DO(cuMemPoolSetAttribute(pool, 4 /* release threshold */, &keep));
    }
    ATTEMPT();
    CUdeviceptr data;
    for (size_t taken = 0; taken < limit; taken += piece) {
        CUresult got = managed ? cuMemAllocManaged(&data, piece, CU_MEM_ATTACH_GLOBAL) : cuMemAllocAsync(&data, piece, NULL);
        if (got) break;
        (void)cuCtxSynchronize();
    }
    rest();
    return 0;
}

/* Every way of getting device memory that Sluice charges, behind one pair of functions. */
#pragma once
#include "common.h"

typedef enum { ALLOC, PITCH, MANAGED, ASYNC, POOL, CREATE, ARRAY, ARRAY3D, MIPMAP, WAYS } Way;
static const char *const WAY_NAMES[WAYS] = {"alloc",  "pitch", "managed", "async", "pool",
                                            "create", "array", "array3d", "mipmap"};

typedef struct {
    Way way;
    uint64_t handle;
} Block;

/* Takes `bytes` in the given way. Pitch and arrays take rows of 1 MiB, "create" granules of 2 MiB, so that what is asked
 * for is also what is used; a mipmap of one level is as large as an array. */
static CUresult take(Way way, size_t bytes, CUdevice device, Block *block) {
    const size_t row = 1 << 20;
    static CUmemoryPool pool;
    PoolProps pool_props = {.type = 1, .location = {1, device}};
    AllocationProp prop = {.type = 1, .location = {1, device}};
    /* 16 bytes per element: four channels of 32 bits. */
    ArrayDescriptor flat = {row / 64, bytes / (row / 4), CU_AD_FORMAT_FLOAT, 4};
    Array3dDescriptor deep = {row / 64, bytes / (row / 4), 0, CU_AD_FORMAT_FLOAT, 4, 0};
    size_t pitch = 0;
    block->way = way;
    block->handle = 0;
    switch (way) {
    case ALLOC: return cuMemAlloc_v2(&block->handle, bytes);
    case PITCH: return cuMemAllocPitch_v2(&block->handle, &pitch, row, bytes / row, 16);
    case MANAGED: return cuMemAllocManaged(&block->handle, bytes, CU_MEM_ATTACH_GLOBAL);
    case ASYNC: return cuMemAllocAsync(&block->handle, bytes, NULL);
    case POOL:
        if (!pool) DO(cuMemPoolCreate(&pool, &pool_props));
        return cuMemAllocFromPoolAsync(&block->handle, bytes, pool, NULL);
    case CREATE: return cuMemCreate((CUhandle *)&block->handle, bytes, &prop, 0);
    case ARRAY: return cuArrayCreate_v2((CUarray *)&block->handle, &flat);
    case ARRAY3D: return cuArray3DCreate_v2((CUarray *)&block->handle, &deep);
    case MIPMAP: return cuMipmappedArrayCreate((CUmipmappedArray *)&block->handle, &deep, 1);
    default: exit(EXIT_BROKEN);
    }
}

static CUresult give_back(Block block) {
    CUresult result;
    switch (block.way) {
    case ASYNC:
    case POOL:
        result = cuMemFreeAsync(block.handle, NULL);
        return result ? result : cuCtxSynchronize();
    case CREATE: return cuMemRelease(block.handle);
    case ARRAY:
    case ARRAY3D: return cuArrayDestroy((CUarray)block.handle);
    case MIPMAP: return cuMipmappedArrayDestroy((CUmipmappedArray)block.handle);
    default: return cuMemFree_v2(block.handle);
    }
}

static Way way_named(const char *name) {
    for (int way = 0; way < WAYS; way++)
        if (!strcmp(name, WAY_NAMES[way])) return (Way)way;
    fprintf(stderr, "unknown way of allocating: %s\n", name);
    exit(EXIT_BROKEN);
}

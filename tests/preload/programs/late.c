/* late: linked against nothing of CUDA; opens libcuda.so.1 after start and asks for entry points in every way there is.
 * Prints "WAY NAME LIBRARY" for each, LIBRARY being the file that holds the code, then computes through what dlsym gave. */
#define _GNU_SOURCE
#include "cu.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef CUresult (*Lookup)(const char *, void **, int, uint64_t);
typedef CUresult (*LookupWithStatus)(const char *, void **, int, uint64_t, int *);

static void report(const char *way, const char *name, void *function) {
    Dl_info info;
    const char *file = function && dladdr(function, &info) ? strrchr(info.dli_fname, '/') : NULL;
    printf("%s %s %s %s\n", way, name, file ? file + 1 : "none", file && info.dli_sname ? info.dli_sname : "-");
}

static const char *const SYMBOLS[] = {
    "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch",
    "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemCreate", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2",
    "cuGetProcAddress", "cuGetProcAddress_v2", "cuCtxSynchronize"};

/* (name, version, flags), as the runtimes of CUDA 11, 12 and 13 ask. */
static const struct { const char *name; int version; uint64_t flags; } QUERIES[] = {
    {"cuLaunchKernel", 4000, 0}, {"cuLaunchKernel", 7000, 2}, {"cuLaunchKernelEx", 11060, 0}, {"cuLaunchKernelEx", 11060, 2},
    {"cuLaunchCooperativeKernel", 9000, 2}, {"cuGraphLaunch", 10000, 0}, {"cuGraphLaunch", 10000, 2}, {"cuMemAlloc", 3020, 0},
    {"cuMemFree", 3020, 0}, {"cuMemAllocAsync", 11020, 2}, {"cuMemAllocFromPoolAsync", 11020, 0}, {"cuMemCreate", 10020, 0},
    {"cuMemGetInfo", 3020, 0}, {"cuDeviceTotalMem", 3020, 0}, {"cuCtxSynchronize", 2000, 0}, {"cuGetProcAddress", 11030, 0},
    {"cuGetProcAddress", 12000, 0}};

int main(void) {
    char way[64];
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda) {
        fprintf(stderr, "%s\n", dlerror());
        return 12;
    }
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
        report("dlsym", SYMBOLS[i], dlsym(cuda, SYMBOLS[i]));
        /* The driver's symbols carry no version of their own, so that dlvsym finds none of any name. */
        report("dlvsym", SYMBOLS[i], dlvsym(cuda, SYMBOLS[i], "libcuda.so.1"));
    }
    report("dlsym", "cuNoSuchFunction", dlsym(cuda, "cuNoSuchFunction"));
    report("dlsym", "getpid", dlsym(RTLD_DEFAULT, "getpid"));
    report("dlvsym", "memcpy", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5"));
    Lookup lookup = (Lookup)dlsym(cuda, "cuGetProcAddress");
    LookupWithStatus lookup2 = (LookupWithStatus)dlsym(cuda, "cuGetProcAddress_v2");
    for (size_t i = 0; i < sizeof QUERIES / sizeof *QUERIES; i++) {
        void *first = NULL, *second = NULL;
        int status = -1;
        snprintf(way, sizeof way, "get(%d,%d)", QUERIES[i].version, (int)QUERIES[i].flags);
        if (lookup(QUERIES[i].name, &first, QUERIES[i].version, QUERIES[i].flags)) first = NULL;
        report(way, QUERIES[i].name, first);
        if (lookup2(QUERIES[i].name, &second, QUERIES[i].version, QUERIES[i].flags, &status)) second = NULL;
        snprintf(way, sizeof way, "get2(%d,%d)", QUERIES[i].version, (int)QUERIES[i].flags);
        report(way, QUERIES[i].name, second);
        if (second && status != 0) printf("status %s %d\n", QUERIES[i].name, status);
    }
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(cuda, "cuInit");
    return init(0) == 0 ? 0 : 10;
}

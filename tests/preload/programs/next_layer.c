/* A foreign interposer: a function of a library, and a launch function of CUDA, both passed on by RTLD_NEXT. */
#define _GNU_SOURCE
#include "cu.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

atomic_int layer_launches;

const char *who_are_you(void) {
    static char answer[64];
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "who_are_you");
    if (next == who_are_you) return "itself";
    snprintf(answer, sizeof answer, "layer over %s", next ? next() : "nothing");
    return answer;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **arguments, void **extra) {
    static __typeof__(&cuLaunchKernel) next;
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, "cuLaunchKernel");
    if (!next || next == cuLaunchKernel) return CUDA_ERROR_NOT_FOUND;
    layer_launches++;
    return next(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}

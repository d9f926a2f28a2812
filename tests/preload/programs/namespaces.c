/* namespaces: opens the driver in a namespace of its own. Every function that is looked up there has to be that driver's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *base_of(void *address) {
    Dl_info info;
    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

int main(void) {
    static const char *const names[] = {"cuInit", "cuDeviceGetCount", "cuLaunchKernel", "cuMemAlloc_v2", "cuGetProcAddress_v2"};
    void *driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 12;
    }
    void *base = base_of(dlsym(driver, "cuDriverGetVersion"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!base || base_of(dlsym(driver, names[i])) != base) {
            fprintf(stderr, "%s is of another library\n", names[i]);
            return 11;
        }
    }
    puts("same");
    return 0;
}

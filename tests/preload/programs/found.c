/* found: computes with entry points that only cuGetProcAddress_v2 gave, the way a CUDA runtime does. */
#include "common.h"
#include <dlfcn.h>

static CUresult (*find_address)(const char *, void **, int, uint64_t, int *);

static void *find(const char *name, int version, uint64_t flags) {
    void *function = NULL;
    int status = -1;
    DO(find_address(name, &function, version, flags, &status));
    EXPECT(function && status == 0);
    return function;
}

int main(void) {
    enum { N = 64 };
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    find_address = (__typeof__(find_address))dlsym(cuda, "cuGetProcAddress_v2");
    EXPECT(find_address);
    CUresult (*init)(unsigned) = find("cuInit", 2000, 0);
    CUresult (*retain)(CUcontext *, CUdevice) = find("cuDevicePrimaryCtxRetain", 7000, 0);
    CUresult (*set)(CUcontext) = find("cuCtxSetCurrent", 4000, 0);
    CUresult (*load)(CUmodule *, const void *) = find("cuModuleLoadData", 2000, 0);
    CUresult (*get)(CUfunction *, CUmodule, const char *) = find("cuModuleGetFunction", 2000, 0);
    CUresult (*alloc)(CUdeviceptr *, size_t) = find("cuMemAlloc", 3020, 0);
    CUresult (*upload)(CUdeviceptr, const void *, size_t) = find("cuMemcpyHtoD", 3020, 0);
    CUresult (*download)(void *, CUdeviceptr, size_t) = find("cuMemcpyDtoH", 7000, 2);
    CUresult (*run)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                    void **) = find("cuLaunchKernel", 7000, 2);
    CUcontext context;
    CUmodule module;
    CUfunction add;
    CUdeviceptr data;
    uint64_t host[N];
    unsigned n = N, micros = 100;
    void *arguments[] = {&data, &n, &micros};
    DO(init(0));
    DO(retain(&context, 0));
    DO(set(context));
    DO(load(&module, MODULE));
    DO(get(&add, module, "add"));
    DO(alloc(&data, sizeof host));
    for (unsigned i = 0; i < N; i++) host[i] = i;
    DO(upload(data, host, sizeof host));
    for (int i = 0; i < 100; i++) DO(run(add, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
    DO(download(host, data, sizeof host));
    for (unsigned i = 0; i < N; i++) EXPECT(host[i] == i + 100);
    SAY("100");
    return 0;
}

/* Loads the CUDA runtime named by the argument and makes it open its driver library. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *runtime = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (!runtime) {
        fprintf(stderr, "%s\n", count > 1 ? dlerror() : "usage: ask libcudart.so");
        return 2;
    }
    int devices = 0, (*ask)(int *) = (int (*)(int *))dlsym(runtime, "cudaGetDeviceCount");
    return ask ? (ask(&devices), 0) : 2;
}

/* A libcuda.so.1 that only records the arguments of cuGetProcAddress, one "name version flags" per line on the file descriptor in
 * RECORD_FD. Every function that it returns reports that there is no device. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUDA_ERROR_NO_DEVICE: the runtime gives up, after it has requested all functions. */
static int no_device(void) { return 100; }

int cuDriverGetVersion(int *version)
{
    *version = 13050;
    return 0;
}

static int answer(const char *name, void **function, int version, uint64_t flags);

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return answer(name, function, version, flags);
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    if (status)
        *status = 0;
    return answer(name, function, version, flags);
}

static int answer(const char *name, void **function, int version, uint64_t flags)
{
    const char *fd = getenv("RECORD_FD");
    if (fd)
        dprintf(atoi(fd), "%s %d %llu\n", name, version, (unsigned long long)flags);
    *function = (void *)no_device;
    if (!strcmp(name, "cuDriverGetVersion"))
        *function = (void *)cuDriverGetVersion;
    if (!strcmp(name, "cuGetProcAddress"))
        *function = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    return 0;
}

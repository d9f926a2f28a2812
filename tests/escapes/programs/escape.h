/* What the attempts share. A program prints "attempt" at the moment from which it acts against Sluice, and works until its input
 * closes. Everything before that line is what an honest tenant does. */
#pragma once
#include "common.h"
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <poll.h>

#define ATTEMPT() SAY("attempt")

/* Whether the suite has asked this program to end. */
__attribute__((unused)) static int ended(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

/* Waits for the end. */
__attribute__((unused)) static void rest(void) {
    while (!ended()) usleep(10000);
}

/* Keeps the GPU busy through the functions that the loader gives: under the hook, the hook's. */
__attribute__((unused)) static void work(Gpu gpu) {
    while (!ended()) {
        for (int i = 0; i < 8; i++) DO(launch(gpu.spin, 0, 0, 1000, NULL));
        DO(cuCtxSynchronize());
    }
}

/* An honest tenant, up to its first completed kernel. */
__attribute__((unused)) static Gpu honest_tenant(void) {
    Gpu gpu = open_gpu();
    DO(launch(gpu.spin, 0, 0, 1000, NULL));
    DO(cuCtxSynchronize());
    return gpu;
}

/* Driver functions by pointer. */
typedef struct {
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
    CUresult (*synchronize)(void);
} Driver;

/* The functions that `find` returns for `where`. */
__attribute__((unused)) static Driver driver_by(void *(*find)(void *, const char *), void *where) {
    Driver driver;
    struct { void **to; const char *name; } wanted[] = {
        {(void **)&driver.init, "cuInit"},
        {(void **)&driver.retain, "cuDevicePrimaryCtxRetain"},
        {(void **)&driver.set_current, "cuCtxSetCurrent"},
        {(void **)&driver.load, "cuModuleLoadData"},
        {(void **)&driver.function, "cuModuleGetFunction"},
        {(void **)&driver.launch, "cuLaunchKernel"},
        {(void **)&driver.synchronize, "cuCtxSynchronize"},
    };
    for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++) {
        *wanted[at].to = find(where, wanted[at].name);
        EXPECT(*wanted[at].to);
    }
    return driver;
}

/* Keeps the GPU busy through these functions until the input closes. */
__attribute__((unused)) static void work_by(const Driver *driver) {
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CUresult begun = driver->init(0);
    if (begun && !getenv("SLUICE_SIM_SOCKET")) {
        /* NVIDIA's library refuses to start in a copy of its file: the attempt has failed, and does no work. */
        return rest();
    }
    DO(begun);
    DO(driver->retain(&context, 0));
    DO(driver->set_current(context));
    if (driver->load(&module, MODULE)) DO(driver->load(&module, PTX));
    DO(driver->function(&spin, module, "spin"));
    CUdeviceptr none = 0;
    unsigned n = 0, micros = 1000;
    void *arguments[] = {&none, &n, &micros};
    while (!ended()) {
        for (int i = 0; i < 8; i++) DO(driver->launch(spin, 132, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
        DO(driver->synchronize());
    }
}

/* The loaded library whose path contains `part` and that is not the hook. */
__attribute__((unused)) static struct link_map *library(const char *part) {
    struct link_map *map = _r_debug.r_map;
    while (map && !(strstr(map->l_name, part) && !strstr(map->l_name, "libsluice"))) map = map->l_next;
    EXPECT(map);
    return map;
}

/* The address of a symbol, read from the library's own tables: no function that the hook could replace takes part. */
__attribute__((unused)) static void *walk_elf(void *library, const char *name) {
    struct link_map *map = library;
    ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    for (ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = (void *)entry->d_un.d_ptr;
    }
    /* The table of names follows that of symbols. */
    for (ElfW(Sym) *symbol = symbols; (const char *)symbol < names; symbol++)
        if (symbol->st_shndx != SHN_UNDEF && !strcmp(names + symbol->st_name, name))
            return (char *)map->l_addr + symbol->st_value;
    return NULL;
}

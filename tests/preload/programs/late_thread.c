/* Refuses the first thread of the hook, as a system that is short of threads for a moment would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static atomic_int refused;
    Dl_info info;
    int is_of_hook = dladdr((void *)body, &info) && info.dli_fname && strstr(info.dli_fname, "libsluice.so");
    if (is_of_hook && !atomic_exchange(&refused, 1)) return EAGAIN;
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, attributes, body, argument);
}

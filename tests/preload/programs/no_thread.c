/* Refuses threads to the hook, as a system without resources would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    Dl_info info;
    if (dladdr((void *)body, &info) && info.dli_fname && strstr(info.dli_fname, "libsluice.so")) return EAGAIN;
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, attributes, body, argument);
}

/* A foreign interposer of ioctl: counts, and answers one request of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>

atomic_int layer_ioctls;

int ioctl(int fd, unsigned long request, ...) {
    static int (*next)(int, unsigned long, ...);
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    layer_ioctls++;
    if (request == 0x1234) return 77;
    if (!next) next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    return next(fd, request, argument);
}

/* kernel_ioctl: the answer of Linux to an ioctl that a descriptor does not have. qemu's user emulation passes only the requests on that it
 * knows and answers ENOSYS to others. The simulated driver expects ENOTTY, which Linux answers on a socket. */
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int descriptor, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    long result = syscall(SYS_ioctl, descriptor, request, argument);
    if (result < 0 && errno == ENOSYS) errno = ENOTTY;
    return (int)result;
}

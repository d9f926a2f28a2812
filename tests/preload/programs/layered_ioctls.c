/* Two ioctl calls that pass through whatever is preloaded; prints what came of them and how many the layer has seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(void) {
    int ends[2], waiting = 0;
    int *seen = dlsym(RTLD_DEFAULT, "layer_ioctls");
    if (!seen || pipe(ends)) return 12;
    int before = *seen;
    int answer = ioctl(ends[0], 0x1234, NULL);
    if (write(ends[1], "123", 3) != 3 || ioctl(ends[0], FIONREAD, &waiting)) return 11;
    printf("%d %d %d\n", answer, waiting, *seen - before);
}

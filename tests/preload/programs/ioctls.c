/* ioctl as programs know it, which the hook must not change: on descriptors of no driver, with requests of every
 * kind, from threads and forked children, and with errno as it was. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);                  \
            exit(11);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* A frame buffer's request and all of the driver's: they share the type byte. */
static const unsigned long NOBODYS[] = {0x4600, 0x4601, 0xc0104629, 0xc020462a, 0xc020462b, 0xc030462b, 0xc01c4634,
                                        0xc0184635, 0xc01046d3, 0xc00446c9, 0xffffffffc020462b, 0x0020462b};

static void *everything(void *rounds) {
    for (intptr_t round = 0; round < (intptr_t)rounds; round++) {
        int ends[2], waiting = 0, yes = 1;
        EXPECT(pipe(ends) == 0);
        EXPECT(write(ends[1], "12345", 5) == 5);
        errno = EDOM;
        EXPECT(ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting == 5);
        EXPECT(errno == EDOM);
        EXPECT(ioctl(ends[0], FIOCLEX) == 0 && fcntl(ends[0], F_GETFD) == FD_CLOEXEC);
        EXPECT(ioctl(ends[0], FIONCLEX) == 0 && fcntl(ends[0], F_GETFD) == 0);
        EXPECT(ioctl(ends[0], FIONBIO, &yes) == 0 && fcntl(ends[0], F_GETFL) & O_NONBLOCK);
        EXPECT(errno == EDOM);
        struct winsize size;
        EXPECT(ioctl(ends[0], TIOCGWINSZ, &size) == -1 && errno == ENOTTY);
        for (size_t at = 0; at < sizeof NOBODYS / sizeof *NOBODYS; at++) {
            uint64_t block[8];
            void *arguments[] = {NULL, (void *)1, (void *)-1, block};
            for (size_t argument = 0; argument < 4; argument++) {
                memset(block, 0, sizeof block);
                errno = 0;
                EXPECT(ioctl(ends[0], NOBODYS[at], arguments[argument]) == -1 && errno == ENOTTY);
                EXPECT(block[0] == 0 && block[7] == 0);
                errno = 0;
                EXPECT(ioctl(-1, NOBODYS[at], arguments[argument]) == -1 && errno == EBADF);
            }
        }
        close(ends[0]);
        close(ends[1]);
    }
    return NULL;
}

static void in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        everything((void *)1);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

/* Before main, perhaps before the hook's own constructor. */
__attribute__((constructor)) static void early(void) { everything((void *)1); }

int main(void) {
    everything((void *)10);
    in_child();
    pthread_t threads[8];
    for (int at = 0; at < 8; at++) EXPECT(pthread_create(&threads[at], NULL, everything, (void *)200) == 0);
    for (int at = 0; at < 4; at++) in_child();
    for (int at = 0; at < 8; at++) pthread_join(threads[at], NULL);
    puts("all as ever");
}

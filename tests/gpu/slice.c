/* Preloaded into a best-effort program that knows nothing of it: gives the compute channel group of each of its contexts a time
 * slice of SLICE_US microseconds, SLICE_AFTER_MS after the group was made (the driver sets one of its own first). With
 * SLICE_ENGINES=copy it gives that slice to the channel groups of copy engines instead. Layouts: docs/reference/driver-controls.md §3,
 * checked on 580.159 and 595.45. For tests without a manager. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RM_ALLOC 0x2b
#define RM_CONTROL 0xC020462Aul
#define CHANNEL_GROUP 0xa06c
#define SET_TIMESLICE 0xa06c0103u
#define GR0 1
#define COPY0 9

struct group {
    int fd;
    uint32_t client, handle;
};

static void *set_slice(void *argument) {
    struct group group = *(struct group *)argument;
    free(argument);
    const char *after = getenv("SLICE_AFTER_MS"), *us = getenv("SLICE_US");
    usleep((after ? atoi(after) : 2000) * 1000);
    uint64_t slice = us ? strtoull(us, NULL, 10) : 1;
    uint8_t block[32] = {0};
    uint64_t params = (uint64_t)(uintptr_t)&slice;
    uint32_t command = SET_TIMESLICE, size = 8, status;
    memcpy(block, &group.client, 4);
    memcpy(block + 4, &group.handle, 4);
    memcpy(block + 8, &command, 4);
    memcpy(block + 16, &params, 8);
    memcpy(block + 24, &size, 4);
    long code = syscall(SYS_ioctl, group.fd, RM_CONTROL, block);
    memcpy(&status, block + 28, 4);
    fprintf(stderr, "slice: group %#x of client %#x: %llu us, result %ld, status %#x\n", group.handle, group.client,
            (unsigned long long)slice, code, status);
    return NULL;
}

int ioctl(int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    long code = syscall(SYS_ioctl, fd, request, argument);
    unsigned size = _IOC_SIZE(request);
    if (code != 0 || _IOC_TYPE(request) != 'F' || _IOC_NR(request) != RM_ALLOC || (size != 32 && size != 48))
        return (int)code;
    const uint8_t *block = argument;
    uint32_t kind, status, engine;
    uint64_t params;
    memcpy(&kind, block + 12, 4);
    memcpy(&params, block + 16, 8);
    memcpy(&status, block + (size == 32 ? 28 : 40), 4);
    if (kind != CHANNEL_GROUP || status != 0 || params == 0)
        return (int)code;
    memcpy(&engine, (const uint8_t *)(uintptr_t)params + 12, 4);
    const char *engines = getenv("SLICE_ENGINES");
    int copies = engines && strcmp(engines, "copy") == 0;
    struct group *group = (copies ? engine >= COPY0 : engine == GR0) ? malloc(sizeof *group) : NULL;
    if (group) {
        group->fd = fd;
        memcpy(&group->client, block, 4);
        memcpy(&group->handle, block + 8, 4);
        pthread_t thread;
        if (pthread_create(&thread, NULL, set_slice, group) == 0)
            pthread_detach(thread);
        else
            free(group);
    }
    return (int)code;
}

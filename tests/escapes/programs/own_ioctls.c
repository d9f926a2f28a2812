/* own_ioctls enable|slice: the program's own driver controls, past every function that the hook exports. `enable` enables its channels a
 * thousand times a second, `slice` gives its compute group a time slice of a second as often as it is changed. */
#include "escape.h"
#include <pthread.h>
#include <sys/socket.h>

enum { GROUP = 0x5c000015, SUBDEVICE = 0x5c000002, CHANNELS = 8, FIRST_CLIENT = 0xc1d00000 };
enum { SET_TIMESLICE = 0xa06c0103, GET_TIMESLICE = 0xa06c0104, DISABLE_CHANNELS = 0x2080110b };
#define RM_CONTROL 0xC020462AUL

typedef struct { uint32_t client, object, command, flags; uint64_t params; uint32_t size, status; } Block;

/* The simulated kernel's ioctl. A real program would use the system call. */
static int (*driver_ioctl)(int, unsigned long, ...);
static int file;
static uint32_t client;

static int control(int fd, uint32_t of_client, uint32_t object, uint32_t command, void *params, uint32_t size) {
    Block block = {of_client, object, command, 0, (uint64_t)(uintptr_t)params, size, 0xffff};
    return driver_ioctl(fd, RM_CONTROL, &block) == 0 && block.status == 0;
}

static int find_client(void) {
    for (int fd = 3; fd < 256; fd++) {
        int type = 0;
        socklen_t len = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_SEQPACKET) continue;
        for (uint32_t number = 0; number < 64; number++) {
            uint64_t slice = 0;
            if (!control(fd, FIRST_CLIENT + number, GROUP, GET_TIMESLICE, &slice, sizeof slice)) continue;
            file = fd;
            client = FIRST_CLIENT + number;
            return 1;
        }
    }
    return 0;
}

static void *keep_enabled(void *unused) {
    for (;; usleep(1000)) {
        uint32_t params[134] = {0};
        params[1] = CHANNELS;
        for (uint32_t at = 0; at < CHANNELS; at++) {
            params[6 + at] = client;
            params[70 + at] = GROUP + 1 + at;
        }
        control(file, client, SUBDEVICE, DISABLE_CHANNELS, params, sizeof params);
    }
    return unused;
}

static void *keep_slice(void *unused) {
    for (;; usleep(50000)) {
        uint64_t slice = 0, second = 1000000;
        control(file, client, GROUP, GET_TIMESLICE, &slice, sizeof slice);
        if (slice != second) control(file, client, GROUP, SET_TIMESLICE, &second, sizeof second);
    }
    return unused;
}

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    Gpu gpu = honest_tenant();
    driver_ioctl = walk_elf(library("libcuda"), "sluiceSimIoctl");
    EXPECT(driver_ioctl && find_client());
    ATTEMPT();
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, strcmp(argv[1], "enable") ? keep_slice : keep_enabled, NULL) == 0);
    /* So much work that the GPU leaves this process only at the end of its time slice. */
    while (!ended()) {
        for (int i = 0; i < 400; i++) DO(launch(gpu.spin, 0, 0, 1000, NULL));
        DO(cuCtxSynchronize());
    }
    _exit(0);
}

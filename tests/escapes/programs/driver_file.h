/* The program's own driver controls on the simulated GPU, past every function that the hook exports: its open file of the driver and its
 * client there. */
#pragma once
#include <sys/socket.h>

/* The simulated GPU numbers its clients from its start on: in a long run of other tests there were hundreds before this program. */
enum { GROUP = 0x5c000015, SUBDEVICE = 0x5c000002, CHANNELS = 8, FIRST_CLIENT = 0xc1d00000, CLIENTS = 1 << 14 };
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

/* Finds the program's file and client. */
static int find_client(void) {
    driver_ioctl = walk_elf(library("libcuda"), "sluiceSimIoctl");
    EXPECT(driver_ioctl);
    for (int fd = 3; fd < 256; fd++) {
        int type = 0;
        socklen_t len = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_SEQPACKET) continue;
        for (uint32_t number = 0; number < CLIENTS; number++) {
            uint64_t slice = 0;
            if (!control(fd, FIRST_CLIENT + number, GROUP, GET_TIMESLICE, &slice, sizeof slice)) continue;
            file = fd;
            client = FIRST_CLIENT + number;
            return 1;
        }
    }
    return 0;
}

/* hoarder MICROS DEPTH: busy, with so many descriptors of the driver that the manager gives up the search in them. */
#include "common.h"
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    unsigned micros = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    unsigned depth = argc > 2 ? (unsigned)atoi(argv[2]) : 8;
    const unsigned n = 64;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(n);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned long launched = 0;
    struct rlimit many = {.rlim_cur = 4096, .rlim_max = 4096};
    EXPECT(setrlimit(RLIMIT_NOFILE, &many) == 0);
    for (int fd = 3; fd < 64; fd++) {
        int type = 0;
        socklen_t len = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_SEQPACKET) continue;
        for (int copy = 0; copy < 300; copy++) EXPECT(dup(fd) >= 0);
        break;
    }
    SAY("ready");
    while (poll(&input, 1, 0) == 0) {
        for (unsigned i = 0; i < depth; i++, launched++) DO(launch(gpu.mix, data, n, micros, NULL));
        DO(cuCtxSynchronize());
    }
    EXPECT(mixed(data, n, launched));
    SAY("%lu", launched);
    return 0;
}

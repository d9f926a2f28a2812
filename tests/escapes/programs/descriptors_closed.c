/* Every connection to the manager is closed; the driver's descriptors stay. */
#include "escape.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(void) {
    Gpu gpu = honest_tenant();
    ATTEMPT();
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_un peer = {0};
        socklen_t len = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && strstr(peer.sun_path, "manager")) close(fd);
    }
    work(gpu);
    return 0;
}

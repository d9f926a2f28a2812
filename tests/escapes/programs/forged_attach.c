/* A program without the hook that sends one ATTACH and keeps the connection: the manager then takes it for a governed process. */
#include "escape.h"
#include <fcntl.h>
#include "wire.h"

int main(void) {
    forge_attach(getenv("SLUICE_SOCKET"), TOKEN);
    Gpu gpu = open_gpu();
    ATTEMPT();
    work(gpu);
    return 0;
}

/* The process stops itself while it may use the GPU, so that the others wait. */
#include "escape.h"
#include <signal.h>

int main(void) {
    Gpu gpu = honest_tenant();
    for (int i = 0; i < 8; i++) DO(launch(gpu.spin, 0, 0, 1000, NULL));
    ATTEMPT();
    raise(SIGSTOP);
    work(gpu);
    return 0;
}

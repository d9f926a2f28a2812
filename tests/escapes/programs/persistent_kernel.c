/* One kernel that runs for minutes. */
#include "escape.h"

int main(void) {
    Gpu gpu = honest_tenant();
    ATTEMPT();
    DO(launch(gpu.spin, 0, 0, 60 * 1000 * 1000, NULL));
    rest();
    _exit(0);
}

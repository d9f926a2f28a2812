/* A second driver in a namespace of its own, after the process has attached. */
#include "escape.h"

int main(void) {
    honest_tenant();
    ATTEMPT();
    void *other = dlmopen(LM_ID_NEWLM, library("libcuda")->l_name, RTLD_NOW | RTLD_LOCAL);
    EXPECT(other);
    Driver driver = driver_by(walk_elf, other);
    work_by(&driver);
    return 0;
}

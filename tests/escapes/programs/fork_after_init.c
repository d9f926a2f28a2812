/* A child of a process that has initialised the driver. The hook does nothing there; the child loads a driver of its own. */
#include "escape.h"
#include <sys/prctl.h>
#include <sys/wait.h>

int main(void) {
    honest_tenant();
    ATTEMPT();
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        void *other = dlmopen(LM_ID_NEWLM, library("libcuda")->l_name, RTLD_NOW | RTLD_LOCAL);
        EXPECT(other);
        Driver driver = driver_by(walk_elf, other);
        work_by(&driver);
        _exit(0);
    }
    rest();
    return 0;
}

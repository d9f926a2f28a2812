/* As elf_walk, by a process that has attached: its context is announced, and its launches do not pass the gate. */
#include "escape.h"

int main(void) {
    honest_tenant();
    Driver driver = driver_by(walk_elf, library("libcuda"));
    ATTEMPT();
    work_by(&driver);
    return 0;
}

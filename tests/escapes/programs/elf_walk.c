/* The driver's own functions, read from the symbol table of the loaded library: the hook sees none of these calls. */
#include "escape.h"

int main(void) {
    Driver driver = driver_by(walk_elf, library("libcuda"));
    ATTEMPT();
    work_by(&driver);
    return 0;
}

/* A tenant that keeps the GPU busy. What makes it an attempt is how it is started: without the hook, with a variable. */
#include "escape.h"

int main(void) {
    Gpu gpu = honest_tenant();
    ATTEMPT();
    work(gpu);
    return 0;
}

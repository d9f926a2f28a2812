/* Nothing of CUDA: asks a library who it is. */
#include <stdio.h>

const char *who_are_you(void);

int main(void) {
    puts(who_are_you());
    return 0;
}

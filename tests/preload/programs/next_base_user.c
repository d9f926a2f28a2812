/* Uses no CUDA: calls a function of another library. */
#include <stdio.h>

const char *who_are_you(void);

int main(void) {
    puts(who_are_you());
    return 0;
}

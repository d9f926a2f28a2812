/* 300 kB of thread-local storage in every thread, which the C library takes from the thread's stack. */
#include <string.h>

static __thread char storage[300 << 10];

__attribute__((constructor)) static void use(void) { memset(storage, 1, sizeof storage); }

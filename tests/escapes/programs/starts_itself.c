/* starts_itself clean|exec: after it has attached, the program starts itself again, with an environment that names the GPU only. */
#include "escape.h"

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    if (!strcmp(argv[1], "again")) {
        work(open_gpu());
        return 0;
    }
    char *environment[8] = {NULL}, **next = environment;
    static const char *const KEPT[] = {"SLUICE_SIM_SOCKET=", "SLUICE_SIM_LABEL=", "LD_LIBRARY_PATH="};
    for (size_t at = 0; at < sizeof KEPT / sizeof *KEPT; at++)
        for (char **entry = environ; *entry; entry++)
            if (!strncmp(*entry, KEPT[at], strlen(KEPT[at]))) *next++ = *entry;
    if (!strcmp(argv[1], "exec")) honest_tenant();
    ATTEMPT();
    execle("/proc/self/exe", argv[0], "again", NULL, environment);
    return EXIT_BROKEN;
}

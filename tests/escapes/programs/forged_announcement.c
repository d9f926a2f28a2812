/* forged_announcement empty|invented|many: a program without the hook that attaches with a false announcement of its compute group and ignores
 * tokens. `empty`: without channels. `invented`: with channels that do not exist. `many`: with more groups than a client may have, by two
 * processes. */
#include "escape.h"
#include <fcntl.h>
#include "wire.h"
#include "driver_file.h"

enum { MANY = 64, INVENTED = 0x5c010000 };

static void announce(const Context *contexts, uint32_t count) {
    forge_attach_with(getenv("SLUICE_SOCKET"), TOKEN, contexts, count, file);
}

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    Gpu gpu = honest_tenant();
    EXPECT(find_client());
    Context many[MANY];
    for (uint32_t at = 0; at < MANY; at++) many[at] = (Context){client, SUBDEVICE, INVENTED + at, INVENTED + MANY + at, 1};
    Context empty = {client, SUBDEVICE, GROUP, 0, 0}, invented = {client, SUBDEVICE, GROUP, INVENTED, CHANNELS};
    Context own = {client, SUBDEVICE, GROUP, GROUP + 1, CHANNELS};
    ATTEMPT();
    if (!strcmp(argv[1], "empty")) announce(&empty, 1);
    if (!strcmp(argv[1], "invented")) announce(&invented, 1);
    if (!strcmp(argv[1], "many")) {
        /* The child has the file too, so it may announce groups on it. */
        int announced[2];
        EXPECT(pipe(announced) == 0);
        if (fork() == 0) {
            many[0] = empty;
            announce(many, MANY);
            EXPECT(write(announced[1], "", 1) == 1);
            rest();
            _exit(0);
        }
        char byte;
        EXPECT(read(announced[0], &byte, 1) == 1);
        many[0] = own;
        announce(many, MANY);
    }
    work(gpu);
    return 0;
}

/* own_ioctls enable|slice: the program's own driver controls, past every function that the hook exports. `enable` enables its channels a
 * thousand times a second, `slice` gives its compute group a time slice of a second as often as it is changed. */
#include "escape.h"
#include <pthread.h>
#include "driver_file.h"

static void *keep_enabled(void *unused) {
    for (;; usleep(1000)) {
        uint32_t params[134] = {0};
        params[1] = CHANNELS;
        for (uint32_t at = 0; at < CHANNELS; at++) {
            params[6 + at] = client;
            params[70 + at] = GROUP + 1 + at;
        }
        control(file, client, SUBDEVICE, DISABLE_CHANNELS, params, sizeof params);
    }
    return unused;
}

static void *keep_slice(void *unused) {
    for (;; usleep(50000)) {
        uint64_t slice = 0, second = 1000000;
        control(file, client, GROUP, GET_TIMESLICE, &slice, sizeof slice);
        if (slice != second) control(file, client, GROUP, SET_TIMESLICE, &second, sizeof second);
    }
    return unused;
}

int main(int argc, char **argv) {
    EXPECT(argc > 1);
    Gpu gpu = honest_tenant();
    EXPECT(find_client());
    ATTEMPT();
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, strcmp(argv[1], "enable") ? keep_slice : keep_enabled, NULL) == 0);
    /* So much work that the GPU leaves this process only at the end of its time slice. */
    while (!ended()) {
        for (int i = 0; i < 400; i++) DO(launch(gpu.spin, 0, 0, 1000, NULL));
        DO(cuCtxSynchronize());
    }
    _exit(0);
}

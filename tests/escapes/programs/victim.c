/* victim MICROS DEPTH PAUSE_MS COUNT: the tenant beside each attempt. It counts its completed kernels in the file COUNT. */
#include "escape.h"
#include <fcntl.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    EXPECT(argc > 4);
    unsigned micros = (unsigned)atoi(argv[1]), depth = (unsigned)atoi(argv[2]), pause_ms = (unsigned)atoi(argv[3]);
    int file = open(argv[4], O_RDWR | O_CREAT, 0600);
    EXPECT(file >= 0 && ftruncate(file, sizeof(uint64_t)) == 0);
    volatile uint64_t *count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(count != MAP_FAILED);
    Gpu gpu = honest_tenant();
    CUevent ends[2];
    for (int at = 0; at < 2; at++) DO(cuEventCreate(&ends[at], 0));
    SAY("ready");
    /* The next batch is submitted before the last one has ended, so that the GPU always has work, unless there are pauses. */
    for (unsigned long batch = 0; !ended(); batch++) {
        for (unsigned i = 0; i < depth; i++) DO(launch(gpu.spin, 0, 0, micros, NULL));
        DO(cuEventRecord(ends[batch % 2], NULL));
        if (batch > 0 || pause_ms > 0) {
            DO(cuEventSynchronize(ends[pause_ms > 0 ? batch % 2 : (batch + 1) % 2]));
            *count += depth;
        }
        usleep(pause_ms * 1000);
    }
    return 0;
}

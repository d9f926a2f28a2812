/* Asks NVML as pynvml and nvidia-smi do: opens libnvidia-ml.so.1 and looks every function up. Executes each line of stdin and answers it
 * with one line; ends with its input. Its arguments choose how: WAY is handle or default (RTLD_DEFAULT).
 *   memory            -> TOTAL FREE USED                    memory2      -> TOTAL RESERVED FREE USED
 *   list NAME ROOM    -> RESULT COUNT PID...                details ROOM -> RESULT COUNT PID...
 *   samples ROOM      -> RESULT COUNT PID...                percents ROOM -> RESULT COUNT PID...
 *   where NAME        -> file of the function, or none      version NAME -> the same, by dlvsym
 *   devices           -> number of devices
 *   device N          -> device (from here on)              allocate N   -> allocated (by CUDA, which it opens now)
 *   second FILE       -> TOTAL, from another NVML           fork         -> TOTAL FREE USED, as a child sees it */
#include "common.h"
#include <dlfcn.h>
#include <sys/wait.h>

typedef struct { unsigned pid; unsigned long long bytes; } Info1;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu, compute; } Info2;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu, compute; unsigned long long protected; } Detail;
typedef struct { unsigned version, mode, count; Detail *entries; } Details;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, mem, enc, dec; } Sample;
typedef struct { unsigned long long at; unsigned pid, sm, mem, enc, dec, jpg, ofa; } Percent;
typedef struct { unsigned version, count; unsigned long long since; Percent *entries; } Percents;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;

enum { ROOM = 64 };

static void *library;
static const char *way = "handle";
static void *device;

static void *find(const char *name) {
    if (!strcmp(way, "default")) return dlsym(RTLD_DEFAULT, name);
    return dlsym(library, name);
}

static void *needed(const char *name) {
    void *function = find(name);
    if (!function) fprintf(stderr, "no %s\n", name), exit(EXIT_BROKEN);
    return function;
}

#define CALL(name, ...) ((unsigned (*)())needed(name))(__VA_ARGS__)

static void show(const char *name) {
    unsigned long long m[3];
    unsigned result = CALL(name, device, m);
    if (result) SAY("error %u", result);
    else SAY("%llu %llu %llu", m[0], m[1], m[2]);
}

/* Pids in a list, whose entries have this size and offset of the pid. */
static void report(unsigned result, unsigned count, unsigned room, const char *entries, size_t size, size_t pid) {
    printf("%u %u", result, count);
    for (unsigned i = 0; !result && i < count && i < room; i++) printf(" %u", *(const unsigned *)(entries + i * size + pid));
    SAY("%s", "");
}

static void list(const char *name, unsigned room) {
    int first = !strstr(name, "_v");
    Info2 infos[ROOM];
    unsigned count = room;
    unsigned result = CALL(name, device, &count, room ? infos : NULL);
    report(result, count, room, (char *)infos, first ? sizeof(Info1) : sizeof(Info2), 0);
}

static void details(unsigned room) {
    Detail entries[ROOM];
    Details all = {sizeof all | 1 << 24, 0, room, entries};
    unsigned result = CALL("nvmlDeviceGetRunningProcessDetailList", device, &all);
    report(result, all.count, room, (char *)entries, sizeof *entries, 0);
}

static void samples(unsigned room) {
    Sample entries[ROOM];
    unsigned count = room;
    unsigned result = CALL("nvmlDeviceGetProcessUtilization", device, entries, &count, 0ULL);
    report(result, count, room, (char *)entries, sizeof *entries, 0);
}

static void percents(unsigned room) {
    Percent entries[ROOM];
    Percents all = {sizeof all | 1 << 24, room, 0, entries};
    unsigned result = CALL("nvmlDeviceGetProcessesUtilizationInfo", device, &all);
    report(result, all.count, room, (char *)entries, sizeof *entries, 8);
}

static void allocate(unsigned long bytes) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    CUcontext context;
    CUdeviceptr data;
    DO(((CUresult (*)(unsigned))dlsym(cuda, "cuInit"))(0));
    DO(((CUresult (*)(CUcontext *, CUdevice))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0));
    DO(((CUresult (*)(CUcontext))dlsym(cuda, "cuCtxSetCurrent"))(context));
    CUresult result = ((CUresult (*)(CUdeviceptr *, size_t))dlsym(cuda, "cuMemAlloc_v2"))(&data, bytes);
    if (result) SAY("refused %d", result);
    else SAY("allocated");
}

int main(int argc, char **argv) {
    char line[4096], name[96], path[4096];
    unsigned long a;
    if (argc > 1) way = argv[1];
    library = dlopen(argc > 2 ? argv[2] : "libnvidia-ml.so.1", RTLD_LAZY | RTLD_GLOBAL);
    if (!library) {
        SAY("%s %s", "no library:", find("nvmlDeviceGetMemoryInfo") ? "a function" : "no function");
        return 0;
    }
    EXPECT(CALL("nvmlInit_v2") == 0);
    EXPECT(CALL("nvmlDeviceGetHandleByIndex_v2", 0, &device) == 0);
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "memory\n")) {
            show("nvmlDeviceGetMemoryInfo");
        } else if (!strcmp(line, "memory2\n")) {
            Memory2 m = {sizeof m | 2 << 24};
            unsigned result = CALL("nvmlDeviceGetMemoryInfo_v2", device, &m);
            EXPECT(result == 0 && m.version == (sizeof m | 2 << 24));
            SAY("%llu %llu %llu %llu", m.total, m.reserved, m.free, m.used);
        } else if (sscanf(line, "list %95s %lu", name, &a) == 2) {
            list(name, a);
        } else if (sscanf(line, "details %lu", &a) == 1) {
            details(a);
        } else if (sscanf(line, "samples %lu", &a) == 1) {
            samples(a);
        } else if (sscanf(line, "percents %lu", &a) == 1) {
            percents(a);
        } else if (sscanf(line, "where %95s", name) == 1 || sscanf(line, "version %95s", name) == 1) {
            Dl_info info;
            void *function = line[0] == 'w' ? find(name) : dlvsym(library, name, "libnvidia-ml.so.1");
            const char *file = function && dladdr(function, &info) ? strrchr(info.dli_fname, '/') : NULL;
            SAY("%s", file ? file + 1 : "none");
        } else if (!strcmp(line, "devices\n")) {
            unsigned count = 0;
            EXPECT(CALL("nvmlDeviceGetCount_v2", &count) == 0);
            SAY("%u", count);
        } else if (sscanf(line, "device %lu", &a) == 1) {
            EXPECT(CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned)a, &device) == 0);
            SAY("device");
        } else if (sscanf(line, "allocate %lu", &a) == 1) {
            allocate(a);
        } else if (sscanf(line, "second %s", path) == 1) {
            unsigned long long memory[3];
            void *first = library, *of_first = device;
            EXPECT((library = dlopen(path, RTLD_LAZY)) && library != first);
            EXPECT(CALL("nvmlInit_v2") == 0 && CALL("nvmlDeviceGetHandleByIndex_v2", 0, &device) == 0);
            EXPECT(CALL("nvmlDeviceGetMemoryInfo", device, memory) == 0);
            SAY("%llu", memory[0]);
            library = first, device = of_first;
        } else if (!strcmp(line, "fork\n")) {
            pid_t child = fork();
            if (!child) show("nvmlDeviceGetMemoryInfo"), _exit(0);
            int status;
            EXPECT(waitpid(child, &status, 0) == child && status == 0);
        } else {
            fprintf(stderr, "not understood: %s", line);
            return EXIT_BROKEN;
        }
    }
    return 0;
}

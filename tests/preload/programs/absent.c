/* Calls driver functions with pointers absent: `absent FILE [accepts|engaged]`. Each line of FILE has the base name of a function, its
 * symbol and one word for each of its arguments (see `word`); `-` marks the argument as absent. The lines of one base name share a child
 * process, because a call may end the context. Prints each line's number with the result, or the signal that ended the child.
 * accepts: the driver returns 0 and does nothing, as a driver that accepts what the simulated one refuses.
 * engaged: preemption is enabled for the stream, so that calls go through the preemption engine. */
#include "common.h"
#include <ctype.h>
#include <dlfcn.h>
#include <sys/wait.h>

enum { BUFFERS = 8, BUFFER_BYTES = 64 << 10, REGISTERS = 6, STACK = 16, PATIENCE_SECONDS = 60 };

typedef CUresult (*Function)(float, float, long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                             long, long, long, long, long, long, long, long);

static Gpu gpu;
static CUmodule module;
static CUstream stream;
static CUevent event;
static CUdeviceptr memory;
static CUmemoryPool pool;
static CUarray array;
static CUmipmappedArray mipmap;
static CUgraph graph;
static CUgraphExec exec;
static CUhandle physical;
static void *nvml_device;
static char *buffers[BUFFERS];
static int is_accepting, is_engaged;

static MemLocation location = {1, 0};
static ArrayDescriptor array2d = {64, 64, CU_AD_FORMAT_FLOAT, 1};
static Array3dDescriptor array3d = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
static AllocationProp properties = {.type = 1, .location = {1, 0}};
static PoolProps pool_properties = {.type = 1, .location = {1, 0}};
static AllocNode alloc_node = {.props = {.type = 1, .location = {1, 0}}, .bytes = 4096};
static GraphNodeParams node = {.type = 10, .alloc = {.props = {.type = 1, .location = {1, 0}}, .bytes = 4096}};
static LaunchConfig config = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
static void *parameters[8];

static void nothing(void *data) { (void)data; }

static void open_all(void) {
    gpu = open_gpu();
    module = load_kernels();
    for (int i = 0; i < BUFFERS; i++) buffers[i] = calloc(1, BUFFER_BYTES);
    for (int i = 0; i < 8; i++) parameters[i] = buffers[BUFFERS - 1];
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuEventCreate(&event, 0));
    DO(cuEventRecord(event, stream));
    DO(cuMemAlloc_v2(&memory, BUFFER_BYTES));
    DO(cuMemsetD8_v2(memory, 0, BUFFER_BYTES));
    DO(cuDeviceGetDefaultMemPool(&pool, gpu.device));
    DO(cuArrayCreate_v2(&array, &array2d));
    DO(cuMipmappedArrayCreate(&mipmap, &array3d, 1));
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuMemCreate(&physical, 2 << 20, &properties, 0));
    config.stream = stream;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*device)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    if (init() || device(0, &nvml_device)) exit(EXIT_BROKEN);
    if (is_engaged) {
        int (*enable)(CUstream, const void *) = (int (*)(CUstream, const void *))dlsym(RTLD_DEFAULT, "sluice_preemption_enable");
        if (enable == NULL || enable(stream, NULL) != 0) exit(EXIT_BROKEN);
    }
    DO(cuCtxSynchronize());
}

/* The value of an argument: a number, or the name of something that open_all has made. `out` is the next zeroed buffer. */
static long word(const char *text, int *next) {
    if (isdigit((unsigned char)*text)) return strtol(text, NULL, 0);
    if (!strcmp(text, "-")) return 0;
    if (!strcmp(text, "out")) return (long)memset(buffers[*next], 0, 4096), (long)buffers[(*next)++];
    const struct { const char *name; long value; } known[] = {
        {"context", (long)gpu.context}, {"module", (long)module}, {"function", (long)gpu.add}, {"stream", (long)stream},
        {"event", (long)event}, {"memory", (long)memory}, {"pool", (long)pool}, {"array", (long)array},
        {"mipmap", (long)mipmap}, {"graph", (long)graph}, {"exec", (long)exec}, {"physical", (long)physical},
        {"location", (long)&location}, {"array2d", (long)&array2d}, {"array3d", (long)&array3d},
        {"properties", (long)&properties}, {"pool_properties", (long)&pool_properties}, {"alloc_node", (long)&alloc_node},
        {"node", (long)&node}, {"config", (long)&config}, {"parameters", (long)parameters}, {"image", (long)MODULE},
        {"nvml_device", (long)nvml_device}, {"kernel_name", (long)"mix"}, {"function_name", (long)"cuMemAlloc"}, {"callback", (long)nothing},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(text, known[i].name)) return known[i].value;
    fprintf(stderr, "unknown word %s\n", text);
    exit(EXIT_BROKEN);
}

/* One call. A word `=N` is a structure of N bytes, all zero, which the ABI passes on the stack; `.` is a float. */
static CUresult call(char *line) {
    char *symbol = strtok(line, " ");
    Function function = (Function)dlsym(RTLD_DEFAULT, symbol);
    if (function == NULL) exit(EXIT_BROKEN);
    long r[REGISTERS] = {0}, s[STACK] = {0};
    int registers = 0, stack = 0, next = 0;
    for (char *text; (text = strtok(NULL, " "));) {
        if (*text == '.') continue;
        if (*text == '=') stack += (atoi(text + 1) + 7) / 8;
        else if (registers < REGISTERS) r[registers++] = word(text, &next);
        else s[stack++] = word(text, &next);
    }
    void (*refuse)(const char *, unsigned, unsigned) = (void (*)(const char *, unsigned, unsigned))dlsym(RTLD_DEFAULT, "sluiceSimRefuse");
    /* What is freed twice must have been freed before the second call. */
    if (!strncmp(symbol, "cuMemFree", 9)) cuCtxSynchronize();
    if (is_accepting) refuse(symbol, 0, 1000);
    CUresult result = function(0, 0, r[0], r[1], r[2], r[3], r[4], r[5], s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9],
                               s[10], s[11], s[12], s[13], s[14], s[15]);
    if (is_accepting) refuse(symbol, 0, 0);
    /* Whether work has completed by now depends on the time. */
    return result == CUDA_ERROR_NOT_READY && strstr(symbol, "Query") ? CUDA_SUCCESS : result;
}

int main(int argc, char **argv) {
    is_accepting = argc > 2 && !strcmp(argv[2], "accepts");
    is_engaged = argc > 2 && !strcmp(argv[2], "engaged");
    FILE *file = fopen(argv[1], "r");
    if (file == NULL) return EXIT_BROKEN;
    static char lines[8192][256];
    int count = 0;
    while (count < 8192 && fgets(lines[count], sizeof *lines, file)) lines[count][strcspn(lines[count], "\n")] = 0, count++;
    for (int first = 0, end; first < count; first = end) {
        size_t name = strcspn(lines[first], " ");
        for (end = first; end < count && !strncmp(lines[end], lines[first], name + 1); end++) {}
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_SECONDS);
            open_all();
            for (int i = first; i < end; i++) SAY("%d %d", i, call(lines[i] + name + 1));
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) SAY("%d signal %d", first, WTERMSIG(status));
        else if (WEXITSTATUS(status)) SAY("%d exit %d", first, WEXITSTATUS(status));
    }
    return 0;
}

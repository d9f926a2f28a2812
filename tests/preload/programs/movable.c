/* Works on memory that may leave the GPU, and compares every byte of it. Executes each line of stdin and answers it with one line.
 *   take BYTES  -> took N | refused CODE  (a block with a pattern of its own; its first numbers are for kernels)
 *   run MS      -> ran STEPS LONGEST   (steps of kernels, and of copies out and in; longest time of a step, in ms)
 *   verify      -> right | wrong
 *   drop N      -> dropped
 *   where N     -> BASE SIZE TYPE   (what the driver reports of the address in the middle of a block, from its begin)
 *   info        -> FREE TOTAL
 *   elsewhere MS -> launched   (kernels on the first block for so long, in a context of their own; does not wait for them)
 *   capture N   -> captured   (frees a block while it captures a launch on the first one, and launches the graph)
 *   gone        -> (ends the context, and says "gone") */
#include "common.h"
#include <time.h>

enum { NUMBERS = 64, BLOCKS = 64, PIECE = 8 << 20 };

typedef struct {
    CUdeviceptr at;
    size_t bytes;
    unsigned long launched;
} Block;

static uint64_t host[PIECE / 8];

static double ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static uint64_t word(unsigned block, uint64_t index) {
    return (index ^ ((uint64_t)getpid() << 40) ^ ((uint64_t)block << 32)) * 0x9E3779B97F4A7C15u;
}

static size_t piece(const Block *block, size_t at) { return block->bytes - at < PIECE ? block->bytes - at : PIECE; }

static void fill(const Block *block, unsigned number) {
    for (size_t at = 0; at < block->bytes; at += PIECE) {
        for (size_t i = 0; i < PIECE / 8; i++) host[i] = at + 8 * i < 8 * NUMBERS ? i : word(number, at / 8 + i);
        DO(cuMemcpyHtoD_v2(block->at + at, host, piece(block, at)));
    }
}

static int is_right(const Block *block, unsigned number, size_t at) {
    DO(cuMemcpyDtoH_v2(host, block->at + at, piece(block, at)));
    for (size_t i = 0; i < piece(block, at) / 8; i++)
        if (at + 8 * i >= 8 * NUMBERS && host[i] != word(number, at / 8 + i)) return 0;
    return 1;
}

int main(void) {
    Gpu gpu = open_gpu();
    Block blocks[BLOCKS];
    unsigned count = 0;
    char line[128];
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        unsigned long a = 0;
        if (sscanf(line, "take %lu", &a) == 1 && count < BLOCKS) {
            Block *block = &blocks[count];
            CUresult result = cuMemAlloc_v2(&block->at, a);
            if (result) {
                SAY("refused %d", result);
                continue;
            }
            block->bytes = a;
            block->launched = 0;
            fill(block, count);
            SAY("took %u", count++);
        } else if (sscanf(line, "run %lu", &a) == 1 && count > 0) {
            double begun = ms(), longest = 0;
            unsigned long steps = 0;
            int right = 1;
            while (ms() - begun < a && right) {
                double step = ms();
                unsigned number = steps % count;
                Block *block = &blocks[number];
                size_t at = (steps * 7919 % (block->bytes / PIECE)) * PIECE;
                for (int i = 0; i < 4; i++, block->launched++)
                    DO(launch(gpu.mix, block->at, NUMBERS, 500, stream));
                DO(cuStreamSynchronize(stream));
                right = is_right(block, number, at);
                if (at) DO(cuMemcpyHtoDAsync_v2(block->at + at, host, piece(block, at), stream));
                DO(cuStreamSynchronize(stream));
                steps++;
                if (ms() - step > longest) longest = ms() - step;
            }
            if (right)
                SAY("ran %lu %.0f", steps, longest);
            else
                SAY("wrong");
        } else if (!strncmp(line, "verify", 6)) {
            int right = 1;
            for (unsigned number = 0; number < count; number++) {
                if (!blocks[number].at) continue;
                for (size_t at = 0; at < blocks[number].bytes; at += PIECE) right &= is_right(&blocks[number], number, at);
                right &= mixed(blocks[number].at, NUMBERS, blocks[number].launched);
            }
            SAY(right ? "right" : "wrong");
        } else if (sscanf(line, "drop %lu", &a) == 1 && a < count) {
            DO(cuMemFree_v2(blocks[a].at));
            blocks[a].at = 0;
            SAY("dropped");
        } else if (sscanf(line, "where %lu", &a) == 1 && a < count) {
            CUdeviceptr base = 0;
            size_t size = 0;
            unsigned type = 0;
            CUdeviceptr middle = blocks[a].at + blocks[a].bytes / 2;
            DO(cuMemGetAddressRange_v2(&base, &size, middle));
            DO(cuPointerGetAttribute(&type, 2, middle));
            SAY("%ld %zu %u", (long)(base - blocks[a].at), size, type);
        } else if (!strncmp(line, "info", 4)) {
            size_t free_bytes = 0, total = 0;
            DO(cuMemGetInfo_v2(&free_bytes, &total));
            SAY("%zu %zu", free_bytes, total);
        } else if (sscanf(line, "elsewhere %lu", &a) == 1 && count > 0) {
            CUcontext other;
            CUfunction mix;
            CUstream there;
            DO(cuCtxCreate_v2(&other, 0, gpu.device));
            DO(cuModuleGetFunction(&mix, load_kernels(), "mix"));
            DO(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
            for (unsigned long begun = 0; begun < a; begun += 50, blocks[0].launched++)
                DO(launch(mix, blocks[0].at, NUMBERS, 50000, there));
            DO(cuCtxSetCurrent(gpu.context));
            SAY("launched");
        } else if (sscanf(line, "capture %lu", &a) == 1 && 0 < a && a < count) {
            CUgraph graph;
            CUgraphExec exec;
            DO(cuStreamBeginCapture_v2(stream, 0));
            DO(launch(gpu.mix, blocks[0].at, NUMBERS, 500, stream));
            DO(cuMemFree_v2(blocks[a].at));
            blocks[a].at = 0;
            DO(cuStreamEndCapture(stream, &graph));
            DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
            DO(cuGraphLaunch(exec, stream));
            blocks[0].launched++;
            DO(cuStreamSynchronize(stream));
            SAY("captured");
        } else if (!strncmp(line, "gone", 4)) {
            DO(cuDevicePrimaryCtxReset_v2(gpu.device));
            SAY("gone");
        } else {
            fprintf(stderr, "not understood: %s", line);
            return EXIT_BROKEN;
        }
    }
    return 0;
}

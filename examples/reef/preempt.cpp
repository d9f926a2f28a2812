// REEF's example on the driver API: a stream of low priority is preempted while a stream of high priority
// works, and continues afterwards.
//
//   c++ -I hook/include examples/reef/preempt.cpp -o preempt -lcudareef -lcuda
//   ./preempt [host|device|all]
//
// Each kernel of the low-priority stream adds one to a number. The other stream copies this number, so the program reports
// what was observed from outside. The program also runs on the simulated GPU, which reads kernels in a format of its own.
#include <cstdio>
#include <cstring>

#include <reef.h>

#include "work_kernel.h"

static const unsigned KERNELS = 500, KERNEL_US = 1000, QUEUE = 32, URGENT = 20, URGENT_US = 100;

static CUfunction kernel;

static void launch(CUdeviceptr number, unsigned us, CUstream stream) { launch_work(kernel, number, 1, us, stream); }

static unsigned long long read(CUdeviceptr number, unsigned long long *pinned, CUstream stream) {
    DO(cuMemcpyDtoHAsync(pinned, number, sizeof *pinned, stream));
    DO(cuStreamSynchronize(stream));
    return *pinned;
}

static reef::PreemptLevel level_of(const char *word) {
    if (!std::strcmp(word, "all")) return reef::PreemptAll;
    return std::strcmp(word, "host") ? reef::PreemptDeviceQueue : reef::PreemptHostQueue;
}

// Whether the stream stood between two readings. A stream that was stopped in the middle of a kernel receives the GPU again
// as soon as another stream of its context needs it, as the readings do. It then continues to its next gate, which is less
// than one queue away.
static bool stood(reef::Achieved achieved, unsigned long long before, unsigned long long after) {
    return before == after || (achieved.level == reef::PreemptAll && after <= before + QUEUE);
}

int main(int count, char **words) {
    kernel = load_work_kernel();
    CUdeviceptr number, urgent;
    unsigned long long *pinned;
    DO(cuMemAlloc(&number, sizeof *pinned));
    DO(cuMemAlloc(&urgent, sizeof *pinned));
    DO(cuMemAllocHost(reinterpret_cast<void **>(&pinned), sizeof *pinned));

    // 1. Two streams.
    CUstream lp_stream, hp_stream;
    DO(cuStreamCreate(&lp_stream, CU_STREAM_NON_BLOCKING));
    DO(cuStreamCreate(&hp_stream, CU_STREAM_NON_BLOCKING));

    // 2. Preemption is enabled for the low-priority stream.
    reef::RFconfig config{};
    config.queueSize = QUEUE;
    config.batchSize = 8;
    config.taskTimeout = -1;
    config.preemptLevel = level_of(count > 1 ? words[1] : "device");
    DO(reef::enablePreemption(lp_stream, config));

    // 3. It receives its work: input, and many kernels.
    *pinned = 0;
    DO(cuMemcpyHtoDAsync(number, pinned, sizeof *pinned, lp_stream));
    DO(cuMemcpyHtoDAsync(urgent, pinned, sizeof *pinned, hp_stream));
    for (unsigned i = 0; i < KERNELS; i++) launch(number, KERNEL_US, lp_stream);
    unsigned long long before;
    do before = read(number, pinned, hp_stream);
    while (before < 3);

    // 4. The stream is preempted in the middle of this work.
    reef::Achieved achieved;
    DO(reef::preempt(lp_stream, true, &achieved));
    const unsigned long long stopped = read(number, pinned, hp_stream);

    // 5. The high-priority stream has the GPU alone.
    for (unsigned i = 0; i < URGENT; i++) launch(urgent, URGENT_US, hp_stream);
    DO(cuStreamSynchronize(hp_stream));
    const unsigned long long done = read(urgent, pinned, hp_stream);
    const unsigned long long still = read(number, pinned, hp_stream);

    // 6. The low-priority stream continues.
    DO(reef::restore(lp_stream));
    DO(cuStreamSynchronize(lp_stream));
    const unsigned long long all = read(number, pinned, hp_stream);

    // The same with a guard object for a scope.
    for (unsigned i = 0; i < KERNELS / 10; i++) launch(number, KERNEL_US, lp_stream);
    while (read(number, pinned, hp_stream) < KERNELS + 3) {
    }
    unsigned long long first, second;
    reef::Achieved in_scope;
    {
        const reef::Preempted preempted(lp_stream, true);
        DO(preempted.result());
        in_scope = preempted.achieved();
        first = read(number, pinned, hp_stream);
        launch(urgent, KERNEL_US, hp_stream);
        second = read(number, pinned, hp_stream);
    }
    DO(cuStreamSynchronize(lp_stream));
    const unsigned long long end = read(number, pinned, hp_stream);

    // 7. A stream for which preemption was never enabled cannot be disabled or preempted.
    const reef::RFresult not_enabled = reef::preempt(hp_stream);
    DO(reef::disablePreemption(lp_stream));
    DO(cuStreamDestroy(lp_stream));
    DO(cuStreamDestroy(hp_stream));

    std::printf("{\"level\": %d, \"took_us\": %.1f, \"before\": %llu, \"stopped\": %llu, \"still\": %llu, \"urgent\": %llu, "
                "\"all\": %llu, \"scope\": [%llu, %llu, %llu], \"scope_level\": %d}\n",
                achieved.level, static_cast<double>(achieved.took_ns) / 1e3, before, stopped, still, done, all, first, second, end, in_scope.level);
    const struct {
        const char *what;
        bool holds;
    } promises[] = {
        {"the stream was preempted in the middle of its work", stopped < KERNELS},
        {"it stood while it was preempted", stood(achieved, stopped, still)},
        {"the other one worked meanwhile", done == URGENT},
        {"nothing was lost, nothing was done twice", all == KERNELS && end == KERNELS + KERNELS / 10},
        {"it stood for a scope", stood(in_scope, first, second)},
        {"a stream that was not enabled is not preempted", not_enabled == reef::REEF_NOT_ENABLED},
    };
    bool as_promised = true;
    for (const auto &promise : promises) {
        if (!promise.holds) std::fprintf(stderr, "not so: %s\n", promise.what);
        as_promised = as_promised && promise.holds;
    }
    return as_promised ? 0 : 2;
}

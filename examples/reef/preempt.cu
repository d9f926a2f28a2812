// REEF's example on the runtime API as in REEF's documentation, with its mistakes corrected (see reef.h).
//
//   nvcc -std=c++20 -I hook/include examples/reef/preempt.cu -o preempt -L target/release -lcudareef -lcuda
//   ./preempt
//
// The runtime finds the driver by dlopen and dlsym. If the library is linked or preloaded, it finds Sluice.
#include <cstdio>

#include <cuda_runtime.h>
#include <reef.h>

#include "check.h"

static const int KERNELS = 300;
static const unsigned KERNEL_US = 1000, URGENT_US = 100;

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void kernel(unsigned long long *number, unsigned us) {
    const unsigned long long began = nanoseconds();
    while (nanoseconds() - began < us * 1000ull) {
    }
    if (threadIdx.x == 0) *number += 1;
}

static unsigned long long read(const unsigned long long *number, unsigned long long *pinned, cudaStream_t stream) {
    DO(cudaMemcpyAsync(pinned, number, sizeof *number, cudaMemcpyDeviceToHost, stream));
    DO(cudaStreamSynchronize(stream));
    return *pinned;
}

int main() {
    // 1. Two streams.
    cudaStream_t lp_stream, hp_stream;
    DO(cudaStreamCreateWithFlags(&lp_stream, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&hp_stream, cudaStreamNonBlocking));
    unsigned long long *number, *urgent, *pinned;
    DO(cudaMalloc(&number, sizeof *number));
    DO(cudaMalloc(&urgent, sizeof *urgent));
    DO(cudaMallocHost(&pinned, sizeof *pinned));

    // 2. Preemption is enabled for the low-priority stream.
    reef::RFconfig config{
        .queueSize = 32,
        .batchSize = 8,
        .taskTimeout = -1,
        .preemptLevel = reef::PreemptDeviceQueue,
    };
    DO(reef::enablePreemption(lp_stream, config));

    // 3. It receives its work.
    DO(cudaMemsetAsync(number, 0, sizeof *number, lp_stream));
    DO(cudaMemsetAsync(urgent, 0, sizeof *urgent, hp_stream));
    for (int i = 0; i < KERNELS; i++) kernel<<<1, 32, 0, lp_stream>>>(number, KERNEL_US);
    DO(cudaGetLastError());
    unsigned long long before;
    do before = read(number, pinned, hp_stream);
    while (before < 3);

    // 4. The stream is preempted in the middle of this work.
    reef::Achieved achieved;
    DO(reef::preempt(lp_stream, true, &achieved));
    const unsigned long long stopped = read(number, pinned, hp_stream);

    // 5. The high-priority stream has the GPU alone.
    for (int i = 0; i < 20; i++) kernel<<<1, 32, 0, hp_stream>>>(urgent, URGENT_US);
    DO(cudaStreamSynchronize(hp_stream));
    const unsigned long long still = read(number, pinned, hp_stream);

    // 6. The low-priority stream continues.
    DO(reef::restore(lp_stream));
    DO(cudaStreamSynchronize(lp_stream));
    const unsigned long long all = read(number, pinned, hp_stream);

    // 7. Preemption is disabled again.
    DO(reef::disablePreemption(lp_stream));
    std::printf("{\"level\": %d, \"took_us\": %.1f, \"before\": %llu, \"stopped\": %llu, \"still\": %llu, \"all\": %llu}\n", achieved.level,
                static_cast<double>(achieved.took_ns) / 1e3, before, stopped, still, all);
    return stopped == still && stopped < static_cast<unsigned long long>(KERNELS) && all == KERNELS ? 0 : 2;
}

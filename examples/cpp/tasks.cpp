// A latency-critical task beside a best-effort task in one process, on the driver API. It runs on a GPU and on the simulated one.
//
//   cmake -S examples/cpp -B build -Dsluice_DIR=$PWD/hook/cmake && cmake --build build
//   LD_PRELOAD=libsluice.so build/tasks
//
// The best-effort task submits 200 kernels of a millisecond. The latency-critical task arrives meanwhile and does not wait for them.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#if __has_include(<cuda.h>)
#include <cuda.h>
#else
#include "../reef/driver.h"
#endif
#include <sluice/scheduler.hpp>

static const unsigned TRAINING_KERNELS = 200, TRAINING_US = 1000, INFERENCE_KERNELS = 5, INFERENCE_US = 100;

#define DO(call)                                                                                                       \
    do {                                                                                                               \
        const int answer_ = static_cast<int>(call);                                                                    \
        if (answer_ != 0) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, answer_);                       \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

// spin(number, count, us): takes `us` microseconds. The simulated GPU reads kernels in a format of its own.
static const char PTX[] = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 number, .param .u32 count, .param .u32 us)
{
    .reg .pred %over;
    .reg .b32 %us;
    .reg .b64 %began, %now, %limit;
    mov.u64 %began, %globaltimer;
    ld.param.u32 %us, [us];
    mul.wide.u32 %limit, %us, 1000;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %over, %now, %limit;
    @%over bra AGAIN;
    ret;
}
)";
static const char SIMULATED[] = "SLUICE-SIM 1\nkernel spin params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000\n";

int main() {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    if (cuModuleLoadData(&module, PTX) != CUDA_SUCCESS) DO(cuModuleLoadData(&module, SIMULATED));
    DO(cuModuleGetFunction(&spin, module, "spin"));
    const auto launch = [spin](CUstream stream, unsigned us) {
        CUdeviceptr number = 0;
        unsigned count = 0;
        void *parameters[] = {&number, &count, &us};
        DO(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
    };

    sluice::Scheduler scheduler;
    auto training = scheduler.create_task(sluice::TaskType::BEST_EFFORT, [launch](CUstream stream, unsigned kernels) {
        for (unsigned i = 0; i < kernels; i++) launch(stream, TRAINING_US);
        return kernels;
    });
    auto inference = scheduler.create_task(sluice::TaskType::LATENCY_CRITICAL, [launch](CUstream stream) {
        for (unsigned i = 0; i < INFERENCE_KERNELS; i++) launch(stream, INFERENCE_US);
    });
    inference.set_slo(std::chrono::milliseconds(10));
    inference.set_priority(sluice::Priority::HIGH);

    auto trained = scheduler.submit(training, TRAINING_KERNELS);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto answered = scheduler.submit(inference);
    answered.get();
    const bool training_continues = trained.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
    const unsigned kernels = trained.get();

    const sluice::Metrics metrics = scheduler.get_metrics();
    const sluice::TaskMetrics &seen = metrics.tasks.at("latency-critical");
    std::printf("{\"mode\": %d, \"training\": %u, \"training_continues\": %d, \"inference_us\": %lld, \"preemptions\": %llu, \"slo_violations\": %llu}\n",
                static_cast<int>(scheduler.mode()), kernels, training_continues, static_cast<long long>(seen.p99.count() / 1000),
                static_cast<unsigned long long>(metrics.total_preemptions), static_cast<unsigned long long>(metrics.slo_violations));
    return training_continues ? 0 : 2;
}

// A latency-critical task beside a best-effort task in one process, on the driver API. It runs on a GPU and on the simulated one.
//
//   cmake -S examples/cpp -B build -Dsluice_DIR=$PWD/hook/cmake && cmake --build build
//   cargo xtask build --profile release      # target/release/libsluice.so
//   LD_PRELOAD=$PWD/target/release/libsluice.so build/tasks
//
// The best-effort task submits 1000 kernels of a millisecond. The latency-critical task arrives meanwhile and does not wait for them.
#include <chrono>
#include <cstdio>
#include <thread>

#include <sluice/scheduler.hpp>

#include "../reef/work_kernel.h"

static const unsigned TRAINING_KERNELS = 1000, TRAINING_US = 1000, INFERENCE_KERNELS = 5, INFERENCE_US = 100;

int main() {
    const CUfunction kernel = load_work_kernel();
    const auto launch = [kernel](CUstream stream, unsigned us) { launch_work(kernel, 0, 0, us, stream); };

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

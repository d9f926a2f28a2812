// Running tasks submit tasks of both classes while another thread destroys the scheduler. Prints whether all of them ran.
#include <sluice/scheduler.hpp>

#include <atomic>
#include <cstdio>

int main() {
    std::atomic<unsigned> ran{0};
    for (const auto type : {sluice::TaskType::LATENCY_CRITICAL, sluice::TaskType::BEST_EFFORT}) {
        auto scheduler = std::make_unique<sluice::Scheduler>();
        sluice::Scheduler &inside = *scheduler;
        std::promise<void> begun;
        auto last = scheduler->create_task(sluice::TaskType::LATENCY_CRITICAL, [&](sluice::Stream) { ran++; });
        auto other = scheduler->create_task(sluice::TaskType::BEST_EFFORT, [&](sluice::Stream) {
            ran++;
            inside.submit(last);
        });
        auto first = scheduler->create_task(type, [&](sluice::Stream) {
            begun.set_value();
            // The destructor waits by then.
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            inside.submit(other);
            inside.submit(last);
        });
        scheduler->submit(first);
        begun.get_future().wait();
        scheduler.reset();
    }
    std::printf("{\"ran\": %u}\n", ran.load());
}

// Futures are cancelled by one thread while another one destroys their scheduler. To be built with a sanitizer.
#include <sluice/scheduler.hpp>

#include <atomic>
#include <cstdio>

int main() {
    unsigned cancelled = 0, ran = 0;
    for (int round = 0; round < 3000; round++) {
        auto scheduler = std::make_unique<sluice::Scheduler>();
        auto task = scheduler->create_task(sluice::TaskType::BEST_EFFORT, [](sluice::Stream) {});
        std::vector<sluice::TaskFuture<void>> futures;
        for (int i = 0; i < 4; i++) futures.push_back(scheduler->submit(task));
        std::atomic<bool> begin{false};
        std::thread canceller([&] {
            while (!begin) {}
            for (auto future = futures.rbegin(); future != futures.rend(); ++future) cancelled += future->cancel();
        });
        begin = true;
        scheduler.reset();
        canceller.join();
        for (auto &future : futures) {
            try {
                future.get();
                ran++;
            } catch (const sluice::Cancelled &) {
            }
        }
    }
    std::printf("{\"all\": %d}\n", ran + cancelled == 3000 * 4);
}

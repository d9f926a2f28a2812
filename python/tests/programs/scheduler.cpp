// The rules of sluice/scheduler.hpp, without a GPU or with the simulated one. Prints what was seen as JSON.
#include <sluice/scheduler.hpp>

#include <cstdio>
#include <random>

using sluice::TaskType;

struct Planned : std::runtime_error {
    Planned() : std::runtime_error("planned") {}
};

int main() {
    const unsigned tasks = 10000, half = tasks / 2;
    std::mt19937 chance(1);
    struct Plan {
        bool critical, fails;
        int priority;
    };
    std::vector<Plan> plan;
    for (unsigned i = 0; i < tasks; i++) plan.push_back({chance() % 10 < 3, chance() % 10 == 0, static_cast<int>(chance() % 5) - 2});

    std::vector<unsigned> started;
    std::mutex mutex;
    std::vector<sluice::TaskFuture<unsigned>> futures;
    unsigned cancelled = 0, wrong = 0, refused_late = 0;
    bool in_order;
    sluice::Metrics metrics;
    {
        sluice::Scheduler scheduler;
        std::promise<void> release;
        auto blocker = scheduler.create_task(TaskType::LATENCY_CRITICAL, [released = release.get_future().share()](sluice::Stream) { released.wait(); });
        blocker.set_priority(100);
        blocker.set_name("blocker");
        auto blocked = scheduler.submit(blocker);
        const auto submit = [&](unsigned i) {
            auto task = scheduler.create_task(plan[i].critical ? TaskType::LATENCY_CRITICAL : TaskType::BEST_EFFORT, [&, i](sluice::Stream, unsigned value) {
                {
                    const std::lock_guard<std::mutex> lock(mutex);
                    started.push_back(value);
                }
                if (plan[i].fails) throw Planned();
                return value;
            });
            task.set_priority(plan[i].priority);
            task.set_slo(std::chrono::nanoseconds(1));
            futures.push_back(scheduler.submit(task, i));
        };
        // The first half waits behind one task, so that its whole order is known.
        std::vector<unsigned> expected;
        for (unsigned i = 0; i < half; i++) submit(i);
        std::vector<bool> is_cancelled(tasks);
        for (unsigned i = 0; i < half; i++)
            if (chance() % 10 == 0) is_cancelled[i] = futures[i].cancel();
        for (unsigned i = 0; i < half; i++)
            if (!is_cancelled[i]) expected.push_back(i);
        std::stable_sort(expected.begin(), expected.end(), [&](unsigned a, unsigned b) {
            return std::make_pair(!plan[a].critical, -plan[a].priority) < std::make_pair(!plan[b].critical, -plan[b].priority);
        });
        release.set_value();
        for (unsigned i = 0; i < half; i++) futures[i].wait();
        in_order = started == expected;
        // The second half comes while tasks run.
        for (unsigned i = half; i < tasks; i++) {
            submit(i);
            if (i % 9 == 0) is_cancelled[i] = futures[i].cancel();
        }
        for (unsigned i = 0; i < tasks; i++) {
            try {
                wrong += futures[i].get() != i || plan[i].fails || is_cancelled[i];
            } catch (const Planned &) {
                wrong += !plan[i].fails || is_cancelled[i];
            } catch (const sluice::Cancelled &) {
                wrong += !is_cancelled[i];
                cancelled++;
            }
        }
        blocked.get();
        for (auto &future : futures) refused_late += !future.cancel();
        metrics = scheduler.get_metrics();
    }
    for (auto &future : futures) wrong += future.cancel();
    std::uint64_t count = 0, metric_cancelled = 0;
    for (const auto &[name, of_name] : metrics.tasks) count += of_name.count, metric_cancelled += of_name.cancelled;
    std::sort(started.begin(), started.end());
    const bool once = std::adjacent_find(started.begin(), started.end()) == started.end();
    std::printf("{\"in_order\": %d, \"once\": %d, \"wrong\": %u, \"cancelled\": %d, \"all\": %d, \"refused_late\": %u, \"violations\": %d}\n", in_order, once,
                wrong, cancelled > 0 && cancelled == metric_cancelled, count == started.size() + 1 && started.size() + cancelled == tasks, refused_late,
                metrics.slo_violations == started.size());
}

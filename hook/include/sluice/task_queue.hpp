/* The order of a scheduler's tasks, and their figures; see scheduler.hpp. The rules are those of crates/tasks, which the Python package uses. */
#ifndef SLUICE_TASK_QUEUE_HPP
#define SLUICE_TASK_QUEUE_HPP

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace sluice {

using Clock = std::chrono::steady_clock;

enum class TaskType { LATENCY_CRITICAL, BEST_EFFORT };

/* Priorities within a class. Every int will do; a greater one starts first. */
enum Priority : int { LOW = -1, NORMAL = 0, HIGH = 1 };

/* The figures of the tasks of one name. Latencies count from submission to end; percentiles are those of the last 4,096. */
struct TaskMetrics {
    std::uint64_t count = 0, failed = 0, cancelled = 0, slo_violations = 0;
    std::chrono::nanoseconds p50{0}, p99{0};
};

struct Metrics {
    std::uint64_t total_preemptions = 0, slo_violations = 0;
    double utilisation = 0; /* the part of the time, 0 to 1, in which a task ran */
    std::map<std::string, TaskMetrics> tasks;
};

namespace detail {

/* A submitted task. */
struct Submission {
    virtual ~Submission() = default;
    /* Runs the task and keeps its result or error. */
    virtual void run() = 0;
    /* Resolves the future: with this error if there is one, otherwise with what was kept. */
    virtual void resolve(std::exception_ptr error) = 0;

    std::uint64_t id = 0;
    TaskType type = TaskType::BEST_EFFORT;
    int priority = NORMAL;
    std::string name;
    Clock::duration slo = Clock::duration::max();
    Clock::time_point submitted;
};
using SubmissionPtr = std::shared_ptr<Submission>;

class TaskQueue {
public:
    void submit(SubmissionPtr submission) {
        submission->id = next_id_++;
        submission->submitted = Clock::now();
        waiting_.emplace(position(*submission), submission);
    }

    /* False if the task has started or was cancelled before. */
    bool cancel(const Submission &submission) {
        if (waiting_.erase(position(submission)) == 0) return false;
        names_[submission.name].figures.cancelled++;
        return true;
    }

    /* The next task of a class; null if none waits, one of the class runs, or best effort has to wait. */
    SubmissionPtr start(TaskType type) {
        if (runs(type) || (type == TaskType::BEST_EFFORT && is_critical()) || waiting_.empty()) return nullptr;
        const auto first = waiting_.begin();
        if (first->second->type != type) return nullptr;
        SubmissionPtr next = first->second;
        waiting_.erase(first);
        if (!runs(TaskType::LATENCY_CRITICAL) && !runs(TaskType::BEST_EFFORT)) busy_since_ = Clock::now();
        running_[index(type)] = true;
        return next;
    }

    void finish(const Submission &submission, bool failed) {
        const auto now = Clock::now();
        running_[index(submission.type)] = false;
        if (!runs(TaskType::LATENCY_CRITICAL) && !runs(TaskType::BEST_EFFORT)) busy_ += now - busy_since_;
        OfName &of_name = names_[submission.name];
        const auto latency = now - submission.submitted;
        of_name.figures.count++;
        of_name.figures.failed += failed;
        of_name.figures.slo_violations += latency > submission.slo;
        if (of_name.latencies.size() == 4096) of_name.latencies.pop_front();
        of_name.latencies.push_back(latency);
    }

    /* Whether the best-effort stream has to stand. */
    bool wants_preemption() const { return is_critical() && runs(TaskType::BEST_EFFORT); }
    /* Whether no task waits and none runs, which could submit another one. */
    bool is_idle() const { return waiting_.empty() && !runs(TaskType::LATENCY_CRITICAL) && !runs(TaskType::BEST_EFFORT); }

    Metrics metrics() const {
        Metrics all;
        const auto now = Clock::now();
        const bool busy = runs(TaskType::LATENCY_CRITICAL) || runs(TaskType::BEST_EFFORT);
        const std::chrono::duration<double> lived = now - began_, worked = busy_ + (busy ? now - busy_since_ : Clock::duration::zero());
        all.utilisation = std::min(1.0, worked.count() / std::max(lived.count(), 1e-9));
        for (const auto &[name, of_name] : names_) {
            TaskMetrics &figures = all.tasks[name] = of_name.figures;
            std::vector<Clock::duration> sorted(of_name.latencies.begin(), of_name.latencies.end());
            std::sort(sorted.begin(), sorted.end());
            if (!sorted.empty()) {
                figures.p50 = sorted[(sorted.size() * 50 + 99) / 100 - 1];
                figures.p99 = sorted[(sorted.size() * 99 + 99) / 100 - 1];
            }
            all.slo_violations += figures.slo_violations;
        }
        return all;
    }

private:
    struct OfName {
        TaskMetrics figures;
        std::deque<Clock::duration> latencies;
    };
    /* Class, negated priority, order of submission: smaller starts first. */
    using Position = std::tuple<TaskType, long long, std::uint64_t>;

    static Position position(const Submission &of) { return {of.type, -static_cast<long long>(of.priority), of.id}; }
    static int index(TaskType type) { return type == TaskType::BEST_EFFORT; }
    bool runs(TaskType type) const { return running_[index(type)]; }
    bool is_critical() const {
        return runs(TaskType::LATENCY_CRITICAL) || (!waiting_.empty() && waiting_.begin()->second->type == TaskType::LATENCY_CRITICAL);
    }

    std::map<Position, SubmissionPtr> waiting_;
    bool running_[2] = {false, false};
    std::uint64_t next_id_ = 0;
    const Clock::time_point began_ = Clock::now();
    Clock::time_point busy_since_{};
    Clock::duration busy_{0};
    std::map<std::string, OfName> names_;
};

} /* namespace detail */
} /* namespace sluice */

#endif

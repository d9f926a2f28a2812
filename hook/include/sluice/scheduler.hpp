/* Latency-critical and best-effort GPU tasks in one process. C++17; everything is in headers. Also for nvcc.
 *
 *   c++ -std=c++17 -I hook/include program.cpp -pthread -ldl
 *
 * Each class has a thread and a CUDA stream, and runs one task at a time. Tasks start in the order of class, then priority, then
 * submission. No best-effort task starts while a latency-critical one waits or runs; the one that runs is preempted meanwhile if
 * libsluice.so is linked or preloaded. A future is ready when the GPU has finished the task's work on its stream. */
#ifndef SLUICE_SCHEDULER_HPP
#define SLUICE_SCHEDULER_HPP

#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "gpu_streams.hpp"
#include "task_queue.hpp"

namespace sluice {

class Scheduler;

/* The error in the future of a cancelled task. */
class Cancelled : public std::runtime_error {
public:
    Cancelled() : std::runtime_error("the task was cancelled") {}
};

/* A function with its class; its first parameter is the stream. Made by Scheduler::create_task. */
template <class Function> class Task {
public:
    /* Longest latency, from submission to end, that is no violation. */
    void set_slo(Clock::duration slo) { slo_ = slo; }
    void set_priority(int priority) { priority_ = priority; }
    /* The name in Metrics; by default that of the class. */
    void set_name(std::string name) { name_ = std::move(name); }

private:
    friend class Scheduler;
    Task(TaskType type, Function function)
        : type_(type), function_(std::move(function)), name_(type == TaskType::LATENCY_CRITICAL ? "latency-critical" : "best-effort") {}

    TaskType type_;
    Function function_;
    std::string name_;
    int priority_ = NORMAL;
    Clock::duration slo_ = Clock::duration::max();
};

/* The result of a submitted task. It outlives its scheduler. */
template <class Result> class TaskFuture : public std::future<Result> {
public:
    /* Cancels the task: the future throws Cancelled. False if the task has started or ended. */
    bool cancel() { return cancel_(); }

private:
    friend class Scheduler;
    TaskFuture(std::future<Result> result, std::function<bool()> cancel_task)
        : std::future<Result>(std::move(result)), cancel_(std::move(cancel_task)) {}
    std::function<bool()> cancel_;
};

namespace detail {

template <class Result> struct SubmissionOf : Submission {
    void run() override {
        if constexpr (std::is_void_v<Result>) body();
        else result.emplace(body());
    }
    void resolve(std::exception_ptr error) override {
        body = nullptr; /* The arguments end with the task. */
        if (error) promise.set_exception(error);
        else if constexpr (std::is_void_v<Result>) promise.set_value();
        else promise.set_value(std::move(*result));
    }
    std::function<Result()> body;
    std::promise<Result> promise;
    std::optional<std::conditional_t<std::is_void_v<Result>, char, Result>> result;
};

} /* namespace detail */

class Scheduler {
public:
    /* Throws CudaError, or std::invalid_argument if there are GPUs but not this one. */
    explicit Scheduler(Config config = {}) : streams_(config) {
        threads_[0] = std::thread([this] { work(TaskType::LATENCY_CRITICAL); });
        threads_[1] = std::thread([this] { work(TaskType::BEST_EFFORT); });
    }

    /* Waits until all tasks have ended, also those that tasks submit meanwhile. A task must not destroy its scheduler. */
    ~Scheduler() {
        {
            const std::lock_guard<std::mutex> lock(queue_->mutex);
            closed_ = true;
        }
        queue_->changed.notify_all();
        for (std::thread &thread : threads_) thread.join();
    }
    Scheduler(const Scheduler &) = delete;
    Scheduler &operator=(const Scheduler &) = delete;

    /* `function(stream, arguments...)`: it submits its work to the stream and need not wait for it. */
    template <class Function> Task<std::decay_t<Function>> create_task(TaskType type, Function &&function) const {
        return Task<std::decay_t<Function>>(type, std::forward<Function>(function));
    }

    /* Submits a task with copies of its arguments. */
    template <class Function, class... Arguments> auto submit(const Task<Function> &task, Arguments... arguments) {
        using Result = std::invoke_result_t<Function &, Stream, Arguments &...>;
        static_assert(!std::is_reference_v<Result>, "a task returns a value or void");
        const auto submission = std::make_shared<detail::SubmissionOf<Result>>();
        const Stream stream = streams_.stream(task.type_ == TaskType::LATENCY_CRITICAL);
        submission->body = [function = task.function_, stream, arguments...]() mutable { return function(stream, arguments...); };
        submission->type = task.type_;
        submission->priority = task.priority_;
        submission->name = task.name_;
        submission->slo = task.slo_;
        std::future<Result> future = submission->promise.get_future();
        {
            const std::lock_guard<std::mutex> lock(queue_->mutex);
            queue_->tasks.submit(submission);
            update_stream();
        }
        queue_->changed.notify_all();
        const std::weak_ptr<detail::Submission> weak = submission;
        return TaskFuture<Result>(std::move(future), [this, queue = queue_, weak] {
            const auto waiting = weak.lock();
            return waiting != nullptr && cancel(*queue, waiting);
        });
    }

    Metrics get_metrics() const {
        const std::lock_guard<std::mutex> lock(queue_->mutex);
        Metrics metrics = queue_->tasks.metrics();
        metrics.total_preemptions = preemptions_;
        return metrics;
    }

    Mode mode() const { return streams_.mode(); }

private:
    /* The futures have it too: a scheduler may end while another thread cancels. */
    struct Queue {
        std::mutex mutex;
        std::condition_variable changed;
        detail::TaskQueue tasks;
    };

    /* The scheduler exists while one of its tasks waits, so at least until this one is removed and the mutex is released. */
    bool cancel(Queue &queue, const detail::SubmissionPtr &submission) {
        {
            const std::lock_guard<std::mutex> lock(queue.mutex);
            if (!queue.tasks.cancel(*submission)) return false;
            update_stream();
        }
        queue.changed.notify_all();
        submission->resolve(std::make_exception_ptr(Cancelled()));
        return true;
    }

    /* Stops or restores the best-effort stream as the queue requires. The mutex is held, so that the last of both applies. */
    void update_stream() {
        if (streams_.mode() != Mode::PREEMPTIVE || queue_->tasks.wants_preemption() == preempted_) return;
        if (preempted_) {
            streams_.restore();
            preempted_ = false;
        } else if (streams_.preempt()) {
            preempted_ = true;
            preemptions_++;
        }
    }

    void work(TaskType type) {
        const bool critical = type == TaskType::LATENCY_CRITICAL;
        streams_.enter();
        while (const detail::SubmissionPtr submission = next(type)) {
            std::exception_ptr error;
            try {
                if (critical) streams_.hint();
                submission->run();
            } catch (...) {
                error = std::current_exception();
            }
            /* After an error too: the next task needs an empty stream. */
            try {
                streams_.synchronize(critical);
            } catch (...) {
                if (!error) error = std::current_exception();
            }
            {
                const std::lock_guard<std::mutex> lock(queue_->mutex);
                queue_->tasks.finish(*submission, error != nullptr);
                update_stream();
            }
            queue_->changed.notify_all();
            submission->resolve(error);
        }
        streams_.leave();
    }

    /* The next task of a class, once it may start; null when the scheduler ends and no task waits or runs. */
    detail::SubmissionPtr next(TaskType type) {
        std::unique_lock<std::mutex> lock(queue_->mutex);
        for (;;) {
            if (detail::SubmissionPtr found = queue_->tasks.start(type)) return found;
            if (closed_ && queue_->tasks.is_idle()) return nullptr;
            queue_->changed.wait(lock);
        }
    }

    detail::GpuStreams streams_;
    const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
    /* Guarded by the queue's mutex, as the streams are. */
    bool closed_ = false, preempted_ = false;
    std::uint64_t preemptions_ = 0;
    std::thread threads_[2];
};

} /* namespace sluice */

#endif

/* REEF's interface for preempting CUDA streams, on top of Sluice. C++11 and later; everything is in this header.
 *
 *   c++ program.cpp -lcudareef -lcuda        (libcudareef.so is another name of libsluice.so)
 *
 * The library has to come before libcuda. A program linked like this runs by itself and under Sluice's preload; in both cases there is
 * one copy of the library. sluice.h describes the functions.
 *
 * Programs written for REEF's documentation compile. Where that documentation contradicts itself, this header applies these rules:
 *   - its example calls cudaCreateStream; the function is cudaStreamCreate;
 *   - it preempts hp_stream, for which preemption was never enabled, although its text names lp_stream. That returns
 *     REEF_NOT_ENABLED and preempts no stream. `reef::Preempted` below always restores the stream that it preempted;
 *   - it disables preemption for hp_stream, for which it was never enabled: REEF_NOT_ENABLED as well; see `reef::Enabled`;
 *   - RFconfig uses PreemptLevel, which is declared after it;
 *   - "after preempt(stream) the other stream is not disturbed" applies from the moment at which the stream has stopped: with
 *     synchronize = true when the call returns, without it some time later;
 *   - PreemptAll, there "not supported", is requested like the other levels. Each level falls back to the next lower one if the
 *     GPU or the driver does not support it. `reef::supportedLevel` reports that in advance, `Achieved` afterwards. */
#ifndef REEF_H
#define REEF_H

#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

#if __cplusplus >= 201402L
#define REEF_DEFAULT(value) = value
#else
#define REEF_DEFAULT(value)
#endif

typedef struct CUstream_st *CUstream;

namespace reef {

/* The point at which a preempted stream stops. */
enum PreemptLevel {
    PreemptHostQueue = SLUICE_LEVEL_HOST,     /* when all submitted work is finished */
    PreemptDeviceQueue = SLUICE_LEVEL_DEVICE, /* when the running kernel has finished */
    PreemptAll = SLUICE_LEVEL_FULL            /* in the middle of a kernel, until another stream of the context needs the GPU */
};

/* The result of a call: the numbers of sluice_result. */
enum RFresult {
    REEF_SUCCESS = SLUICE_OK,
    REEF_INVALID_CONFIG = SLUICE_INVALID,
    REEF_NO_CONTEXT = SLUICE_NO_CONTEXT,
    REEF_DISABLED = SLUICE_DISABLED,
    REEF_INTERNAL = SLUICE_INTERNAL,
    REEF_TIMEOUT = SLUICE_TIMEOUT,
    REEF_CONTEXT_SAVE_FAILED = SLUICE_CONTEXT_SAVE_FAILED,
    REEF_INSUFFICIENT_MEMORY = SLUICE_INSUFFICIENT_MEMORY,
    REEF_GPU_HUNG = SLUICE_GPU_HUNG,
    REEF_INVALID_STATE = SLUICE_INVALID_STATE,
    REEF_NOT_ENABLED = SLUICE_NOT_ENABLED,
    REEF_ALREADY_ENABLED = SLUICE_ALREADY_ENABLED,
    REEF_INVALID_STREAM = SLUICE_INVALID_STREAM
};

/* The preemption configuration of a stream. From C++14 on, members omitted from the braces have the default given here. */
struct RFconfig {
    size_t queueSize REEF_DEFAULT(32);   /* maximum of submitted, unfinished commands */
    size_t batchSize REEF_DEFAULT(8);    /* commands per completion mark, 1 to queueSize */
    int32_t taskTimeout REEF_DEFAULT(-1); /* idle time in microseconds after which the task counts as finished; negative: never */
    PreemptLevel preemptLevel REEF_DEFAULT(PreemptHostQueue);
};

static const RFconfig defaultConfig = {32, 8, -1, PreemptHostQueue};

/* The result of a preemption. */
struct Achieved {
    PreemptLevel level;         /* the level in effect: that of the configuration, or a lower one */
    unsigned long long took_ns; /* from the call to its return */
};

/* Called when a task counts as finished, on a thread of the library, so it must return soon. */
typedef void (*TaskFinished)(CUstream stream, void *argument);

/* Enables preemption for a stream, or changes its configuration. */
inline RFresult enablePreemption(CUstream cuStream, RFconfig config = defaultConfig, TaskFinished finished = nullptr,
                                 void *argument = nullptr) {
    const size_t most = 0xffffffffu;
    if (config.queueSize > most || config.batchSize > most) return REEF_INVALID_CONFIG;
    sluice_preemption_config wanted;
    sluice_preemption_defaults(&wanted);
    wanted.queue_size = static_cast<unsigned>(config.queueSize);
    wanted.batch_size = static_cast<unsigned>(config.batchSize);
    wanted.task_timeout_us = config.taskTimeout;
    wanted.level = config.preemptLevel;
    wanted.idle = finished;
    wanted.idle_argument = argument;
    return static_cast<RFresult>(sluice_preemption_enable(cuStream, &wanted));
}

/* Disables preemption. A preempted stream is restored. */
inline RFresult disablePreemption(CUstream cuStream) {
    return static_cast<RFresult>(sluice_preemption_disable(cuStream));
}

/* Stops a stream; with `synchronize` it has stopped when the call returns. */
inline RFresult preempt(CUstream cuStream, bool synchronize = false, Achieved *achieved = nullptr) {
    sluice_preemption done = sluice_preemption();
    const sluice_result result = sluice_preempt(cuStream, synchronize, &done);
    if (achieved != nullptr && result == SLUICE_OK) {
        achieved->level = static_cast<PreemptLevel>(done.level);
        achieved->took_ns = done.took_ns;
    }
    return static_cast<RFresult>(result);
}

/* Restores a stream. */
inline RFresult restore(CUstream cuStream) { return static_cast<RFresult>(sluice_restore(cuStream)); }

/* Writes the highest level at which a stream can be preempted. `why`, if given, receives the reason why it is not higher, or null. */
inline RFresult supportedLevel(CUstream cuStream, PreemptLevel *level, const char **why = nullptr) {
    int highest = SLUICE_LEVEL_HOST;
    const sluice_result result = sluice_preemption_level(cuStream, &highest, why);
    if (result == SLUICE_OK) *level = static_cast<PreemptLevel>(highest);
    return static_cast<RFresult>(result);
}

/* Enables preemption of a stream for its lifetime. */
class Enabled {
public:
    explicit Enabled(CUstream cuStream, RFconfig config = defaultConfig)
        : stream_(cuStream), result_(enablePreemption(cuStream, config)) {}
    ~Enabled() {
        if (result_ == REEF_SUCCESS) disablePreemption(stream_);
    }
    Enabled(const Enabled &) = delete;
    Enabled &operator=(const Enabled &) = delete;

    /* The result of enabling it. */
    RFresult result() const { return result_; }

private:
    CUstream stream_;
    RFresult result_;
};

/* Preempts a stream for its lifetime, if that succeeded. */
class Preempted {
public:
    explicit Preempted(CUstream cuStream, bool synchronize = false)
        : stream_(cuStream), achieved_(), result_(preempt(cuStream, synchronize, &achieved_)) {}
    ~Preempted() {
        /* After a timeout it is also preempted, but has not stopped yet. */
        if (result_ == REEF_SUCCESS || result_ == REEF_TIMEOUT) restore(stream_);
    }
    Preempted(const Preempted &) = delete;
    Preempted &operator=(const Preempted &) = delete;

    /* The result of preempting it. */
    RFresult result() const { return result_; }
    /* The level in effect and the time it took; valid only if `result()` is REEF_SUCCESS. */
    Achieved achieved() const { return achieved_; }

private:
    CUstream stream_;
    Achieved achieved_;
    RFresult result_;
};

} /* namespace reef */

/* The documentation uses both spellings. */
using reef::REEF_SUCCESS;

#undef REEF_DEFAULT

#endif

/* The two streams of a scheduler and the functions of the driver and of libsluice.so that it calls; see scheduler.hpp.
 *
 * All functions are looked up at run time. A program needs neither CUDA's headers nor libsluice.so to be compiled, linked and run. */
#ifndef SLUICE_GPU_STREAMS_HPP
#define SLUICE_GPU_STREAMS_HPP

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "../sluice.h"

namespace sluice {

/* CUstream and cudaStream_t. */
using Stream = CUstream_st *;

/* The settings of a scheduler. */
struct Config {
    int gpu_id = 0;                    /* as CUDA counts */
    unsigned hint_us = 300;            /* time from the begin of a latency-critical task to its GPU work, as announced to the pod-manager; 0: no announcement */
    bool preempt = true;               /* false: only stream priorities */
    int level = SLUICE_LEVEL_DEVICE;   /* the point at which a preempted stream stops: SLUICE_LEVEL_HOST or SLUICE_LEVEL_DEVICE */
    unsigned longest_stop_ms = 1000;   /* a stopped best-effort stream continues after this time; 0: never */
};

/* What makes latency-critical tasks faster. */
enum class Mode {
    UNPRIORITISED, /* there is no GPU: tasks run on the host, in the order of their class, with a null stream */
    PRIORITIES,    /* stream priorities alone: libsluice.so is not loaded, or Config::preempt is false */
    PREEMPTIVE     /* the best-effort stream is stopped */
};

/* A failed call of the CUDA driver. */
class CudaError : public std::runtime_error {
public:
    CudaError(const char *function, int number) : std::runtime_error(std::string(function) + ": CUDA error " + std::to_string(number)), code(number) {}
    const int code;
};

namespace detail {

class GpuStreams {
public:
    explicit GpuStreams(const Config &config) : hint_us_(config.hint_us) {
        driver_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        int devices = 0;
        if (driver_ == nullptr || function<int(unsigned)>("cuInit")(0) != 0) return;
        if (function<int(int *)>("cuDeviceGetCount")(&devices) != 0 || devices == 0) return;
        if (config.gpu_id < 0 || config.gpu_id >= devices) throw std::invalid_argument("gpu_id is " + std::to_string(config.gpu_id) + " of " + std::to_string(devices) + " GPUs");
        call<int *, int>("cuDeviceGet", &device_, config.gpu_id);
        call<void **, int>("cuDevicePrimaryCtxRetain", &context_, device_);
        mode_ = Mode::PRIORITIES;
        enter();
        int least = 0, greatest = 0;
        call<int *, int *>("cuCtxGetStreamPriorityRange", &least, &greatest);
        const unsigned non_blocking = 1;
        call<Stream *, unsigned, int>("cuStreamCreateWithPriority", &critical_, non_blocking, greatest);
        call<Stream *, unsigned, int>("cuStreamCreateWithPriority", &best_effort_, non_blocking, least);
        if (config.preempt && enable_preemption(config)) mode_ = Mode::PREEMPTIVE;
        leave();
    }
    ~GpuStreams() {
        if (mode_ == Mode::UNPRIORITISED) return;
        if (mode_ == Mode::PREEMPTIVE) hook<sluice_result(Stream)>("sluice_preemption_disable")(best_effort_);
        enter();
        for (Stream stream : {critical_, best_effort_}) function<int(Stream)>("cuStreamDestroy_v2")(stream);
        leave();
        function<int(int)>("cuDevicePrimaryCtxRelease_v2")(device_);
    }
    GpuStreams(const GpuStreams &) = delete;
    GpuStreams &operator=(const GpuStreams &) = delete;

    Mode mode() const { return mode_; }
    Stream stream(bool critical) const { return critical ? critical_ : best_effort_; }

    /* Makes the context current in this thread, until `leave`. A failure shows in the next call of the driver. */
    void enter() {
        if (mode_ != Mode::UNPRIORITISED) function<int(void *)>("cuCtxPushCurrent_v2")(context_);
    }
    void leave() {
        void *context = nullptr;
        if (mode_ != Mode::UNPRIORITISED) function<int(void **)>("cuCtxPopCurrent_v2")(&context);
    }
    void synchronize(bool critical) {
        if (mode_ != Mode::UNPRIORITISED) call<Stream>("cuStreamSynchronize", stream(critical));
    }
    /* Announces a latency-critical task to the pod-manager. The context is current. */
    void hint() {
        const auto hint = hook<sluice_result(unsigned)>("sluice_hint");
        if (mode_ != Mode::UNPRIORITISED && hint != nullptr && hint_us_ != 0) hint(hint_us_);
    }
    /* Stops the best-effort stream, if that is possible now. Only in Mode::PREEMPTIVE. After SLUICE_TIMEOUT the stream stays
     * preempted and stops when its work permits. */
    bool preempt() {
        const sluice_result result = preempt_(best_effort_, 0, nullptr);
        return result == SLUICE_OK || result == SLUICE_TIMEOUT;
    }
    void restore() { restore_(best_effort_); }

private:
    template <class Signature> static Signature *hook(const char *name) { return reinterpret_cast<Signature *>(dlsym(RTLD_DEFAULT, name)); }
    template <class Signature> Signature *function(const char *name) {
        const auto found = reinterpret_cast<Signature *>(dlsym(driver_, name));
        if (found == nullptr) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
        return found;
    }
    template <class... Arguments> void call(const char *name, Arguments... arguments) {
        const int code = function<int(Arguments...)>(name)(arguments...);
        if (code != 0) throw CudaError(name, code);
    }
    bool enable_preemption(const Config &config) {
        const auto defaults = hook<void(sluice_preemption_config *)>("sluice_preemption_defaults");
        const auto enable = hook<sluice_result(Stream, const sluice_preemption_config *)>("sluice_preemption_enable");
        preempt_ = hook<sluice_result(Stream, int, sluice_preemption *)>("sluice_preempt");
        restore_ = hook<sluice_result(Stream)>("sluice_restore");
        if (defaults == nullptr || enable == nullptr || preempt_ == nullptr || restore_ == nullptr) return false;
        sluice_preemption_config wanted;
        defaults(&wanted);
        wanted.level = config.level;
        wanted.outage_ms = config.longest_stop_ms;
        return enable(best_effort_, &wanted) == SLUICE_OK;
    }

    Mode mode_ = Mode::UNPRIORITISED;
    const unsigned hint_us_;
    void *driver_ = nullptr, *context_ = nullptr;
    int device_ = 0;
    Stream critical_ = nullptr, best_effort_ = nullptr;
    sluice_result (*preempt_)(Stream, int, sluice_preemption *) = nullptr;
    sluice_result (*restore_)(Stream) = nullptr;
};

} /* namespace detail */
} /* namespace sluice */

#endif

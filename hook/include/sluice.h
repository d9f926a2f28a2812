/* What a program may tell Sluice. Link with -lsluice, or look the functions up with dlsym(RTLD_DEFAULT, ...) and do without
 * where they are missing: a program runs the same with and without Sluice. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a call. Up to SLUICE_INTERNAL everything but SLUICE_OK and SLUICE_INVALID means: there was nothing to do, or it
 * could not be done; the program goes on as it would have. From SLUICE_TIMEOUT on they are outcomes of the functions that preempt;
 * unless said otherwise the stream is as it was before the call. Numbers are never given a second meaning. */
typedef enum sluice_result {
    SLUICE_OK = 0,
    SLUICE_INVALID = 1,              /* an argument is out of range */
    SLUICE_NOT_MANAGED = 2,          /* no manager for this GPU */
    SLUICE_NOT_CRITICAL = 3,         /* this process is not latency-critical */
    SLUICE_ALONE = 4,                /* nobody else uses the GPU */
    SLUICE_RUNNING = 5,              /* this process has work on the GPU already */
    SLUICE_BEGUN = 6,                /* the request has begun already */
    SLUICE_NO_CONTEXT = 7,           /* the calling thread has no current context */
    SLUICE_CAPTURING = 8,            /* a stream is being captured */
    SLUICE_PREPARING = 9,            /* being made ready: the next call may succeed */
    SLUICE_UNSUPPORTED = 10,         /* the driver cannot do it */
    SLUICE_DISABLED = 11,            /* switched off by configuration, or in the child of a fork */
    SLUICE_INTERNAL = 12,            /* Sluice failed; the program is not concerned */
    SLUICE_TIMEOUT = 13,             /* the stream had not stopped within a second; it stays preempted and stops when its work lets it */
    SLUICE_CONTEXT_SAVE_FAILED = 14, /* the context could not be taken off the GPU */
    SLUICE_INSUFFICIENT_MEMORY = 15, /* likewise, for lack of memory */
    SLUICE_GPU_HUNG = 16,            /* the GPU does not answer any more */
    SLUICE_INVALID_STATE = 17,       /* another thread preempted or restored the stream meanwhile; that call counts */
    SLUICE_NOT_ENABLED = 18,         /* preemption is not enabled for the stream */
    SLUICE_ALREADY_ENABLED = 19,     /* it is, with the same configuration */
    SLUICE_INVALID_STREAM = 20       /* no stream of this process, or one that has been destroyed */
} sluice_result;

/* A request will be submitted to the GPU by this process, in the calling thread's current context, in about lead_us
 * microseconds (at most one second). The GPU is got ready for it, so that it need not wait for another process's work to be
 * switched out. Costs some microseconds; call it as soon as the request is known, 300 us ahead if that can be. A hint that
 * no request follows costs others the GPU for up to two milliseconds, and nothing else. */
sluice_result sluice_hint(unsigned lead_us);

/* Preempting streams of one's own. No manager is needed.
 *
 * A stream is a CUstream (or cudaStream_t): NULL and CU_STREAM_LEGACY are the legacy default stream of the calling thread's
 * context, CU_STREAM_PER_THREAD is the calling thread's own. While a stream is preempted, calls on it return as ever and wait for
 * sluice_restore; calls that wait for it wait as long. Results are the same to the bit: nothing is run twice or left out.
 *
 * For some calls a driver waits until the GPU has done all that it was given of the context, streams that stand included. Loads of
 * modules and libraries, and the first launch of a kernel that needs more local memory than any before, do not wait for
 * sluice_restore: for them what was submitted of preempted streams runs to its end, as at SLUICE_LEVEL_HOST, and sluice_preempt says
 * that level while they are under way. Calls that free or unregister memory, unload, or end a context wait. Streams of a context
 * share some 32 channels: of more than so many in use, some run only when another one that stands is restored.
 *
 * Calls that were under way in other threads when preemption was first enabled in the process are not held. From then on
 * every call of the process on a stream costs some tens of nanoseconds more, whether that stream is enabled or not. */
struct CUstream_st;

/* How early a preempted stream stops. */
enum sluice_level {
    SLUICE_LEVEL_HOST = 0,   /* nothing more is submitted; what was submitted runs to its end */
    SLUICE_LEVEL_DEVICE = 1, /* what was submitted stops in place; a kernel that runs ends first */
    SLUICE_LEVEL_FULL = 2    /* the GPU is taken away in the middle of a kernel; only while no other stream of the context runs */
};

typedef struct sluice_preemption_config {
    size_t size;          /* sizeof(sluice_preemption_config) */
    unsigned queue_size;  /* commands that the driver has been given and that have not finished, at most; 32 */
    unsigned batch_size;  /* commands per completion mark, 1 to queue_size; 8 */
    int task_timeout_us;  /* after so long without anything done or submitted, idle is called, once; negative: never; -1 */
    int level;            /* the highest level of sluice_preempt, an enum sluice_level; SLUICE_LEVEL_HOST */
    unsigned bound_us;    /* estimated GPU time of what the driver has been given, at most; 1000 */
    unsigned outage_ms;   /* the stream is restored after being preempted for so long; 0: never; 0 */
    /* Called on a thread of Sluice's, which it must not keep; may be NULL. It may call everything declared here. */
    void (*idle)(struct CUstream_st *stream, void *argument);
    void *idle_argument;  /* handed to idle */
} sluice_preemption_config;

/* A preemption that was carried out. */
typedef struct sluice_preemption {
    int level;                  /* the level in effect: that of the configuration, or a lower one */
    unsigned long long took_ns; /* from the call to its return */
} sluice_preemption;

/* The values given above. */
void sluice_preemption_defaults(sluice_preemption_config *config);

/* Enables preemption for a stream, or changes its configuration; NULL means the defaults. Does not wait for the GPU. */
sluice_result sluice_preemption_enable(struct CUstream_st *stream, const sluice_preemption_config *config);

/* Ends it. A preempted stream is restored; what waits is handed over first. Does not wait for the GPU. */
sluice_result sluice_preemption_disable(struct CUstream_st *stream);

/* Stops a stream, at once if it can be. When it returns, nothing more of the stream reaches the driver until sluice_restore; with sync
 * other than 0 the stream also stands still. achieved may be NULL. A stream that is preempted already stays so. */
sluice_result sluice_preempt(struct CUstream_st *stream, int sync, sluice_preemption *achieved);

/* Lets a stream run again; one that is not preempted goes on. The last of sluice_preempt and sluice_restore counts. */
sluice_result sluice_restore(struct CUstream_st *stream);

/* The highest level that a stream can be preempted at here and now, and why it is not a higher one: a text that stays valid, NULL
 * at SLUICE_LEVEL_FULL. Either pointer may be NULL. Preemption need not be enabled. */
sluice_result sluice_preemption_level(struct CUstream_st *stream, int *level, const char **reason);

#ifdef __cplusplus
}
#endif

#endif

/* The C interface between a program and Sluice. Link with -lsluice, or look the functions up with dlsym(RTLD_DEFAULT, ...) and skip the
 * calls if they are missing. A program runs the same with and without Sluice. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of a call. Up to SLUICE_INTERNAL, every result but SLUICE_OK and SLUICE_INVALID means that there was nothing to do, or that
 * it could not be done; the program continues unchanged. From SLUICE_TIMEOUT on, the results belong to the functions that preempt.
 * Unless stated otherwise, the stream is as it was before the call. A number never gets a second meaning. */
typedef enum sluice_result {
    SLUICE_OK = 0,
    SLUICE_INVALID = 1,              /* an argument is out of range */
    SLUICE_NOT_MANAGED = 2,          /* no manager for this GPU */
    SLUICE_NOT_CRITICAL = 3,         /* this process is not latency-critical */
    SLUICE_ALONE = 4,                /* no other client uses the GPU */
    SLUICE_RUNNING = 5,              /* this process already has work on the GPU */
    SLUICE_BEGUN = 6,                /* the request has already begun */
    SLUICE_NO_CONTEXT = 7,           /* the calling thread has no current context */
    SLUICE_CAPTURING = 8,            /* a stream is being captured */
    SLUICE_PREPARING = 9,            /* in preparation, or launches have to wait now: a later call may succeed */
    SLUICE_UNSUPPORTED = 10,         /* the driver does not support it */
    SLUICE_DISABLED = 11,            /* switched off by configuration, or in the child of a fork */
    SLUICE_INTERNAL = 12,            /* Sluice failed internally; the program is not affected */
    SLUICE_TIMEOUT = 13,             /* the stream did not stop within a second; it stays preempted and stops when its work permits */
    SLUICE_CONTEXT_SAVE_FAILED = 14, /* the context could not be taken off the GPU */
    SLUICE_INSUFFICIENT_MEMORY = 15, /* the same, for lack of memory */
    SLUICE_GPU_HUNG = 16,            /* the GPU no longer responds */
    SLUICE_INVALID_STATE = 17,       /* another thread preempted or restored the stream meanwhile; that call applies */
    SLUICE_NOT_ENABLED = 18,         /* preemption is not enabled for the stream */
    SLUICE_ALREADY_ENABLED = 19,     /* preemption is already enabled with the same configuration */
    SLUICE_INVALID_STREAM = 20       /* not a stream of this process, or a destroyed one */
} sluice_result;

/* Announces that this process will submit a request to the GPU in about lead_us microseconds (at most one second), in the calling
 * thread's current context. Sluice switches the GPU to the context in advance, so that the request does not wait for a context switch.
 * The call takes some microseconds. Call it as soon as the request is known, if possible 300 us ahead. A hint without a request costs
 * other clients up to two milliseconds of GPU time, and nothing else. */
sluice_result sluice_hint(unsigned lead_us);

/* Marks the begin and the end of a request that waits for the GPU several times, such as one that generates tokens: Sluice keeps the GPU
 * switched to the calling thread's current context from begin to end, also while the program works on the host. Without these calls
 * Sluice learns from the program's pauses when to do so. The calls take some microseconds.
 *
 * The pair counts for the process. A second begin extends the request, and an end without a begin has no effect. If the program does
 * nothing on the GPU for 50 ms, the request is over without an end. A begin returns SLUICE_BEGUN if the GPU is already kept for this
 * request. An end returns SLUICE_OK where Sluice manages the process, whether or not there was a begin. */
sluice_result sluice_request_begin(void);
sluice_result sluice_request_end(void);

/* Preemption of the program's own streams. It needs no manager.
 *
 * A stream is a CUstream (or cudaStream_t): NULL and CU_STREAM_LEGACY are the legacy default stream of the calling thread's
 * context, CU_STREAM_PER_THREAD is the calling thread's own. While a stream is preempted, calls on it return as usual and their work
 * waits for sluice_restore; calls that wait for the stream wait as long. Results are bit-identical: no work is run twice or omitted.
 *
 * In some calls the driver waits until the GPU has finished all submitted work of the context, including that of preempted streams.
 * Loads of modules and libraries, and the first launch of a kernel that needs more local memory than any before, do not wait for
 * sluice_restore. For them, the submitted work of preempted streams runs to its end, as at SLUICE_LEVEL_HOST, and sluice_preempt returns
 * that level meanwhile. Calls that free or unregister memory, unload, or end a context wait. The streams of a context share about 32
 * channels. If more streams are in use, some run only when another, preempted one is restored.
 *
 * Calls that were in progress in other threads when preemption was first enabled in the process are not delayed. From then on,
 * every call of the process on a stream costs some tens of nanoseconds more, whether that stream is enabled or not. */
struct CUstream_st;

/* The point at which a preempted stream stops. */
enum sluice_level {
    SLUICE_LEVEL_HOST = 0,   /* no more work is submitted; submitted work runs to its end */
    SLUICE_LEVEL_DEVICE = 1, /* submitted work stops in place; a running kernel ends first */
    SLUICE_LEVEL_FULL = 2    /* the stream stops in the middle of a kernel; only while no other stream of the context runs */
};

typedef struct sluice_preemption_config {
    size_t size;          /* sizeof(sluice_preemption_config) */
    unsigned queue_size;  /* maximum of submitted, unfinished commands; default 32 */
    unsigned batch_size;  /* commands per completion mark, 1 to queue_size; default 8 */
    int task_timeout_us;  /* idle is called once after this time without progress or submission; negative: never; default -1 */
    int level;            /* the highest level of sluice_preempt, an enum sluice_level; default SLUICE_LEVEL_HOST */
    unsigned bound_us;    /* maximum of the estimated GPU time of submitted work; default 1000 */
    unsigned outage_ms;   /* a stream that the program preempts is restored after this time; 0: never; default 0 */
    /* Called on a thread of Sluice, so it must return soon; may be NULL. It may call all functions declared here. */
    void (*idle)(struct CUstream_st *stream, void *argument);
    void *idle_argument;  /* the second argument of idle */
} sluice_preemption_config;

/* The result of a preemption. */
typedef struct sluice_preemption {
    int level;                  /* the level in effect: that of the configuration, or a lower one */
    unsigned long long took_ns; /* from the call to its return */
} sluice_preemption;

/* Writes the default values given above. */
void sluice_preemption_defaults(sluice_preemption_config *config);

/* Enables preemption for a stream, or changes its configuration; NULL means the defaults. Does not wait for the GPU. */
sluice_result sluice_preemption_enable(struct CUstream_st *stream, const sluice_preemption_config *config);

/* Disables preemption. A preempted stream is restored, after its waiting work was submitted. Does not wait for the GPU. */
sluice_result sluice_preemption_disable(struct CUstream_st *stream);

/* Stops a stream, at once if possible. After the return, no work of the stream reaches the driver until sluice_restore. If sync is not
 * 0, the stream has also stopped. achieved may be NULL. A stream that is preempted already stays preempted. */
sluice_result sluice_preempt(struct CUstream_st *stream, int sync, sluice_preemption *achieved);

/* Restores a stream; without effect on one that is not preempted. The last of sluice_preempt and sluice_restore applies. */
sluice_result sluice_restore(struct CUstream_st *stream);

/* Writes the highest level at which the stream can currently be preempted, and the reason why it is not higher: a text that stays valid,
 * or NULL at SLUICE_LEVEL_FULL. Either pointer may be NULL. Preemption need not be enabled. */
sluice_result sluice_preemption_level(struct CUstream_st *stream, int *level, const char **reason);

#ifdef __cplusplus
}
#endif

#endif

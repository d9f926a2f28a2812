/* What a program may tell Sluice. Link with -lsluice, or look the functions up with dlsym(RTLD_DEFAULT, ...) and do without
 * where they are missing: a program runs the same with and without Sluice. */
#ifndef SLUICE_H
#define SLUICE_H

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a call. Everything but SLUICE_OK and SLUICE_INVALID means: there was nothing to do, or it could not be done;
 * the program goes on as it would have. */
typedef enum sluice_result {
    SLUICE_OK = 0,
    SLUICE_INVALID = 1,      /* an argument is out of range */
    SLUICE_NOT_MANAGED = 2,  /* no manager for this GPU */
    SLUICE_NOT_CRITICAL = 3, /* this process is not latency-critical */
    SLUICE_ALONE = 4,        /* nobody else uses the GPU */
    SLUICE_RUNNING = 5,      /* this process has work on the GPU already */
    SLUICE_BEGUN = 6,        /* the request has begun already */
    SLUICE_NO_CONTEXT = 7,   /* the calling thread has no current context */
    SLUICE_CAPTURING = 8,    /* a stream is being captured */
    SLUICE_PREPARING = 9,    /* being made ready: the next call may succeed */
    SLUICE_UNSUPPORTED = 10, /* the driver cannot do it */
    SLUICE_DISABLED = 11,    /* switched off by configuration, or in the child of a fork */
    SLUICE_INTERNAL = 12     /* Sluice failed; the program is not concerned */
} sluice_result;

/* A request will be submitted to the GPU by this process, in the calling thread's current context, in about lead_us
 * microseconds (at most one second). The GPU is got ready for it, so that it need not wait for another process's work to be
 * switched out. Costs some microseconds; call it as soon as the request is known, 300 us ahead if that can be. A hint that
 * no request follows costs others the GPU for up to two milliseconds, and nothing else. */
sluice_result sluice_hint(unsigned lead_us);

#ifdef __cplusplus
}
#endif

#endif

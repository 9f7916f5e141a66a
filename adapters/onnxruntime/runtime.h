/* SPDX-License-Identifier: MIT */
/* Internal header of the adapter for ONNX Runtime: what its files share. */
#ifndef LOCHI_ONNXRUNTIME_RUNTIME_H
#define LOCHI_ONNXRUNTIME_RUNTIME_H

#include "abi.h"
#include "loch_onnxruntime.h"

#include <pthread.h>

/* Longest name of a session with its final zero: with " weights" behind it a tag still fits. */
#define LOCHI_ORT_NAME_MAX (LOCH_TAG_NAME_MAX - sizeof " weights" + 1)

/* A name of sessions: the allocator that ONNX Runtime calls for them. Changed only by its creation; lives as long as
 * the runtime. */
typedef struct lochi_ort_session {
    lochi_ort_allocator ort; /* first: ONNX Runtime passes its address */
    loch_onnxruntime *runtime;
    loch_allocator *allocator; /* the pool, or a limit around it; a reference */
    loch_tag run, weights;
    int is_limited;
    struct lochi_ort_session *next;
    char name[LOCHI_ORT_NAME_MAX];
} lochi_ort_session;

struct loch_onnxruntime {
    lochi_ort_functions functions;
    uint32_t version; /* of the interface of ONNX Runtime that is used */
    lochi_ort_env *env;
    int owns_env; /* the reference on the environment is given back at the end */
    lochi_ort_memory_info *info;
    loch_allocator *pool;        /* a reference */
    pthread_mutex_t lock;        /* held to exchange the allocator of the environment: between begin and end */
    pthread_mutex_t names_lock;  /* guards sessions */
    lochi_ort_session *sessions; /* newest first; the last one is the one without a name */
    loch_onnxruntime *next;      /* in order of creation */
};

/* --- allocator.c --- */

/* Creates the allocator of a name. */
loch_status lochi_ort_session_create(loch_onnxruntime *runtime, const char *name, size_t limit_bytes,
                                     lochi_ort_session **out);

/* Destroys an allocator that ONNX Runtime no longer knows. NULL does nothing. */
void lochi_ort_session_destroy(lochi_ort_session *session);

/* Reads the statistics of a name in two parts. */
loch_status lochi_ort_session_get_stats(const lochi_ort_session *session, loch_stats *run, loch_stats *weights);

/* --- runtime.c --- */

/* Turns a status of ONNX Runtime into one of Loch, with its message in the error record, and releases it. NULL is
 * success. */
loch_status lochi_ort_check(const loch_onnxruntime *runtime, lochi_ort_status *status);

/* Reads the functions of ONNX Runtime. */
loch_status lochi_ort_read_functions(const lochi_ort_base *base, lochi_ort_functions *out, uint32_t *version);

/* Finds the session of a name or creates it. */
loch_status lochi_ort_require_session(loch_onnxruntime *runtime, const char *name, size_t limit_bytes,
                                      lochi_ort_session **out);

/* Makes a session's allocator the environment's. The runtime's lock is held. */
loch_status lochi_ort_use_session(loch_onnxruntime *runtime, lochi_ort_session *session);

#endif

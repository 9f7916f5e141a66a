/* SPDX-License-Identifier: MIT */
/** @file loch_onnxruntime.h
 *  Loch as the allocator of ONNX Runtime on the cpu. A library of its own, libloch_onnxruntime, for ONNX Runtime 1.18
 *  and later. It needs no header of ONNX Runtime; include it before or after onnxruntime_c_api.h.
 *
 *      loch_onnxruntime *runtime;
 *      LOCH_CHECK(loch_onnxruntime_create(OrtGetApiBase(), env, NULL, &runtime));
 *      api->AddSessionConfigEntry(session_options, "session.use_env_allocators", "1");
 *
 *      LOCH_CHECK(loch_onnxruntime_begin_session(runtime, "minilm", NULL));
 *      OrtStatus *failure = api->CreateSession(env, path, session_options, &session);
 *      LOCH_CHECK(loch_onnxruntime_end_session(runtime));
 *
 *  Sessions share one pool. What one session frees serves the others. Memory of a session is counted under its name:
 *  weights and buffers that ONNX Runtime keeps for the life of the session under the tag "NAME weights", all other
 *  memory under the tag "NAME".
 *
 *  ONNX Runtime keeps one allocator for each environment and gives it to a session when the session is created.
 *  loch_onnxruntime_begin_session exchanges it, so each name has an allocator of its own. No thread may create a
 *  session with environment allocators in the same environment meanwhile, except the thread that is between begin and
 *  end.
 *
 *  When memory is short, Alloc throws an exception, as ONNX Runtime's own arena does, and the status of Run or
 *  CreateSession has the sentence of Loch's error record.
 *
 *  Programs without a call of their own load the library as a library of custom operators (RegisterCustomOpsLibrary,
 *  in Python SessionOptions.register_custom_ops_library): docs/onnxruntime.md.
 *
 *  All calls work from any thread. A forked child cannot use ONNX Runtime, nor the objects here.
 */
#ifndef LOCH_ONNXRUNTIME_H
#define LOCH_ONNXRUNTIME_H

#include <loch/loch.h>

LOCH_BEGIN_DECLS

struct OrtApiBase;
struct OrtEnv;

/** Loch in one environment of ONNX Runtime. */
typedef struct loch_onnxruntime loch_onnxruntime;

/** Options of loch_onnxruntime_create. Zero means default. */
typedef struct loch_onnxruntime_options {
    size_t size; /**< sizeof(loch_onnxruntime_options) */
    /** Allocator that all sessions share, on the device "cpu" and thread safe; retained. NULL for the default pool of
     *  the cpu, which the options pool_limit and pool_idle bound. */
    loch_allocator *pool;
} loch_onnxruntime_options;

/** Registers Loch in an environment. Sessions that are created afterwards with "session.use_env_allocators" = "1" have
 *  their memory from Loch, under the name "onnxruntime" unless loch_onnxruntime_begin_session names them. E_EXISTS: the
 *  environment has Loch already. E_INVALID: an argument is not valid, or the allocator is not on the cpu or not thread
 *  safe. E_UNSUPPORTED: the version of ONNX Runtime is too old. E_DRIVER: ONNX Runtime refused; the sentence has its
 *  message.
 *  @param base  the result of OrtGetApiBase
 *  @param env   borrowed until loch_onnxruntime_destroy
 *  @param out   the caller's; end it with loch_onnxruntime_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_onnxruntime_create(const struct OrtApiBase *base, struct OrtEnv *env,
                                                           const loch_onnxruntime_options *options,
                                                           loch_onnxruntime **out);

/** Removes Loch from the environment. Release all sessions of it and all values that they returned before, and the
 *  environment after. E_BUSY, nothing changed: blocks are still allocated, or a thread is between begin and end. NULL
 *  succeeds. */
LOCH_API LOCH_MUST_USE loch_status loch_onnxruntime_destroy(loch_onnxruntime *runtime);

/** Returns the object of an environment; NULL for `env` returns the oldest one of the process. NULL if there is none.
 *  Borrowed. */
LOCH_API loch_onnxruntime *loch_onnxruntime_get(const struct OrtEnv *env);

/** Returns the allocator that all sessions share. Borrowed. NULL returns NULL. */
LOCH_API loch_allocator *loch_onnxruntime_get_pool(const loch_onnxruntime *runtime);

/** Options of loch_onnxruntime_begin_session. Zero means default. */
typedef struct loch_onnxruntime_session_options {
    size_t size; /**< sizeof(loch_onnxruntime_session_options) */
    /** Limit of the bytes in use under this name, weights included; 0 for none. A name that had a limit at its first
     *  begin can get another one, others cannot (E_EXISTS). Costs one look-up in a table for each call. */
    size_t limit_bytes;
} loch_onnxruntime_session_options;

/** Begins the creation of sessions under a name: those that this thread creates before loch_onnxruntime_end_session.
 *  Other threads wait in this call until then. Several sessions may have one name, and share its figures. Names live
 *  until loch_onnxruntime_destroy, their tags as long as the process. E_BUSY: this thread has begun already. E_INVALID:
 *  the name is empty, longer than 55 characters, or has a quotation mark, a backslash or a control character. E_LIMIT:
 *  the process has too many tags. E_DRIVER: ONNX Runtime refused. */
LOCH_API LOCH_MUST_USE loch_status loch_onnxruntime_begin_session(loch_onnxruntime *runtime, const char *name,
                                                                  const loch_onnxruntime_session_options *options);

/** Ends the creation of sessions under a name. E_INVALID: this thread has not begun. */
LOCH_API LOCH_MUST_USE loch_status loch_onnxruntime_end_session(loch_onnxruntime *runtime);

/** Reads the statistics of a name: weights and other memory together; a peak is the sum of both peaks, an upper bound.
 *  Set `out->size` before the call. The figures by tag have more: tags "NAME" and "NAME weights" of the pool.
 *  E_NOT_FOUND: no session had this name. */
LOCH_API LOCH_MUST_USE loch_status loch_onnxruntime_get_stats(loch_onnxruntime *runtime, const char *name,
                                                              loch_stats *out);

/** Prints the statistics of the pool and of every name, with weights apart. JSON is an object with the members `pool`
 *  and `sessions`; each session has `run` and `weights`. `format`, `text`, `bytes` and `length` work as in
 *  loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_onnxruntime_print(loch_onnxruntime *runtime, loch_format format, char *text,
                                                          size_t bytes, size_t *length);

LOCH_END_DECLS

#endif

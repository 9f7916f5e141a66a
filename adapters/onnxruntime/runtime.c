/* SPDX-License-Identifier: MIT */
/* Loch in an environment of ONNX Runtime: which allocator the environment hands to the next session, and the figures
 * of all names.
 *
 * Locks, in this order: the lock of the list, held over the creation of a runtime; a runtime's `lock`, held by the user
 * between begin and end; `names_lock`, held over nothing but calls of Loch. ONNX Runtime's own locks come after the
 * first two. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#define NAMELESS "onnxruntime"

static struct {
    pthread_mutex_t lock; /* guards the list */
    loch_onnxruntime *first;
} runtime_all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- ONNX Runtime's functions --- */

loch_status lochi_ort_check(const loch_onnxruntime *runtime, lochi_ort_status *status)
{
    if (!status) return LOCH_OK;
    loch_error_set(LOCH_E_DRIVER, "onnxruntime", 0, "ONNX Runtime refused: %.200s",
                   runtime->functions.get_error_message(status));
    runtime->functions.release_status(status);
    return LOCH_E_DRIVER;
}

loch_status lochi_ort_read_functions(const lochi_ort_base *base, lochi_ort_functions *out, uint32_t *version)
{
    /* Asked by its name first: GetApi of an older version prints a complaint. */
    const char *text = base->get_version();
    const long minor = strncmp(text, "1.", 2) == 0 ? strtol(text + 2, NULL, 10) : 0;
    *version = minor >= LOCHI_ORT_WITH_STATS ? LOCHI_ORT_WITH_STATS : LOCHI_ORT_OLDEST;
    const void *const *table = minor >= LOCHI_ORT_OLDEST ? base->get_api(*version) : NULL;
    if (!table)
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0,
                              "ONNX Runtime %.20s does not have version %u of its interface", text, *version);
    memset(out, 0, sizeof *out);
#define READ(index, name, ort_name, result, parameters) memcpy(&out->name, table + (index), sizeof out->name);
    LOCHI_ORT_FUNCTIONS(READ)
    if (*version >= LOCHI_ORT_WITH_STATS) {
        LOCHI_ORT_STATS_FUNCTIONS(READ)
    }
#undef READ
    return LOCH_OK;
}

/* --- names of sessions --- */

static lochi_ort_session *runtime_find(const loch_onnxruntime *runtime, const char *name)
{
    lochi_ort_session *session = runtime->sessions;
    while (session && strcmp(session->name, name) != 0)
        session = session->next;
    return session;
}

/* Applies the limit of a later begin to a session that exists. */
static loch_status runtime_set_limit(lochi_ort_session *session, size_t limit_bytes)
{
    if (session->is_limited) return loch_limit_set(session->allocator, limit_bytes, 0);
    if (!limit_bytes) return LOCH_OK;
    return loch_error_set(LOCH_E_EXISTS, NULL, 0, "session '%s' was begun without a limit before", session->name);
}

loch_status lochi_ort_require_session(loch_onnxruntime *runtime, const char *name, size_t limit_bytes,
                                      lochi_ort_session **out)
{
    loch_status status;
    pthread_mutex_lock(&runtime->names_lock);
    *out = name ? runtime_find(runtime, name) : NULL;
    if (*out) {
        status = runtime_set_limit(*out, limit_bytes);
    } else {
        status = lochi_ort_session_create(runtime, name, limit_bytes, out);
        if (status == LOCH_OK) {
            (*out)->next = runtime->sessions;
            runtime->sessions = *out;
        }
    }
    pthread_mutex_unlock(&runtime->names_lock);
    return status;
}

static lochi_ort_session *runtime_get_nameless(const loch_onnxruntime *runtime)
{
    lochi_ort_session *session = runtime->sessions;
    while (session->next)
        session = session->next;
    return session;
}

/* Removes the allocator of the environment. Before 1.23 a registered one is not replaced, so it always goes first. */
static void runtime_unregister(loch_onnxruntime *runtime)
{
    lochi_ort_status *none = runtime->functions.unregister_allocator(runtime->env, runtime->info);
    if (none) runtime->functions.release_status(none); /* nothing was registered */
}

loch_status lochi_ort_use_session(loch_onnxruntime *runtime, lochi_ort_session *session)
{
    runtime_unregister(runtime);
    return lochi_ort_check(runtime, runtime->functions.register_allocator(runtime->env, &session->ort));
}

/* --- life --- */

/* Releases everything; the object may be half built. */
static void runtime_free(loch_onnxruntime *runtime)
{
    while (runtime->sessions) {
        lochi_ort_session *next = runtime->sessions->next;
        lochi_ort_session_destroy(runtime->sessions);
        runtime->sessions = next;
    }
    if (runtime->info) runtime->functions.release_memory_info(runtime->info);
    if (runtime->owns_env) runtime->functions.release_env(runtime->env);
    loch_allocator_release(runtime->pool);
    pthread_mutex_destroy(&runtime->names_lock);
    pthread_mutex_destroy(&runtime->lock);
    free(runtime);
}

static loch_status runtime_find_pool(loch_onnxruntime *runtime, loch_allocator *pool)
{
    loch_device *device;
    loch_status status = loch_device_open("cpu", &device);
    if (status != LOCH_OK) return status;
    if (!pool) {
        status = loch_device_acquire_default(device, &runtime->pool);
    } else if (loch_allocator_get_device(pool) != device ||
               !(loch_allocator_get_traits(pool) & LOCH_TRAIT_THREAD_SAFE)) {
        status = loch_error_set(LOCH_E_INVALID, NULL, 0, "the allocator '%s' is not on the cpu or not thread safe",
                                loch_allocator_get_name(pool));
    } else {
        runtime->pool = loch_allocator_retain(pool);
    }
    loch_device_release(device);
    return status;
}

/* Counts the live blocks of all names. */
static loch_status runtime_count(loch_onnxruntime *runtime, uint64_t *out)
{
    loch_status status = LOCH_OK;
    *out = 0;
    for (lochi_ort_session *session = runtime->sessions; session && status == LOCH_OK; session = session->next) {
        loch_stats run, weights;
        status = lochi_ort_session_get_stats(session, &run, &weights);
        *out += run.blocks + weights.blocks;
    }
    return status;
}

static loch_status runtime_build(loch_onnxruntime *runtime, const struct OrtApiBase *base, loch_allocator *pool)
{
    lochi_ort_session *nameless = NULL;
    uint64_t blocks;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&runtime->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    pthread_mutex_init(&runtime->names_lock, NULL);
    loch_status status = lochi_ort_read_functions((const lochi_ort_base *)base, &runtime->functions, &runtime->version);
    if (status == LOCH_OK)
        status = lochi_ort_check(runtime, runtime->functions.create_memory_info(LOCHI_ORT_MEMORY_NAME,
                                                                                LOCHI_ORT_DEVICE_ALLOCATOR, 0,
                                                                                LOCHI_ORT_MEMORY_TYPE, &runtime->info));
    if (status == LOCH_OK) status = runtime_find_pool(runtime, pool);
    if (status == LOCH_OK) status = lochi_ort_require_session(runtime, NAMELESS, 0, &nameless);
    if (status == LOCH_OK) status = runtime_count(runtime, &blocks); /* the allocator must count by tag */
    return status == LOCH_OK ? lochi_ort_use_session(runtime, nameless) : status;
}

static loch_onnxruntime *runtime_find_env(const struct OrtEnv *env)
{
    loch_onnxruntime *runtime = runtime_all.first;
    while (runtime && env && runtime->env != env)
        runtime = runtime->next;
    return runtime;
}

/* Adds an object behind the others. The lock of the list is held. */
static void runtime_link(loch_onnxruntime *runtime)
{
    loch_onnxruntime **end = &runtime_all.first;
    while (*end)
        end = &(*end)->next;
    *end = runtime;
}

loch_status loch_onnxruntime_create(const struct OrtApiBase *base, struct OrtEnv *env,
                                    const loch_onnxruntime_options *options, loch_onnxruntime **out)
{
    if (!out) return loch_error_set(LOCH_E_INVALID, NULL, 0, "out is NULL");
    *out = NULL;
    if (!base || !env) return loch_error_set(LOCH_E_INVALID, NULL, 0, "%s is NULL", base ? "env" : "base");
    if (options && options->size < sizeof *options)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "the size of the options is not set");
    pthread_mutex_lock(&runtime_all.lock);
    loch_status status = LOCH_OK;
    loch_onnxruntime *runtime = NULL;
    if (runtime_find_env(env))
        status = loch_error_set(LOCH_E_EXISTS, NULL, 0, "the environment has Loch already");
    else if (!(runtime = calloc(1, sizeof *runtime)))
        status = loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for an environment");
    if (runtime) {
        runtime->env = env;
        status = runtime_build(runtime, base, options ? options->pool : NULL);
    }
    if (status == LOCH_OK)
        runtime_link(*out = runtime);
    else if (runtime)
        runtime_free(runtime);
    pthread_mutex_unlock(&runtime_all.lock);
    return status;
}

loch_status loch_onnxruntime_destroy(loch_onnxruntime *runtime)
{
    uint64_t blocks;
    if (!runtime) return LOCH_OK;
    if (pthread_mutex_trylock(&runtime->lock) != 0)
        return loch_error_set(LOCH_E_BUSY, NULL, 0, "a thread is between begin_session and end_session");
    loch_status status = runtime_count(runtime, &blocks);
    if (status == LOCH_OK && blocks)
        status = loch_error_set(LOCH_E_BUSY, NULL, 0,
                                "sessions or values of ONNX Runtime still have %llu blocks; release them first",
                                (unsigned long long)blocks);
    if (status == LOCH_OK) runtime_unregister(runtime);
    pthread_mutex_unlock(&runtime->lock);
    if (status != LOCH_OK) return status;
    pthread_mutex_lock(&runtime_all.lock);
    loch_onnxruntime **at = &runtime_all.first;
    while (*at != runtime)
        at = &(*at)->next;
    *at = runtime->next;
    pthread_mutex_unlock(&runtime_all.lock);
    runtime_free(runtime);
    return LOCH_OK;
}

loch_onnxruntime *loch_onnxruntime_get(const struct OrtEnv *env)
{
    pthread_mutex_lock(&runtime_all.lock);
    loch_onnxruntime *runtime = runtime_find_env(env);
    pthread_mutex_unlock(&runtime_all.lock);
    return runtime;
}

loch_allocator *loch_onnxruntime_get_pool(const loch_onnxruntime *runtime)
{
    return runtime ? runtime->pool : NULL;
}

/* --- begin and end --- */

loch_status loch_onnxruntime_begin_session(loch_onnxruntime *runtime, const char *name,
                                           const loch_onnxruntime_session_options *options)
{
    lochi_ort_session *session;
    if (!runtime) return loch_error_set(LOCH_E_INVALID, NULL, 0, "runtime is NULL");
    if (options && options->size < sizeof *options)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "the size of the options is not set");
    if (pthread_mutex_lock(&runtime->lock) != 0)
        return loch_error_set(LOCH_E_BUSY, NULL, 0, "this thread has begun a session already");
    loch_status status = lochi_ort_require_session(runtime, name, options ? options->limit_bytes : 0, &session);
    if (status == LOCH_OK) status = lochi_ort_use_session(runtime, session);
    if (status != LOCH_OK) pthread_mutex_unlock(&runtime->lock);
    return status;
}

loch_status loch_onnxruntime_end_session(loch_onnxruntime *runtime)
{
    if (!runtime) return loch_error_set(LOCH_E_INVALID, NULL, 0, "runtime is NULL");
    if (pthread_mutex_lock(&runtime->lock) == 0) { /* it refuses to lock twice: this thread did not have it */
        pthread_mutex_unlock(&runtime->lock);
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "this thread has not begun a session");
    }
    pthread_mutex_lock(&runtime->names_lock);
    lochi_ort_session *nameless = runtime_get_nameless(runtime);
    pthread_mutex_unlock(&runtime->names_lock);
    const loch_status status = lochi_ort_use_session(runtime, nameless);
    pthread_mutex_unlock(&runtime->lock);
    return status;
}

/* --- figures --- */

loch_status loch_onnxruntime_get_stats(loch_onnxruntime *runtime, const char *name, loch_stats *out)
{
    loch_stats run, weights;
    if (!runtime || !name || !out || out->size < sizeof *out)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "an argument is NULL, or the size of the result is not set");
    pthread_mutex_lock(&runtime->names_lock);
    const lochi_ort_session *session = runtime_find(runtime, name);
    pthread_mutex_unlock(&runtime->names_lock);
    if (!session) return loch_error_set(LOCH_E_NOT_FOUND, NULL, 0, "no session has the name '%.60s'", name);
    const loch_status status = lochi_ort_session_get_stats(session, &run, &weights);
    if (status != LOCH_OK) return status;
    loch_stats_add(&run, &weights);
    run.limit_bytes = weights.limit_bytes; /* one limit for both */
    *out = run;
    return LOCH_OK;
}

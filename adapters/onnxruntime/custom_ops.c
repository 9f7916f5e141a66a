/* SPDX-License-Identifier: MIT */
/* The way in for programs that cannot call C: every binding of ONNX Runtime can load a library of custom operators.
 * This library has no operator. ONNX Runtime calls RegisterCustomOps with the options of a session and with its own
 * functions; so it works with ONNX Runtime inside the Python module too, which exports nothing. */
#include "runtime.h"

#include <errno.h>
#include <stdlib.h>

/* Keys of the session options that are read here. */
#define KEY_NAME "loch.session"
#define KEY_LIMIT "loch.limit_bytes"

LOCH_API lochi_ort_status *RegisterCustomOps(lochi_ort_session_options *options, const struct OrtApiBase *base);

/* Returns the environment's object, or creates it. There is one environment in a process for each copy of ONNX Runtime:
 * CreateEnv returns it. Its reference is kept as long as the object. */
static loch_status ops_require(const struct OrtApiBase *base, const lochi_ort_functions *ort, loch_onnxruntime **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const loch_onnxruntime refusal = {.functions = *ort};
    lochi_ort_env *env;
    loch_status status = lochi_ort_check(&refusal, ort->create_env(LOCHI_ORT_WARNING, "loch", &env));
    if (status != LOCH_OK) return status;
    pthread_mutex_lock(&lock);
    *out = loch_onnxruntime_get(env);
    const int is_new = *out == NULL;
    if (is_new) status = loch_onnxruntime_create(base, env, NULL, out);
    if (is_new && status == LOCH_OK)
        (*out)->owns_env = 1;
    else
        ort->release_env(env);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Reads a value of the session options; an empty text if it is not set. */
static loch_status ops_read(const loch_onnxruntime *runtime, const lochi_ort_session_options *options, const char *key,
                            char *value, size_t bytes)
{
    int is_set = 0;
    *value = 0;
    loch_status status = lochi_ort_check(runtime, runtime->functions.has_config(options, key, &is_set));
    if (status == LOCH_OK && is_set)
        status = lochi_ort_check(runtime, runtime->functions.get_config(options, key, value, &bytes));
    return status;
}

static loch_status ops_read_limit(const char *text, size_t *out)
{
    char *end;
    errno = 0;
    const unsigned long long bytes = strtoull(text, &end, 10);
    *out = (size_t)bytes;
    if (*text && (*text < '0' || *text > '9' || *end || errno || bytes > SIZE_MAX))
        return loch_error_set(LOCH_E_INVALID, NULL, 0, KEY_LIMIT " is a number of bytes, not \"%s\"", text);
    return LOCH_OK;
}

static loch_status ops_register(lochi_ort_session_options *options, const struct OrtApiBase *base,
                                const lochi_ort_functions *ort)
{
    loch_onnxruntime *runtime;
    lochi_ort_session *session;
    size_t limit_bytes = 0;
    char name[2 * LOCHI_ORT_NAME_MAX], limit[32];
    loch_status status = ops_require(base, ort, &runtime);
    if (status == LOCH_OK) status = ops_read(runtime, options, KEY_NAME, name, sizeof name);
    if (status == LOCH_OK) status = ops_read(runtime, options, KEY_LIMIT, limit, sizeof limit);
    if (status == LOCH_OK) status = ops_read_limit(limit, &limit_bytes);
    if (status == LOCH_OK)
        status = lochi_ort_require_session(runtime, *name ? name : "onnxruntime", limit_bytes, &session);
    if (status != LOCH_OK) return status;
    /* The thread may be between begin and end: then the name that it gave there stays. */
    if (pthread_mutex_lock(&runtime->lock) == 0) {
        status = lochi_ort_use_session(runtime, session);
        pthread_mutex_unlock(&runtime->lock);
    }
    return status == LOCH_OK ? lochi_ort_check(runtime, ort->add_config(options, "session.use_env_allocators", "1"))
                             : status;
}

/* Called by ONNX Runtime when the library is named in the options of a session: sessions with these options have their
 * memory from Loch, and so has the next session, whichever thread creates it, its memory under the name of
 * "loch.session". */
lochi_ort_status *RegisterCustomOps(lochi_ort_session_options *options, const struct OrtApiBase *base)
{
    lochi_ort_functions ort;
    uint32_t version;
    const lochi_ort_base *functions = (const lochi_ort_base *)base;
    if (lochi_ort_read_functions(functions, &ort, &version) != LOCH_OK) {
        lochi_ort_status *(*create_status)(int, const char *);
        const void *const *table = functions->get_api(1); /* the first function is there since version 1 */
        __builtin_memcpy(&create_status, table, sizeof create_status);
        return create_status(LOCHI_ORT_FAIL, loch_error_get()->sentence);
    }
    if (ops_register(options, base, &ort) == LOCH_OK) return NULL;
    return ort.create_status(LOCHI_ORT_FAIL, loch_error_get()->sentence);
}

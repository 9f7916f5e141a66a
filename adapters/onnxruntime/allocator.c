/* SPDX-License-Identifier: MIT */
/* The allocators that ONNX Runtime calls: one for each name of sessions, all on one pool. Each call is a call of Loch
 * with the tag of the session; all figures are the pool's. */
#include "runtime.h"

#include <inttypes.h>
#include <raise.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Alignment that ONNX Runtime's kernels rely on. */
#define ALIGNMENT_BYTES 64

/* Kernels for arm64 read up to 30 bytes behind a block. */
#ifdef __aarch64__
#define OVERRUN_BYTES 32
#else
#define OVERRUN_BYTES 0
#endif

/* Not inlined, so that the functions that call it have small frames. */
__attribute__((noinline, cold)) static void session_raise(const lochi_ort_session *session)
{
    char text[LOCH_ERROR_SENTENCE_MAX + LOCHI_ORT_NAME_MAX + 64];
    snprintf(text, sizeof text, "Loch has no memory for session '%s': %s", session->name, loch_error_get()->sentence);
    lochi_raise(text);
    fprintf(stderr, "%s\n", text);
}

static void *session_take(lochi_ort_session *session, size_t bytes, loch_tag tag)
{
    void *block = NULL;
    const loch_request request = {.size = sizeof request,
                                  .bytes = bytes && bytes <= SIZE_MAX - OVERRUN_BYTES ? bytes + OVERRUN_BYTES : bytes,
                                  .alignment = ALIGNMENT_BYTES,
                                  .tag = tag};
    if (loch_allocator_alloc(session->allocator, &request, &block) != LOCH_OK) session_raise(session);
    return block;
}

static void *session_alloc(lochi_ort_allocator *self, size_t bytes)
{
    lochi_ort_session *session = (lochi_ort_session *)self;
    return session_take(session, bytes, session->run);
}

/* For weights and other memory that lives as long as the session. */
static void *session_reserve(lochi_ort_allocator *self, size_t bytes)
{
    lochi_ort_session *session = (lochi_ort_session *)self;
    return session_take(session, bytes, session->weights);
}

static void session_free(lochi_ort_allocator *self, void *address)
{
    const lochi_ort_session *session = (const lochi_ort_session *)self;
    if (loch_free(session->allocator, address) != LOCH_OK)
        fprintf(stderr, "Loch could not free %p of session '%s': %s\n", address, session->name,
                loch_error_get()->sentence);
}

static const lochi_ort_memory_info *session_info(const lochi_ort_allocator *self)
{
    return ((const lochi_ort_session *)self)->runtime->info;
}

/* --- statistics --- */

loch_status lochi_ort_session_get_stats(const lochi_ort_session *session, loch_stats *run, loch_stats *weights)
{
    *run = *weights = (loch_stats){.size = sizeof *run};
    loch_status status = loch_allocator_get_tag_stats(session->runtime->pool, session->run, run);
    if (status == LOCH_OK) status = loch_allocator_get_tag_stats(session->runtime->pool, session->weights, weights);
    if (status == LOCH_OK && session->is_limited) {
        loch_stats limited = {.size = sizeof limited};
        status = loch_allocator_get_stats(session->allocator, &limited);
        run->limit_bytes = weights->limit_bytes = limited.limit_bytes;
        run->failures = limited.failures; /* those of both kinds: the limit refuses before a tag counts */
    }
    return status;
}

static void session_add_pair(const lochi_ort_session *session, lochi_ort_pairs *pairs, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    session->runtime->functions.add_pair(pairs, key, text);
}

/* GetStats, with the keys that ONNX Runtime knows. TotalAllocated is what the pool of all sessions holds. */
static lochi_ort_status *session_get_stats(const lochi_ort_allocator *self, lochi_ort_pairs **out)
{
    const lochi_ort_session *session = (const lochi_ort_session *)self;
    const lochi_ort_functions *ort = &session->runtime->functions;
    loch_stats run, weights, pool = {.size = sizeof pool};
    if (lochi_ort_session_get_stats(session, &run, &weights) != LOCH_OK ||
        loch_allocator_get_stats(session->runtime->pool, &pool) != LOCH_OK)
        return ort->create_status(LOCHI_ORT_FAIL, loch_error_get()->sentence);
    ort->create_pairs(out);
    if (run.limit_bytes)
        session_add_pair(session, *out, "Limit", run.limit_bytes);
    else
        ort->add_pair(*out, "Limit", "-1");
    session_add_pair(session, *out, "InUse", run.requested_bytes + weights.requested_bytes);
    session_add_pair(session, *out, "TotalAllocated", pool.reserved_bytes);
    session_add_pair(session, *out, "MaxInUse", run.peak_requested_bytes + weights.peak_requested_bytes);
    session_add_pair(session, *out, "NumAllocs", run.allocs + weights.allocs);
    session_add_pair(session, *out, "NumReserves", weights.allocs);
    session_add_pair(session, *out, "MaxAllocSize",
                     run.largest_bytes > weights.largest_bytes ? run.largest_bytes : weights.largest_bytes);
    return NULL;
}

/* --- creation --- */

static loch_status session_read_name(lochi_ort_session *session, const char *name)
{
    if (!name || !*name || strlen(name) >= sizeof session->name)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "a name of a session has 1 to %zu characters",
                              sizeof session->name - 1);
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == '\\')
            return loch_error_set(LOCH_E_INVALID, NULL, 0,
                                  "a name of a session has no quotation mark, backslash or control character");
    strcpy(session->name, name);
    return LOCH_OK;
}

static loch_status session_create_tags(lochi_ort_session *session)
{
    char weights[LOCH_TAG_NAME_MAX];
    snprintf(weights, sizeof weights, "%s weights", session->name);
    const loch_status status = loch_tag_create(session->name, &session->run);
    return status == LOCH_OK ? loch_tag_create(weights, &session->weights) : status;
}

static loch_status session_create_limit(lochi_ort_session *session, size_t limit_bytes)
{
    if (!limit_bytes) {
        session->allocator = loch_allocator_retain(session->runtime->pool);
        return LOCH_OK;
    }
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = limit_bytes};
    session->is_limited = 1;
    return loch_limit_create(session->runtime->pool, session->name, &options, &session->allocator);
}

loch_status lochi_ort_session_create(loch_onnxruntime *runtime, const char *name, size_t limit_bytes,
                                     lochi_ort_session **out)
{
    *out = NULL;
    lochi_ort_session *session = calloc(1, sizeof *session);
    if (!session) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a session's allocator");
    session->runtime = runtime;
    session->ort = (lochi_ort_allocator){
        .version = runtime->version,
        .alloc = session_alloc,
        .free = session_free,
        .info = session_info,
        .reserve = session_reserve,
        .get_stats = session_get_stats,
    };
    loch_status status = session_read_name(session, name);
    if (status == LOCH_OK) status = session_create_tags(session);
    if (status == LOCH_OK) status = session_create_limit(session, limit_bytes);
    if (status == LOCH_OK)
        *out = session;
    else
        lochi_ort_session_destroy(session);
    return status;
}

void lochi_ort_session_destroy(lochi_ort_session *session)
{
    if (!session) return;
    loch_allocator_release(session->allocator);
    free(session);
}

/* SPDX-License-Identifier: MIT */
/* The memory of a model from loading to sleeping. Weights are loaded among scratch memory, then packed, frozen and
 * protected. Requests are served from child pools, each with a session that frees what the request leaves. A fragmented
 * pool is compacted. The whole model sleeps while another model uses the memory, and wakes with its weights at their
 * addresses. Every step checks the weights. */
#include <loch/loch.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define LAYERS 12
#define LAYER_BYTES (3 * MIB)
#define LIMIT (128 * MIB)

typedef struct model {
    loch_device *device;
    loch_allocator *pool;
    loch_tag tag;
    loch_buffer *layers[LAYERS];
} model;

static loch_status load(model *m)
{
    const loch_request request = {.size = sizeof request, .tag = m->tag, .flags = LOCH_ALLOC_MOVABLE};
    for (uint32_t i = 0; i < LAYERS; i++) {
        LOCH_AUTO(buffer)
        scratch = NULL; /* scratch memory of a loader: freed before the next layer, and until then between the layers */
        LOCH_AUTO(buffer) file = NULL;
        LOCH_RETURN(loch_buffer_create(m->pool, LAYER_BYTES / 2, NULL, &scratch));
        LOCH_RETURN(loch_buffer_create(m->pool, LAYER_BYTES + i * MIB / 4, NULL, &file));
        LOCH_RETURN(loch_buffer_create(m->pool, LAYER_BYTES, &request, &m->layers[i]));
        LOCH_RETURN(loch_buffer_fill(m->layers[i], &i, sizeof i, NULL));
    }
    return LOCH_OK;
}

static loch_status check(model *m, const char *when)
{
    uint32_t *seen = malloc(LAYER_BYTES);
    loch_status status = seen ? LOCH_OK : LOCH_E_HOST_MEMORY;
    for (uint32_t i = 0; i < LAYERS && status == LOCH_OK; i++) {
        void *address;
        status = loch_buffer_pin(m->layers[i], NULL, &address);
        if (status == LOCH_OK) status = loch_copy(seen, address, LAYER_BYTES);
        if (status == LOCH_OK) status = loch_buffer_unpin(m->layers[i], NULL);
        for (size_t word = 0; word < LAYER_BYTES / 4 && status == LOCH_OK; word++)
            if (seen[word] != i) status = loch_error_set(LOCH_E_CORRUPT, NULL, 0, "layer %u differs %s", i, when);
    }
    free(seen);
    return status;
}

static loch_status freeze(model *m)
{
    const loch_freeze_options options = {.size = sizeof options, .tag = m->tag, .writes = LOCH_FREEZE_PROTECTED};
    loch_freeze_report report = {.size = sizeof report};
    LOCH_RETURN(loch_pool_freeze(m->pool, &options, &report));
    printf("frozen: %zu blocks, %zu MiB; %zu moved to be together; %zu MiB are protected from writes\n", report.blocks,
           report.bytes / MIB, report.moves, report.protected_bytes / MIB);
    return check(m, "after freezing");
}

/* Serves a request from a part of the pool, in a session. The answer is promoted out of the session; the end of the
 * session frees the rest. */
static loch_status serve(model *m, size_t bytes, void **answer, loch_allocator **from)
{
    const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_QUOTA, .limit_bytes = 32 * MIB};
    loch_session *session;
    LOCH_RETURN(loch_pool_create_child(m->pool, "request", &options, from));
    LOCH_RETURN(loch_session_begin(*from, "request", &session));
    void *step;
    loch_status status = loch_alloc(loch_session_get_allocator(session), bytes, answer);
    for (size_t i = 0; i < 6 && status == LOCH_OK; i++) /* key/value cache and activations: not freed one by one */
        status = loch_alloc(loch_session_get_allocator(session), bytes * 4, &step);
    if (status == LOCH_OK) status = loch_session_promote(session, *answer);
    size_t freed = 0;
    const loch_status ended = loch_session_end(session, NULL, &freed);
    printf("a request has ended: %zu KiB went with it, its answer stays\n", freed / 1024);
    return status == LOCH_OK ? ended : status;
}

/* Allocates long-lived buffers among short-lived ones, so that free memory is in pieces until one large block needs
 * it. */
static loch_status fragment_and_compact(model *m)
{
    loch_buffer *kept[64] = {NULL};
    const loch_request request = {.size = sizeof request, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    size_t count = 0;
    while (count < 64 && loch_buffer_create(m->pool, MIB + count * 4096, &request, &kept[count]) == LOCH_OK)
        count++;
    for (size_t i = 0; i < count; i += 2)
        loch_buffer_clear(&kept[i]);
    const loch_compact_options goal = {.size = sizeof goal, .contiguous_bytes = 24 * MIB};
    loch_compact_report report = {.size = sizeof report};
    loch_status status = loch_pool_plan_compact(m->pool, &goal, NULL, NULL, &report); /* plans only; no block moves */
    if (status == LOCH_OK) printf("planned: %zu moves of %zu MiB in all\n", report.moves, report.moved_bytes / MIB);
    if (status == LOCH_OK) status = loch_pool_compact(m->pool, &goal, &report);
    for (size_t i = 1; i < count; i += 2)
        loch_buffer_release(kept[i]);
    return status;
}

/* Another model uses the memory meanwhile. */
static loch_status sleep_and_wake(model *m)
{
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_HOST};
    size_t released, restored;
    LOCH_RETURN(loch_pool_sleep(m->pool, &options, &released));
    loch_pool_info info = {.size = sizeof info};
    LOCH_RETURN(loch_pool_get_info(m->pool, &info));
    printf("asleep: %zu MiB went back, %zu MiB are held\n", released / MIB, info.reserved_bytes / MIB);
    LOCH_RETURN(loch_pool_wake(m->pool, &restored));
    printf("awake: %zu MiB of weights are where they were\n", restored / MIB);
    return check(m, "after sleeping");
}

static loch_status run(model *m)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    loch_allocator *requests[3] = {NULL};
    void *answers[3] = {NULL};
    LOCH_RETURN(loch_device_open("cpu", &m->device));
    LOCH_RETURN(loch_pool_create(m->device, "model", &options, &m->pool));
    LOCH_RETURN(loch_tag_create("weights", &m->tag));
    LOCH_RETURN(load(m));
    LOCH_RETURN(freeze(m));
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < 3 && status == LOCH_OK; i++)
        status = serve(m, 64 * 1024 * (i + 1), &answers[i], &requests[i]);
    for (size_t i = 0; i < 3; i++) {
        if (answers[i] && status == LOCH_OK) status = loch_free(requests[i], answers[i]);
        loch_allocator_release(requests[i]);
    }
    if (status == LOCH_OK) status = fragment_and_compact(m);
    return status == LOCH_OK ? sleep_and_wake(m) : status;
}

int main(void)
{
    model m = {NULL, NULL, 0, {NULL}};
    const loch_status status = run(&m);
    if (status != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);
    for (size_t i = 0; i < LAYERS; i++)
        loch_buffer_release(m.layers[i]); /* a free returns the memory, protected or not */
    loch_allocator_release(m.pool);
    loch_device_release(m.device);
    return status == LOCH_OK ? 0 : 1;
}

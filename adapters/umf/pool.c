/* SPDX-License-Identifier: MIT */
/* The functions of a UMF pool on a Loch pool.
 *
 * Each function is one call of Loch: UMF's rules are those of malloc, and differ in two points. A request of 0 bytes
 * returns a block. A pool may be destroyed with live blocks: they are freed then, because their memory goes with the
 * provider. Errors of allocations are kept for each thread, as UMF asks; the sentence is in loch_error_get.
 *
 * The usable size of a block is its requested size. More bytes may be there, but a realloc that moves the block would
 * not copy them. */
#include "loch_umf.h"
#include "control.h"
#include "source.h"
#include <loch/scope.h>
#include <stdlib.h>
#include <string.h>

#define POOL_NAME_MAX 64

typedef struct umf_pool {
    loch_allocator *allocator;        /* the Loch pool */
    lochi_umf_source *source;         /* NULL if the memory comes from the device */
    loch_allocator *source_allocator; /* NULL if the memory comes from the device */
    loch_device *device;
    int is_queued; /* fills and copies are queued on a stream: the host waits for them */
    char name[POOL_NAME_MAX];
} umf_pool;

static _Thread_local lochi_umf_result pool_error;

/* Keeps the error of an allocation and returns NULL. If the pool found no memory, it has asked the provider on this
 * thread, whose result is more exact. */
static void *pool_refuse(loch_status status)
{
    const lochi_umf_result refused = lochi_umf_source_take_error();
    const int is_refused =
        refused != LOCHI_UMF_SUCCESS && (status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_FRAGMENTED);
    pool_error = is_refused ? refused : lochi_umf_result_of(status);
    return NULL;
}

/* --- create and destroy --- */

static void pool_delete(umf_pool *pool)
{
    loch_allocator_release(pool->allocator);
    loch_allocator_release(pool->source_allocator);
    loch_device_release(pool->device);
    free(pool);
}

static loch_status pool_set_name(umf_pool *pool, const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t length = name ? strlen(name) : 0;
    if (name && (!length || length >= POOL_NAME_MAX || strspn(name, allowed) != length))
        return loch_error_set(LOCH_E_INVALID, NULL, 0,
                              "the name of a UMF pool has 1 to 63 letters, digits, '_' or '-', not \"%.70s\"", name);
    memcpy(pool->name, name ? name : "loch", name ? length + 1 : sizeof "loch");
    return LOCH_OK;
}

/* Copies options of this version of Loch or of an older one, whose further members are zero. */
static loch_status pool_copy_options(const void *given, size_t size, void *out, const char *type)
{
    size_t given_size;
    memcpy(&given_size, given, sizeof given_size);
    if (given_size < sizeof given_size || given_size > size)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "%s has %zu bytes, its size member says %zu", type, size,
                              given_size);
    memcpy(out, given, given_size);
    memcpy(out, &size, sizeof size);
    return LOCH_OK;
}

static loch_status pool_read_options(const void *params, loch_umf_options *out, loch_pool_options *pool)
{
    *out = (loch_umf_options){.size = sizeof *out};
    *pool = (loch_pool_options){.size = sizeof *pool};
    loch_status status = params ? pool_copy_options(params, sizeof *out, out, "loch_umf_options") : LOCH_OK;
    if (status == LOCH_OK && out->pool) status = pool_copy_options(out->pool, sizeof *pool, pool, "loch_pool_options");
    if (status != LOCH_OK) return status;
    if (out->source != LOCH_UMF_PROVIDER && out->source != LOCH_UMF_DEVICE)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "%d is no loch_umf_source", (int)out->source);
    if (pool->source)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "the options of a UMF pool have a source of their own");
    return LOCH_OK;
}

static loch_status pool_make(umf_pool *pool, lochi_umf_provider *provider, const void *params)
{
    loch_umf_options options;
    loch_pool_options inner;
    loch_device_properties properties = {.size = sizeof properties};
    loch_status status = pool_read_options(params, &options, &inner);
    if (status == LOCH_OK) status = pool_set_name(pool, options.name);
    if (status == LOCH_OK) status = loch_device_open(options.device ? options.device : "cpu", &pool->device);
    if (status == LOCH_OK) status = loch_device_get_properties(pool->device, &properties);
    pool->is_queued = strcmp(properties.driver, "cpu") != 0;
    if (status == LOCH_OK && options.source == LOCH_UMF_PROVIDER)
        status = lochi_umf_source_create(pool->device, provider, &pool->source, &pool->source_allocator);
    inner.source = pool->source_allocator;
    if (status == LOCH_OK) status = loch_pool_create(pool->device, pool->name, &inner, &pool->allocator);
    return status;
}

static lochi_umf_result pool_initialize(lochi_umf_provider *provider, const void *params, void **out)
{
    if (!out) return LOCHI_UMF_INVALID_ARGUMENT;
    *out = NULL;
    umf_pool *pool = provider ? calloc(1, sizeof *pool) : NULL;
    if (!pool) return provider ? LOCHI_UMF_OUT_OF_MEMORY : LOCHI_UMF_INVALID_ARGUMENT;
    const loch_status status = pool_make(pool, provider, params);
    if (status != LOCH_OK) {
        pool_delete(pool);
        return lochi_umf_result_of(status);
    }
    *out = pool;
    return LOCHI_UMF_SUCCESS;
}

/* Live blocks that a walk has found. A fixed number, so that the end of a pool needs no memory. */
typedef struct pool_found {
    size_t count;
    void *blocks[256];
} pool_found;

static loch_status pool_note_block(const loch_block *block, void *user)
{
    pool_found *found = user;
    if (found->count == sizeof found->blocks / sizeof *found->blocks) return LOCH_E_BUSY; /* more than fit */
    found->blocks[found->count++] = block->address;
    return LOCH_OK;
}

/* Frees the blocks that the program left. */
static void pool_free_all(loch_allocator *allocator)
{
    size_t freed = 1;
    while (freed) {
        pool_found found = {.count = 0};
        const loch_status walked = loch_allocator_walk(allocator, pool_note_block, &found);
        (void)walked; /* E_BUSY: the next round finds the others */
        freed = 0;
        for (size_t i = 0; i < found.count; i++)
            freed += loch_free(allocator, found.blocks[i]) == LOCH_OK;
    }
}

static lochi_umf_result pool_finalize(void *self)
{
    umf_pool *pool = self;
    if (!pool) return LOCHI_UMF_INVALID_ARGUMENT;
    pool_free_all(pool->allocator);
    loch_allocator_clear(&pool->allocator);
    const size_t kept_bytes = pool->source ? lochi_umf_source_close(pool->source) : 0;
    pool_delete(pool);
    return kept_bytes ? LOCHI_UMF_UNKNOWN : LOCHI_UMF_SUCCESS;
}

/* --- blocks --- */

static void *pool_malloc(void *self, size_t size)
{
    const umf_pool *pool = self;
    void *block;
    const loch_status status = loch_alloc(pool->allocator, size ? size : 1, &block);
    return status == LOCH_OK ? block : pool_refuse(status);
}

/* Waits for work that Loch queued on a new block, and frees the block if the device fails. */
static void *pool_wait(const umf_pool *pool, void *block)
{
    const loch_status status = pool->is_queued ? loch_device_sync(pool->device) : LOCH_OK;
    if (status == LOCH_OK) return block;
    const loch_status freed = loch_free(pool->allocator, block);
    (void)freed; /* the first failure counts */
    return pool_refuse(status);
}

static void *pool_calloc(void *self, size_t count, size_t size)
{
    const umf_pool *pool = self;
    const int is_empty = !count || !size;
    const loch_request request = {.size = sizeof request, .flags = LOCH_ALLOC_ZEROED};
    void *block;
    const loch_status status =
        loch_alloc_array(pool->allocator, is_empty ? 1 : count, is_empty ? 1 : size, &request, &block);
    return status == LOCH_OK ? pool_wait(pool, block) : pool_refuse(status);
}

static void *pool_realloc(void *self, void *old, size_t size)
{
    const umf_pool *pool = self;
    if (!old) return pool_malloc(self, size);
    void *block;
    const loch_status status =
        size ? loch_allocator_realloc(pool->allocator, old, size, NULL, &block) : loch_free(pool->allocator, old);
    if (status != LOCH_OK) return pool_refuse(status);
    if (!size) return NULL;
    const loch_status synced = pool->is_queued ? loch_device_sync(pool->device) : LOCH_OK;
    (void)synced; /* the block has moved even if the device has failed since */
    return block;
}

static void *pool_aligned_malloc(void *self, size_t size, size_t alignment)
{
    const umf_pool *pool = self;
    if (alignment & (alignment - 1)) {
        pool_error = LOCHI_UMF_INVALID_ALIGNMENT;
        return NULL;
    }
    const loch_request request = {.size = sizeof request, .bytes = size ? size : 1, .alignment = alignment};
    void *block;
    const loch_status status = loch_allocator_alloc(pool->allocator, &request, &block);
    return status == LOCH_OK ? block : pool_refuse(status);
}

static lochi_umf_result pool_get_size(void *self, const void *address, size_t *out)
{
    const umf_pool *pool = self;
    loch_block block = {.size = offsetof(loch_block, id)}; /* the sizes alone: no lock */
    const loch_status status = address ? loch_allocator_find(pool->allocator, address, &block) : LOCH_OK;
    if (out) *out = status == LOCH_OK && address ? block.requested_bytes : 0;
    return lochi_umf_result_of(status);
}

static lochi_umf_result pool_free(void *self, void *block)
{
    const umf_pool *pool = self;
    return lochi_umf_result_of(loch_free(pool->allocator, block));
}

/* --- the rest --- */

static lochi_umf_result pool_get_last_error(void *self)
{
    (void)self;
    return pool_error;
}

static lochi_umf_result pool_get_name(void *self, const char **name)
{
    const umf_pool *pool = self;
    if (name) *name = pool ? pool->name : "loch";
    return LOCHI_UMF_SUCCESS;
}

static lochi_umf_result pool_control(void *self, lochi_umf_origin origin, const char *path, void *value, size_t size,
                                     lochi_umf_query query, va_list arguments)
{
    (void)arguments;
    const umf_pool *pool = self;
    return lochi_umf_control(pool ? pool->allocator : NULL, origin, path, value, size, query);
}

static lochi_umf_result pool_trim(void *self, size_t keep_bytes)
{
    const umf_pool *pool = self;
    return lochi_umf_result_of(loch_allocator_trim(pool->allocator, keep_bytes, NULL));
}

const struct umf_memory_pool_ops_t *loch_umf_pool_ops(void)
{
    static const struct umf_memory_pool_ops_t ops = {.version = LOCHI_UMF_TABLE_VERSION,
                                                     .initialize = pool_initialize,
                                                     .finalize = pool_finalize,
                                                     .malloc = pool_malloc,
                                                     .calloc = pool_calloc,
                                                     .realloc = pool_realloc,
                                                     .aligned_malloc = pool_aligned_malloc,
                                                     .get_size = pool_get_size,
                                                     .free = pool_free,
                                                     .get_last_error = pool_get_last_error,
                                                     .get_name = pool_get_name,
                                                     .control = pool_control,
                                                     .trim = pool_trim};
    return &ops;
}

/* SPDX-License-Identifier: MIT */
/* Allocators as users write them. The plain ones keep only a count. The full one records every block in an array that
 * it searches, and the latest freed addresses. Their own records come from libc and never fail. */
#include "user_allocators.h"
#include <loch/wrapper.h>

#include <loch/copy.h>
#include <loch/raw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define USER_ROUND 64
#define USER_FREED_MAX 512
#define USER_TAGS_MAX 32

static _Atomic uint64_t user_alive, user_wrong;

uint64_t test_user_alive(void)
{
    return atomic_load(&user_alive);
}

uint64_t test_user_wrong(void)
{
    return atomic_load(&user_wrong);
}

static void user_expect(bool condition)
{
    if (!condition) atomic_fetch_add(&user_wrong, 1);
}

/* --- memory --- */

static loch_status user_take(loch_device *device, size_t bytes, size_t alignment, void **out)
{
    if (!loch_device_can(device, LOCH_CAN_HOST_ACCESS))
        return loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, alignment, out);
    *out = NULL;
    if (posix_memalign(out, alignment < 16 ? 16 : alignment, bytes ? bytes : 1) == 0) return LOCH_OK;
    return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "libc has no %zu bytes", bytes);
}

/* Nothing uses the block. */
static loch_status user_drop(loch_device *device, void *address)
{
    if (!loch_device_can(device, LOCH_CAN_HOST_ACCESS)) return loch_raw_free(address);
    free(address);
    return LOCH_OK;
}

static loch_status user_return(loch_device *device, void *address)
{
    const loch_status status = loch_device_sync(device); /* the simplest way to be behind every stream */
    return status == LOCH_OK || status == LOCH_E_DEVICE_LOST ? user_drop(device, address) : status;
}

static void user_check_request(const loch_request *request, bool allocates_empty)
{
    user_expect(request->size == sizeof *request && request->stream != NULL);
    user_expect((request->bytes || allocates_empty) && !(request->alignment & (request->alignment - 1)));
}

/* --- three slots --- */

typedef struct user_plain {
    loch_device *device; /* borrowed: the allocator keeps it */
    bool is_unsafe;
    atomic_int inside;
    uint64_t calls; /* of an unsafe one: not atomic, so that thread sanitizers see two threads in it */
    atomic_size_t bytes, blocks;
} user_plain;

static void plain_enter(user_plain *self)
{
    const int others = atomic_fetch_add_explicit(&self->inside, 1, memory_order_relaxed);
    if (!self->is_unsafe) return;
    user_expect(others == 0);
    self->calls++;
}

static void plain_leave(user_plain *self)
{
    atomic_fetch_sub_explicit(&self->inside, 1, memory_order_relaxed);
}

static loch_status plain_take(user_plain *self, const loch_request *request, void **out)
{
    if (atomic_fetch_add(&self->bytes, request->bytes) + request->bytes > TEST_USER_CAPACITY) {
        atomic_fetch_sub(&self->bytes, request->bytes);
        return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "the plain allocator has no %zu bytes left",
                              request->bytes);
    }
    const loch_status status = user_take(self->device, request->bytes, request->alignment, out);
    if (status == LOCH_OK)
        atomic_fetch_add(&self->blocks, 1);
    else
        atomic_fetch_sub(&self->bytes, request->bytes);
    return status;
}

static loch_status plain_alloc(void *user, const loch_request *request, void **out)
{
    user_plain *self = user;
    user_check_request(request, false);
    plain_enter(self);
    const loch_status status = plain_take(self, request, out);
    plain_leave(self);
    return status;
}

static loch_status plain_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    user_plain *self = user;
    (void)stream;
    plain_enter(self);
    user_expect(address && bytes && atomic_load(&self->blocks));
    const loch_status status = user_return(self->device, address);
    if (status == LOCH_OK) {
        atomic_fetch_sub(&self->bytes, bytes);
        atomic_fetch_sub(&self->blocks, 1);
    }
    plain_leave(self);
    return status;
}

static void plain_destroy(void *user)
{
    user_plain *self = user;
    user_expect(!atomic_load(&self->blocks) && !atomic_load(&self->bytes) && !atomic_load(&self->inside));
    free(self);
    atomic_fetch_sub(&user_alive, 1);
}

static const loch_allocator_ops plain_ops = {
    /* as a program that was compiled with only the first slots would pass it */
    .size = offsetof(loch_allocator_ops, destroy) + sizeof plain_ops.destroy,
    .kind = "user-plain",
    .traits = LOCH_TRAIT_THREAD_SAFE,
    .alloc = plain_alloc,
    .free = plain_free,
    .destroy = plain_destroy,
};

static const loch_allocator_ops unsafe_ops = {
    .size = sizeof unsafe_ops,
    .kind = "user-unsafe",
    .alloc = plain_alloc,
    .free = plain_free,
    .destroy = plain_destroy,
};

/* --- every slot --- */

typedef struct user_record {
    loch_block block;
    bool is_live;
} user_record;

typedef struct user_tag {
    loch_tag tag;
    loch_stats stats;
} user_tag;

typedef struct user_full {
    loch_device *device;
    pthread_mutex_t mutex;
    user_record *records;
    size_t count, capacity;
    uint64_t last_id;
    loch_stats stats;
    user_tag tags[USER_TAGS_MAX];
    size_t tags_count;
} user_full;

static user_record *full_find(user_full *self, const void *address)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->records[i].block.address == address) return &self->records[i];
    return NULL;
}

/* Finds the live record at an address, or the reason why it is missing. */
static loch_status full_look(user_full *self, const void *address, user_record **out)
{
    const char *at = address;
    *out = full_find(self, address);
    if (*out && (*out)->is_live) return LOCH_OK;
    for (size_t i = 0; i < self->count; i++) {
        const user_record *record = &self->records[i];
        const char *start = record->block.address;
        if (record->is_live && at > start && at < start + record->block.allocated_bytes)
            return loch_error_set(LOCH_E_INTERIOR, NULL, 0, "%p lies inside a block", address);
    }
    if (*out) return loch_error_set(LOCH_E_DOUBLE_FREE, NULL, 0, "%p was freed before", address);
    return loch_error_set(LOCH_E_FOREIGN, NULL, 0, "%p is not mine", address);
}

static user_record *full_new_record(user_full *self, const void *address)
{
    user_record *record = full_find(self, address);
    if (record) return record;
    if (self->count - (size_t)self->stats.blocks > USER_FREED_MAX) { /* forgets the oldest of the freed ones */
        size_t kept = 0, forgotten = 0;
        for (size_t i = 0; i < self->count; i++)
            if (self->records[i].is_live || forgotten++ >= USER_FREED_MAX / 2) self->records[kept++] = self->records[i];
        self->count = kept;
    }
    if (self->count == self->capacity) {
        self->capacity = self->capacity ? 2 * self->capacity : 64;
        self->records = realloc(self->records, self->capacity * sizeof *self->records);
        if (!self->records) abort();
    }
    return &self->records[self->count++];
}

static void full_raise(uint64_t *peak, uint64_t value)
{
    if (value > *peak) *peak = value;
}

static void full_book(loch_stats *stats, const loch_block *block, int sign)
{
    stats->blocks += (uint64_t)(int64_t)sign;
    stats->requested_bytes += (uint64_t)sign * block->requested_bytes;
    stats->allocated_bytes += (uint64_t)sign * block->allocated_bytes;
    stats->reserved_bytes = stats->allocated_bytes;
    full_raise(&stats->peak_blocks, stats->blocks);
    full_raise(&stats->peak_requested_bytes, stats->requested_bytes);
    full_raise(&stats->peak_allocated_bytes, stats->allocated_bytes);
    full_raise(&stats->peak_reserved_bytes, stats->reserved_bytes);
    if (sign > 0) {
        stats->allocs++;
        full_raise(&stats->largest_bytes, block->requested_bytes);
    } else {
        stats->frees++;
    }
}

static void full_book_change(loch_stats *stats, const loch_block *block, size_t bytes)
{
    stats->requested_bytes += bytes - block->requested_bytes;
    full_raise(&stats->peak_requested_bytes, stats->requested_bytes);
    full_raise(&stats->largest_bytes, bytes);
}

static loch_stats *full_tag(user_full *self, loch_tag tag)
{
    for (size_t i = 0; i < self->tags_count; i++)
        if (self->tags[i].tag == tag) return &self->tags[i].stats;
    if (self->tags_count == USER_TAGS_MAX) return NULL;
    self->tags[self->tags_count] = (user_tag){.tag = tag};
    return &self->tags[self->tags_count++].stats;
}

static void full_book_all(user_full *self, const loch_block *block, int sign)
{
    full_book(&self->stats, block, sign);
    loch_stats *tag = block->tag ? full_tag(self, block->tag) : NULL;
    if (tag) full_book(tag, block, sign);
}

static size_t full_round(size_t bytes)
{
    return (bytes + USER_ROUND) & ~(size_t)(USER_ROUND - 1);
}

static loch_status full_take(user_full *self, const loch_request *request, void **out)
{
    const size_t taken = full_round(request->bytes);
    if (self->stats.requested_bytes + request->bytes > TEST_USER_CAPACITY)
        return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "the full allocator has no %zu bytes left",
                              request->bytes);
    loch_status status = user_take(self->device, taken, request->alignment, out);
    if (status != LOCH_OK) return status;
    if (request->flags & LOCH_ALLOC_ZEROED) status = loch_fill_on(*out, taken, "", 1, request->stream);
    if (status != LOCH_OK) {
        const loch_error why = *loch_error_get();
        user_expect(user_drop(self->device, *out) == LOCH_OK);
        *out = NULL;
        return loch_error_set(why.status, NULL, 0, "%s", why.sentence);
    }
    user_record *record = full_new_record(self, *out);
    record->is_live = true;
    record->block = (loch_block){.address = *out,
                                 .requested_bytes = request->bytes,
                                 .allocated_bytes = taken,
                                 .id = ++self->last_id,
                                 .tag = request->tag,
                                 .stream_id = loch_stream_get_id(request->stream)};
    full_book_all(self, &record->block, 1);
    return LOCH_OK;
}

static loch_status full_alloc(void *user, const loch_request *request, void **out)
{
    user_full *self = user;
    user_check_request(request, true);
    pthread_mutex_lock(&self->mutex);
    const loch_status status = full_take(self, request, out);
    self->stats.failures += status != LOCH_OK;
    pthread_mutex_unlock(&self->mutex);
    return status;
}

static loch_status full_return(user_full *self, void *address, size_t bytes)
{
    user_record *record;
    loch_status status = full_look(self, address, &record);
    if (status != LOCH_OK) return status;
    if (bytes && bytes != record->block.requested_bytes)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "the block has another size than %zu", bytes);
    status = user_return(self->device, address);
    if (status != LOCH_OK) return status;
    record->is_live = false;
    full_book_all(self, &record->block, -1);
    return LOCH_OK;
}

static loch_status full_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    user_full *self = user;
    (void)stream;
    pthread_mutex_lock(&self->mutex);
    const loch_status status = full_return(self, address, bytes);
    pthread_mutex_unlock(&self->mutex);
    return status;
}

static void full_destroy(void *user)
{
    user_full *self = user;
    user_expect(!self->stats.blocks);
    pthread_mutex_destroy(&self->mutex);
    free(self->records);
    free(self);
    atomic_fetch_sub(&user_alive, 1);
}

static loch_status full_find_block(void *user, const void *address, loch_block *out)
{
    user_full *self = user;
    user_record *record;
    pthread_mutex_lock(&self->mutex);
    const loch_status status = full_look(self, address, &record);
    if (status == LOCH_OK) *out = record->block;
    pthread_mutex_unlock(&self->mutex);
    return status;
}

static loch_status full_walk(void *user, loch_block_visitor *visitor, void *visitor_user)
{
    user_full *self = user;
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&self->mutex);
    for (size_t i = 0; i < self->count && status == LOCH_OK; i++)
        if (self->records[i].is_live) status = visitor(&self->records[i].block, visitor_user);
    pthread_mutex_unlock(&self->mutex);
    return status;
}

static loch_status full_record_use(void *user, void *address, loch_stream *stream)
{
    loch_block block = {.size = sizeof block};
    user_expect(stream != NULL);
    return full_find_block(user, address, &block); /* a free waits for the whole device anyway */
}

static loch_status full_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    user_full *self = user;
    pthread_mutex_lock(&self->mutex);
    const loch_stats *stats = tag ? full_tag(self, tag) : &self->stats;
    if (stats) *out = *stats;
    out->size = sizeof *out;
    if (!tag) out->limit_bytes = TEST_USER_CAPACITY;
    pthread_mutex_unlock(&self->mutex);
    return stats ? LOCH_OK : loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "no figures for that tag");
}

static void full_begin_segment(loch_stats *stats)
{
    stats->peak_blocks = stats->blocks;
    stats->peak_requested_bytes = stats->requested_bytes;
    stats->peak_allocated_bytes = stats->allocated_bytes;
    stats->peak_reserved_bytes = stats->reserved_bytes;
    stats->largest_bytes = 0;
}

static void full_new_segment(void *user)
{
    user_full *self = user;
    pthread_mutex_lock(&self->mutex);
    full_begin_segment(&self->stats);
    for (size_t i = 0; i < self->tags_count; i++)
        full_begin_segment(&self->tags[i].stats);
    pthread_mutex_unlock(&self->mutex);
}

static loch_status full_trim(void *user, size_t keep_bytes, size_t *released)
{
    (void)user;
    (void)keep_bytes;
    *released = 0;
    return LOCH_OK;
}

static loch_attributes full_get_attributes(void *user)
{
    const user_full *self = user;
    const int is_host = loch_device_can(self->device, LOCH_CAN_HOST_ACCESS);
    return (loch_attributes){.bits = TEST_USER_BIT |
                                     (uint32_t)(is_host ? LOCH_ATTRIBUTE_ON_HOST : LOCH_ATTRIBUTE_GPU_COMPATIBLE)};
}

/* Rounded memory may be used: a block can be resized inside it. */
static loch_status full_change(user_full *self, void *address, size_t bytes, size_t *allocated)
{
    user_record *record;
    const loch_status status = full_look(self, address, &record);
    if (status != LOCH_OK) return status;
    loch_block *block = &record->block;
    if (full_round(bytes) != block->allocated_bytes)
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "blocks of the full allocator do not grow that far");
    if (self->stats.requested_bytes - block->requested_bytes + bytes > TEST_USER_CAPACITY)
        return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "the full allocator has no %zu bytes left", bytes);
    loch_stats *tag = block->tag ? full_tag(self, block->tag) : NULL;
    full_book_change(&self->stats, block, bytes);
    if (tag) full_book_change(tag, block, bytes);
    block->requested_bytes = bytes;
    *allocated = block->allocated_bytes;
    return LOCH_OK;
}

static loch_status full_resize(void *user, void *address, size_t bytes, size_t *allocated)
{
    user_full *self = user;
    user_expect(address && bytes && allocated);
    pthread_mutex_lock(&self->mutex);
    const loch_status status = full_change(self, address, bytes, allocated);
    pthread_mutex_unlock(&self->mutex);
    return status;
}

static const loch_allocator_ops full_ops = {
    .size = sizeof full_ops,
    .kind = "user-full",
    .traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES | LOCH_TRAIT_ALLOCATES_EMPTY | LOCH_TRAIT_ZEROES,
    .alloc = full_alloc,
    .free = full_free,
    .destroy = full_destroy,
    .find = full_find_block,
    .walk = full_walk,
    .record_use = full_record_use,
    .get_stats = full_get_stats,
    .new_segment = full_new_segment,
    .trim = full_trim,
    .get_attributes = full_get_attributes,
    .resize = full_resize,
};

/* --- a wrapper --- */

typedef struct user_wrapper {
    loch_allocator *wrapped; /* the library's wrapper retains it */
} user_wrapper;

static loch_status wrapper_alloc(void *user, const loch_request *request, void **out)
{
    const user_wrapper *self = user;
    loch_request inner = *request;
    inner.flags |= LOCH_ALLOC_NO_RETRY; /* the caller of the wrapper runs pressure functions and waits */
    return loch_allocator_alloc(self->wrapped, &inner, out);
}

static loch_status wrapper_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    const user_wrapper *self = user;
    if (stream) return loch_allocator_free_on(self->wrapped, address, stream);
    if (bytes) return loch_allocator_free_sized(self->wrapped, address, bytes);
    return loch_free(self->wrapped, address);
}

static void wrapper_destroy(void *user)
{
    free(user);
    atomic_fetch_sub(&user_alive, 1);
}

static const loch_allocator_ops wrapper_ops = {
    .size = sizeof wrapper_ops,
    .kind = "user-wrapper",
    .alloc = wrapper_alloc,
    .free = wrapper_free,
    .destroy = wrapper_destroy,
};

/* --- making them --- */

static loch_status user_made(loch_status status, void *self)
{
    if (status == LOCH_OK)
        atomic_fetch_add(&user_alive, 1);
    else
        free(self); /* it stayed the caller's */
    return status;
}

loch_status test_user_create(loch_device *device, test_user_kind kind, loch_allocator **out)
{
    if (kind == TEST_USER_FULL) {
        user_full *self = calloc(1, sizeof *self);
        if (!self) abort();
        self->device = device;
        pthread_mutex_init(&self->mutex, NULL);
        return user_made(loch_allocator_create(device, "full", &full_ops, self, out), self);
    }
    user_plain *self = calloc(1, sizeof *self);
    if (!self) abort();
    self->device = device;
    self->is_unsafe = kind == TEST_USER_UNSAFE;
    return user_made(loch_allocator_create(device, "plain", self->is_unsafe ? &unsafe_ops : &plain_ops, self, out),
                     self);
}

loch_status test_user_wrap(loch_allocator *wrapped, loch_allocator **out)
{
    user_wrapper *self = calloc(1, sizeof *self);
    if (!self) abort();
    self->wrapped = wrapped;
    return user_made(loch_wrapper_create(wrapped, NULL, &wrapper_ops, self, out), self);
}

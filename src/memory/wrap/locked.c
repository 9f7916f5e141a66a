/* SPDX-License-Identifier: MIT */
/* The lock wrapper: one thread at a time in the wrapped allocator, whatever the call.
 *
 * The lock has no rank. It lies between the lock of its own allocator and the lock of the wrapped one, whose ranks
 * are neighbours, and it is held during the whole call of the wrapped allocator. The order is the same everywhere:
 * from the outer allocator to the inner one. The lock is recursive, so that a user's function that the wrapped
 * allocator calls (above a soft limit, for example) may call this allocator again. */
#include "base/fail.h"
#include "base/heap.h"
#include "memory/wrap/wrap.h"
#include <loch/wrapper.h>

typedef struct locked {
    loch_allocator *wrapped; /* borrowed; the allocator around this struct retains it */
    lochi_lock lock;         /* LOCHI_RANK_NONE */
    unsigned depth;          /* depth of nested calls of the thread that holds the lock */
} locked;

static locked *locked_take(void *user)
{
    locked *self = user;
    if (!lochi_lock_is_mine(&self->lock)) lochi_lock_take(&self->lock);
    self->depth++;
    return self;
}

static loch_status locked_drop(locked *self, loch_status status)
{
    if (!--self->depth) lochi_lock_drop(&self->lock);
    return status;
}

static loch_status locked_alloc(void *user, const loch_request *request, void **out)
{
    locked *self = locked_take(user);
    return locked_drop(self, lochi_allocator_try(self->wrapped, request, out));
}

static loch_status locked_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    locked *self = locked_take(user);
    return locked_drop(self, lochi_allocator_give_back(self->wrapped, address, bytes, stream));
}

static loch_status locked_resize(void *user, void *address, size_t bytes, size_t *allocated)
{
    locked *self = locked_take(user);
    return locked_drop(self, lochi_grow_pass(self->wrapped, address, bytes, allocated));
}

static void locked_destroy(void *user)
{
    locked *self = user;
    lochi_lock_fini(&self->lock);
    lochi_free(self);
}

static loch_status locked_find(void *user, const void *address, loch_block *out)
{
    locked *self = locked_take(user);
    return locked_drop(self, loch_allocator_find(self->wrapped, address, out));
}

static loch_status locked_walk(void *user, loch_block_visitor *visitor, void *visitor_user)
{
    locked *self = locked_take(user);
    return locked_drop(self, loch_allocator_walk(self->wrapped, visitor, visitor_user));
}

static loch_status locked_record_use(void *user, void *address, loch_stream *stream)
{
    locked *self = locked_take(user);
    return locked_drop(self, loch_allocator_record_use(self->wrapped, address, stream));
}

static loch_status locked_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    locked *self = locked_take(user);
    return locked_drop(self, lochi_allocator_read_stats(self->wrapped, tag, out));
}

static void locked_new_segment(void *user)
{
    locked *self = locked_take(user);
    lochi_wrapper_new_segment(self->wrapped);
    (void)locked_drop(self, LOCH_OK);
}

static loch_status locked_trim(void *user, size_t keep_bytes, size_t *released)
{
    locked *self = locked_take(user);
    return locked_drop(self, loch_allocator_trim(self->wrapped, keep_bytes, released));
}

static loch_attributes locked_get_attributes(void *user)
{
    locked *self = locked_take(user);
    const loch_attributes attributes = loch_allocator_get_attributes(self->wrapped);
    (void)locked_drop(self, LOCH_OK);
    return attributes;
}

static const loch_allocator_ops locked_ops = {
    .size = sizeof locked_ops,
    .kind = "locked",
    .traits = LOCH_TRAIT_THREAD_SAFE,
    .alloc = locked_alloc,
    .free = locked_free,
    .destroy = locked_destroy,
    .find = locked_find,
    .walk = locked_walk,
    .record_use = locked_record_use,
    .get_stats = locked_get_stats,
    .new_segment = locked_new_segment,
    .trim = locked_trim,
    .get_attributes = locked_get_attributes,
    .resize = locked_resize,
};

loch_status loch_locked_create(loch_allocator *wrapped, const char *name, loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "a lock needs an allocator to wrap and an out pointer");
    locked *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for a lock around \"%s\"", wrapped->name);
    self->wrapped = wrapped;
    lochi_lock_init(&self->lock, LOCHI_RANK_NONE);
    const loch_status status = loch_wrapper_create(wrapped, name, &locked_ops, self, out);
    if (status == LOCH_OK)
        lochi_account_forward(*out, LOCHI_FORWARDS_ALL);
    else
        locked_destroy(self);
    return status;
}

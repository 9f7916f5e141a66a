/* SPDX-License-Identifier: MIT */
/* Arrays of elements with functions to initialise and finish each element. */
#include "base/checked.h"
#include "base/fail.h"
#include "kit/sized.h"
#include <loch/typed.h>
#include <string.h>

static loch_status typed_check(const loch_allocator *allocator, const loch_type *type, size_t count, size_t *bytes)
{
    if (!allocator || !type || type->size < sizeof *type)
        return LOCH_FAIL(INVALID, "typed memory needs an allocator and a type whose size is set");
    if (!type->bytes || (type->alignment && !lochi_is_power_of_two(type->alignment)))
        return LOCH_FAIL(INVALID, "an element needs a size above 0 and an alignment that is a power of two");
    if (!lochi_mul(count, type->bytes, bytes))
        return LOCH_FAIL(OVERFLOW, "%zu elements of %zu bytes do not fit the address space", count, type->bytes);
    const loch_attributes attributes = loch_allocator_get_attributes(allocator);
    if ((type->init || type->fini) && !loch_attributes_has(attributes, LOCH_ATTRIBUTE_ON_HOST))
        return LOCH_FAIL(UNSUPPORTED, "elements with init or fini need memory that the host can reach");
    return LOCH_OK;
}

static void typed_finish(const loch_type *type, char *elements, size_t count)
{
    for (size_t i = count; type->fini && i > 0; i--)
        type->fini(elements + (i - 1) * type->bytes, type->user);
}

loch_status loch_alloc_typed(loch_allocator *allocator, const loch_type *type, size_t count,
                             const loch_request *request, void **out)
{
    if (!out) return LOCH_FAIL(INVALID, "typed memory needs an out pointer");
    *out = NULL;
    size_t bytes;
    LOCH_TRY_RETURN(typed_check(allocator, type, count, &bytes));
    loch_request aligned = {.size = sizeof aligned};
    LOCH_TRY_RETURN(lochi_sized_read("a request", request, &aligned, sizeof aligned));
    if (aligned.alignment < type->alignment) aligned.alignment = type->alignment;
    void *block;
    LOCH_TRY_RETURN(loch_alloc_array(allocator, count, type->bytes, &aligned, &block));
    loch_status status = LOCH_OK;
    size_t done = 0;
    if (type->init && block) { /* the block is ready, or zeroed, in stream order only, and init runs on the host */
        loch_stream *stream = aligned.stream;
        if (!stream) stream = loch_stream_get_default(loch_allocator_get_device(allocator));
        status = loch_stream_sync(stream);
    }
    while (status == LOCH_OK && type->init && block && done < count) {
        status = type->init((char *)block + done * type->bytes, type->user);
        if (status != LOCH_OK) break;
        done++;
    }
    if (status != LOCH_OK) {
        const loch_error saved = lochi_error_save();
        typed_finish(type, block, done);
        const loch_status freed = loch_free(allocator, block);
        if (freed == LOCH_OK) lochi_error_restore(&saved);
        return status;
    }
    *out = block;
    return LOCH_OK;
}

loch_status loch_free_typed(loch_allocator *allocator, void *address, const loch_type *type, size_t count)
{
    size_t bytes;
    LOCH_TRY_RETURN(typed_check(allocator, type, count, &bytes));
    if (!address) return LOCH_OK;
    loch_block block = {.size = sizeof block};
    LOCH_TRY_RETURN(loch_allocator_find(allocator, address, &block));
    if (block.requested_bytes != bytes)
        return LOCH_FAIL(INVALID, "the block at %p has %zu bytes, not %zu elements of %zu bytes", address,
                         block.requested_bytes, count, type->bytes);
    typed_finish(type, address, count);
    return loch_free(allocator, address);
}

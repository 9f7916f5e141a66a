/* SPDX-License-Identifier: MIT */
/* Contents of buffers: resize, copy, fill. */
#include "base/fail.h"
#include "kit/sized.h"
#include "memory/allocator.h"
#include "memory/buffer/buffer.h"
#include "memory/buffer/release.h"

/* --- resizing --- */

static loch_status contents_check_resizable(loch_buffer *buffer, loch_contents contents)
{
    if (!buffer || (unsigned)contents > LOCH_CONTENTS_DROP)
        return LOCH_FAIL(INVALID, "resizing needs a buffer and a valid loch_contents value");
    if (buffer->whole) return LOCH_FAIL(UNSUPPORTED, "a part of a buffer cannot be resized");
    if (!buffer->allocator) return LOCH_FAIL(UNSUPPORTED, "external memory cannot be resized");
    if (lochi_buffer_is_used(buffer)) return LOCH_FAIL(BUSY, "work of another device still uses the buffer");
    return LOCH_OK;
}

loch_status loch_buffer_resize(loch_buffer *buffer, size_t bytes, loch_contents contents, loch_stream *stream)
{
    LOCH_TRY_RETURN(contents_check_resizable(buffer, contents));
    const loch_request request = {
        .size = sizeof request, .bytes = bytes, .alignment = buffer->alignment, .stream = stream, .tag = buffer->tag};
    const bool keeps = contents == LOCH_CONTENTS_KEEP;
    void *address, *before = buffer->address;
    if (buffer->is_movable && before) { /* the block is not movable while it is resized */
        if (lochi_movable_is_pinned(&buffer->movable)) return LOCH_FAIL(BUSY, "the buffer is pinned");
        LOCH_TRY_RETURN(lochi_movable_close(buffer->allocator, &buffer->movable, stream, &before));
        buffer->address = before;
    }
    const loch_status status =
        buffer->address ? lochi_allocator_resize(buffer->allocator, buffer->address, &request, keeps, &address)
                        : loch_allocator_alloc(buffer->allocator, &request, &address);
    buffer->stream_id = 0;
    if (lochi_is_freed(status)) {
        if (buffer->meter) lochi_meter_change(buffer->meter, buffer->capacity, bytes);
        buffer->address = address;
        buffer->bytes = buffer->capacity = bytes;
        lochi_buffer_touch(buffer);
    }
    if (buffer->is_movable && buffer->address) {
        const uint64_t generation = buffer->movable.generation + (buffer->address != before);
        LOCH_TRY_RETURN(lochi_movable_open(buffer->allocator, buffer->address, buffer->alignment, &buffer->movable));
        buffer->movable.generation = generation;
    }
    return status;
}

/* --- copying --- */

static loch_status contents_read_copy(const loch_buffer_copy_options *given, loch_buffer_copy_options *out)
{
    *out = (loch_buffer_copy_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of copy options", given, out, sizeof *out));
    if ((unsigned)out->wait > LOCH_WAIT_END || (unsigned)out->fit > LOCH_FIT_CLIP)
        return LOCH_FAIL(INVALID, "the copy options have an invalid `fit` or `wait`");
    if (out->wait == LOCH_WAIT_DEFAULT) out->wait = out->stream ? LOCH_WAIT_QUEUED : LOCH_WAIT_END;
    return LOCH_OK;
}

/* Keeps both sides until the queued copy has ended. A copy without a stream runs on the default stream of either
 * side. */
static loch_status contents_keep(loch_buffer *to, loch_buffer *from, loch_stream *stream)
{
    loch_device *to_device = stream ? NULL : loch_buffer_get_device(to);
    loch_device *from_device = stream ? NULL : loch_buffer_get_device(from);
    LOCH_TRY_RETURN(loch_buffer_record_use(to, stream));
    LOCH_TRY_RETURN(loch_buffer_record_use(from, stream));
    if (from_device) LOCH_TRY_RETURN(loch_buffer_record_use(to, loch_stream_get_default(from_device)));
    return to_device ? loch_buffer_record_use(from, loch_stream_get_default(to_device)) : LOCH_OK;
}

void lochi_buffer_keep_after_failure(loch_buffer *to, loch_buffer *from, loch_stream *stream)
{
    const loch_error saved = lochi_error_save();
    if (stream) (void)!contents_keep(to, from, stream);
    (void)!contents_keep(to, from, NULL);
    lochi_error_restore(&saved);
}

void lochi_buffer_begin_host(const loch_buffer *buffer, lochi_host_scope *out)
{
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    const bool is_plain = !whole->allocator && whole->kind == LOCH_MEMORY_HOST;
    lochi_ranges_begin_host(out, whole->address, is_plain ? whole->capacity : 0);
}

static loch_status contents_copy_held(loch_buffer *to, loch_buffer *from, loch_buffer_copy_options read)
{
    LOCH_TRY_RETURN(lochi_buffer_check_writable(to));
    if (to->bytes != from->bytes && read.fit == LOCH_FIT_EXACT)
        return LOCH_FAIL(
            INVALID, "the target has %zu bytes and the source %zu; set fit to LOCH_FIT_CLIP to copy the shorter length",
            to->bytes, from->bytes);
    const size_t bytes = to->bytes < from->bytes ? to->bytes : from->bytes;
    char *target, *source;
    LOCH_TRY_RETURN(lochi_buffer_locate(to, 0, bytes, &target));
    LOCH_TRY_RETURN(lochi_buffer_locate(from, 0, bytes, &source));
    const loch_copy_options copy = {.size = sizeof copy, .stream = read.stream, .wait = read.wait};
    lochi_host_scope target_scope, source_scope;
    lochi_buffer_begin_host(to, &target_scope);
    lochi_buffer_begin_host(from, &source_scope);
    const loch_status status = loch_copy_with(target, source, bytes, &copy);
    lochi_ranges_end_host(&source_scope);
    lochi_ranges_end_host(&target_scope);
    if (status != LOCH_OK) lochi_buffer_keep_after_failure(to, from, read.stream);
    if (status != LOCH_OK || !bytes || read.wait == LOCH_WAIT_END) return status;
    return contents_keep(to, from, read.stream);
}

loch_status loch_buffer_copy(loch_buffer *to, loch_buffer *from, const loch_buffer_copy_options *options)
{
    if (!to || !from) return LOCH_FAIL(INVALID, "a copy needs two buffers");
    loch_buffer_copy_options read;
    LOCH_TRY_RETURN(contents_read_copy(options, &read));
    lochi_buffer_sweep();
    loch_stream *to_stream = lochi_buffer_choose_stream(to, from, read.stream);
    loch_stream *from_stream = lochi_buffer_choose_stream(from, to, read.stream);
    LOCH_TRY_RETURN(lochi_buffer_hold(to, to_stream));
    loch_status status = lochi_buffer_hold(from, from_stream);
    if (status == LOCH_OK) {
        status = contents_copy_held(to, from, read);
        lochi_buffer_touch(to); /* a copy that failed may have written a part */
        status = lochi_first_failure(status, lochi_buffer_let_go(from, from_stream));
    }
    return lochi_first_failure(status, lochi_buffer_let_go(to, to_stream));
}

static loch_status contents_fill_held(loch_buffer *buffer, const void *pattern, size_t pattern_bytes,
                                      loch_stream *stream)
{
    LOCH_TRY_RETURN(lochi_buffer_check_writable(buffer));
    char *target;
    LOCH_TRY_RETURN(lochi_buffer_locate(buffer, 0, buffer->bytes, &target));
    lochi_host_scope scope;
    lochi_buffer_begin_host(buffer, &scope);
    const loch_status status = stream ? loch_fill_on(target, buffer->bytes, pattern, pattern_bytes, stream)
                                      : loch_fill(target, buffer->bytes, pattern, pattern_bytes);
    lochi_ranges_end_host(&scope);
    return status == LOCH_OK && stream && buffer->bytes ? loch_buffer_record_use(buffer, stream) : status;
}

loch_status loch_buffer_fill(loch_buffer *buffer, const void *pattern, size_t pattern_bytes, loch_stream *stream)
{
    if (!buffer) return LOCH_FAIL(INVALID, "a fill needs a buffer");
    LOCH_TRY_RETURN(lochi_buffer_hold(buffer, stream));
    const loch_status status = contents_fill_held(buffer, pattern, pattern_bytes, stream);
    lochi_buffer_touch(buffer);
    return lochi_first_failure(status, lochi_buffer_let_go(buffer, stream));
}

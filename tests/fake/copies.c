/* SPDX-License-Identifier: MIT */
/* Copies and fills of the CUDA driver for tests, and the running of all work. A test double: see fake.h.
 *
 * Addresses are checked twice: when the work is queued, as the driver does, and when it runs. Memory that has gone
 * meanwhile is what a GPU would fault on: the context is lost. */
#include "fake.h"
#include <stdlib.h>
#include <string.h>

/* --- running --- */

/* Returns how many bytes from the first to the last of a side. */
static size_t side_bytes(const fake_side *side, size_t width, size_t height, size_t depth)
{
    return (depth - 1) * side->plane + (height - 1) * side->pitch + width;
}

/* Finds the memory of a side and marks it as used. */
static char *side_open(const fake_side *side, size_t bytes, cu_stream *stream, int which)
{
    fake_take();
    char *memory = fake_translate(side->address, bytes, side->device);
    if (memory) {
        stream->busy_start[which] = side->address;
        stream->busy_end[which] = side->address + bytes;
    }
    fake_drop(LOCHI_CUDA_SUCCESS);
    return memory;
}

static void sides_close(cu_stream *stream)
{
    fake_take();
    memset(stream->busy_start, 0, sizeof stream->busy_start);
    memset(stream->busy_end, 0, sizeof stream->busy_end);
    fake_drop(LOCHI_CUDA_SUCCESS);
}

static cu_result run_copy(const fake_work *work, cu_stream *stream)
{
    const fake_side *to = &work->as.copy.to, *from = &work->as.copy.from;
    const size_t width = work->as.copy.width, height = work->as.copy.height, depth = work->as.copy.depth;
    char *target = side_open(to, side_bytes(to, width, height, depth), stream, 0);
    const char *source = work->as.copy.staged ? work->as.copy.staged
                                              : side_open(from, side_bytes(from, width, height, depth), stream, 1);
    if (target && source)
        for (size_t plane = 0; plane < depth; plane++)
            for (size_t row = 0; row < height; row++)
                memmove(target + plane * to->plane + row * to->pitch, source + plane * from->plane + row * from->pitch,
                        width);
    sides_close(stream);
    return target && source ? LOCHI_CUDA_SUCCESS : LOCHI_CUDA_ERROR_ILLEGAL_ADDRESS;
}

static cu_result run_fill(const fake_work *work, cu_stream *stream)
{
    const size_t width = work->as.fill.width, count = work->as.fill.count;
    char *target = side_open(&work->as.fill.to, width * count, stream, 0);
    const uint32_t pattern = work->as.fill.pattern;
    if (target && width == 1)
        memset(target, (int)pattern, count);
    else if (target)
        for (size_t i = 0; i < count; i++)
            memcpy(target + i * width, &pattern, width); /* the low bytes come first */
    sides_close(stream);
    return target ? LOCHI_CUDA_SUCCESS : LOCHI_CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void run_record(const fake_work *work)
{
    cu_event *event = work->as.mark.event;
    fake_take();
    if (event->record == work->as.mark.record) event->time_ns = fake_now_ns();
    if (event->shared) atomic_store_explicit(&event->shared->done, work->as.mark.record, memory_order_release);
    fake_drop(LOCHI_CUDA_SUCCESS);
}

static void run_free(uintptr_t address)
{
    fake_take();
    fake_range *range = fake_ranges_find(&fake.ranges, address);
    if (range) fake_range_end(range);
    fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result fake_work_run(fake_work *work, cu_stream *stream)
{
    cu_result result = LOCHI_CUDA_SUCCESS;
    switch (work->kind) {
    case FAKE_COPY: return run_copy(work, stream);
    case FAKE_FILL: return run_fill(work, stream);
    case FAKE_CALL: work->as.call.function(work->as.call.user); break;
    case FAKE_RECORD: run_record(work); break;
    case FAKE_WAIT:
        if (work->as.wait.event) fake_shared_await(work->as.wait.event, work->as.wait.number);
        break;
    case FAKE_LAUNCH: return fake_launch_run(work->as.launch);
    case FAKE_RUN_GRAPH:
        for (size_t i = 0; i < work->as.graph->count && result == LOCHI_CUDA_SUCCESS; i++)
            result = fake_work_run(&work->as.graph->works[i], stream);
        return result;
    case FAKE_FREE: run_free(work->as.address); break;
    }
    return result;
}

void fake_work_end(fake_work *work)
{
    switch (work->kind) {
    case FAKE_COPY: free(work->as.copy.staged); break;
    case FAKE_RECORD: fake_event_release(work->as.mark.event); break;
    case FAKE_WAIT:
        if (work->as.wait.event) fake_event_release(work->as.wait.event);
        break;
    case FAKE_LAUNCH: fake_launch_end(work->as.launch); break;
    case FAKE_RUN_GRAPH: fake_graph_release(work->as.graph); break;
    default: break;
    }
}

/* --- queueing --- */

/* Tells whether an address is plain memory of the host, which the driver stages. */
static bool is_pageable(const fake_side *side)
{
    return side->device < 0 && !fake_find(side->address);
}

static bool side_is_good(const fake_side *side, size_t width, size_t height, size_t depth)
{
    if (height > 1 && side->pitch < width) return false;
    if (height > 1 && side->pitch > fake.switches.pitch_max) return false;
    return fake_translate(side->address, side_bytes(side, width, height, depth), side->device);
}

/* Takes a copy of the rows now. */
static bool stage(fake_work *work)
{
    const fake_side *from = &work->as.copy.from;
    const size_t bytes = side_bytes(from, work->as.copy.width, work->as.copy.height, work->as.copy.depth);
    work->as.copy.staged = malloc(bytes);
    if (work->as.copy.staged) memcpy(work->as.copy.staged, (const void *)from->address, bytes);
    return work->as.copy.staged;
}

/* Queues a copy. Copies from pageable memory have read it when this returns, copies to such memory have ended. */
static cu_result queue_copy(cu_stream *handle, fake_side to, fake_side from, size_t width, size_t height, size_t depth)
{
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (!width || !height || !depth) return fake_drop(LOCHI_CUDA_SUCCESS);
    if (!side_is_good(&to, width, height, depth) || !side_is_good(&from, width, height, depth))
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_work work = {.kind = FAKE_COPY,
                      .as.copy = {.to = to, .from = from, .width = width, .height = height, .depth = depth}};
    if (is_pageable(&from) && !stream->capture && !stage(&work)) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    fake_point end;
    const cu_result result = fake_queue(stream, &work, NULL, 0, &end);
    if (result == LOCHI_CUDA_SUCCESS && is_pageable(&to)) fake_point_await(end);
    return fake_drop(result);
}

static fake_side side_of(uintptr_t address, int device)
{
    return (fake_side){.address = address, .device = device};
}

cu_result cuMemcpyHtoDAsync_v2(cu_address to, const void *from, size_t bytes, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    return queue_copy(stream, side_of((uintptr_t)to, fake_current_device()), side_of((uintptr_t)from, -1), bytes, 1, 1);
}

cu_result cuMemcpyDtoHAsync_v2(void *to, cu_address from, size_t bytes, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    return queue_copy(stream, side_of((uintptr_t)to, -1), side_of((uintptr_t)from, fake_current_device()), bytes, 1, 1);
}

cu_result cuMemcpyDtoDAsync_v2(cu_address to, cu_address from, size_t bytes, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    const int device = fake_current_device();
    return queue_copy(stream, side_of((uintptr_t)to, device), side_of((uintptr_t)from, device), bytes, 1, 1);
}

static int device_of(const cu_context *context)
{
    fake_take();
    const int device = fake_object_is(context, FAKE_CONTEXT) ? context->device : -1;
    fake_drop(LOCHI_CUDA_SUCCESS);
    return device;
}

cu_result cuMemcpyPeerAsync(cu_address to, cu_context *to_context, cu_address from, cu_context *from_context,
                            size_t bytes, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    const int target = device_of(to_context), source = device_of(from_context);
    if (target < 0 || source < 0) return FAKE_INVALID_CONTEXT;
    return queue_copy(stream, side_of((uintptr_t)to, target), side_of((uintptr_t)from, source), bytes, 1, 1);
}

/* Makes a side of a copy of rows. Returns false for what the fake has not: arrays, origins other than the first
 * byte. */
static bool side_make(cu_choice type, const void *host, cu_address address, const cu_array *array, size_t pitch,
                      size_t rows, int device, fake_side *out)
{
    const bool is_host = type == LOCHI_CU_MEMORYTYPE_HOST;
    if (array || (!is_host && type != LOCHI_CU_MEMORYTYPE_DEVICE)) return false;
    *out = (fake_side){.address = is_host ? (uintptr_t)host : (uintptr_t)address,
                       .device = is_host ? -1 : device,
                       .pitch = pitch,
                       .plane = pitch * rows};
    return true;
}

cu_result cuMemcpy2DAsync_v2(const cu_copy_2d *copy, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    const cu_copy_2d c = *copy;
    const int device = fake_current_device();
    fake_side to, from;
    if (!side_make(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcPitch, c.Height, device, &from) ||
        !side_make(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstPitch, c.Height, device, &to) ||
        c.srcXInBytes || c.srcY || c.dstXInBytes || c.dstY)
        return LOCHI_CUDA_ERROR_INVALID_VALUE;
    return queue_copy(stream, to, from, c.WidthInBytes, c.Height, 1);
}

cu_result cuMemcpy3DAsync_v2(const cu_copy_3d *copy, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    const cu_copy_3d c = *copy;
    const int device = fake_current_device();
    fake_side to, from;
    if (!side_make(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcPitch, c.srcHeight, device, &from) ||
        !side_make(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstPitch, c.dstHeight, device, &to) ||
        c.srcXInBytes || c.srcY || c.srcZ || c.srcLOD || c.dstXInBytes || c.dstY || c.dstZ || c.dstLOD)
        return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if (c.Depth > 1 && (c.srcHeight < c.Height || c.dstHeight < c.Height)) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    return queue_copy(stream, to, from, c.WidthInBytes, c.Height, c.Depth);
}

cu_result cuMemcpy3DPeerAsync(const cu_copy_3d_peer *copy, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    const cu_copy_3d_peer c = *copy;
    const int target = device_of(c.dstContext), source = device_of(c.srcContext);
    fake_side to, from;
    if (target < 0 || source < 0) return FAKE_INVALID_CONTEXT;
    if (!side_make(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcPitch, c.srcHeight, source, &from) ||
        !side_make(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstPitch, c.dstHeight, target, &to) ||
        c.srcXInBytes || c.srcY || c.srcZ || c.srcLOD || c.dstXInBytes || c.dstY || c.dstZ || c.dstLOD)
        return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if (c.Depth > 1 && (c.srcHeight < c.Height || c.dstHeight < c.Height)) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    return queue_copy(stream, to, from, c.WidthInBytes, c.Height, c.Depth);
}

/* --- fills --- */

static cu_result queue_fill(cu_stream *handle, cu_address to, uint32_t pattern, size_t width, size_t count,
                            fake_point *end)
{
    cu_stream *stream = fake_stream_find(handle);
    if (end) *end = (fake_point){NULL, 0};
    if (!stream) return LOCHI_CUDA_ERROR_INVALID_HANDLE;
    if (!count) return LOCHI_CUDA_SUCCESS;
    const int device = fake_current_device();
    if (to % width || count > SIZE_MAX / width || !fake_translate((uintptr_t)to, width * count, device))
        return LOCHI_CUDA_ERROR_INVALID_VALUE;
    const fake_work work = {
        .kind = FAKE_FILL,
        .as.fill = {.to = side_of((uintptr_t)to, device), .pattern = pattern, .width = width, .count = count}};
    return fake_queue(stream, &work, NULL, 0, end);
}

cu_result cuMemsetD8Async(cu_address to, unsigned char pattern, size_t count, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    return fake_drop(queue_fill(stream, to, pattern, 1, count, NULL));
}

cu_result cuMemsetD16Async(cu_address to, unsigned short pattern, size_t count, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    return fake_drop(queue_fill(stream, to, pattern, 2, count, NULL));
}

cu_result cuMemsetD32Async(cu_address to, unsigned int pattern, size_t count, cu_stream *stream)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    return fake_drop(queue_fill(stream, to, pattern, 4, count, NULL));
}

cu_result cuMemsetD8_v2(cu_address to, unsigned char pattern, size_t count)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    fake_point end;
    const cu_result result = queue_fill(NULL, to, pattern, 1, count, &end);
    if (result == LOCHI_CUDA_SUCCESS) fake_point_await(end);
    return fake_drop(result);
}

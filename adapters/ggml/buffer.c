/* SPDX-License-Identifier: MIT */
/* Buffers of ggml on blocks of a pool.
 *
 * A buffer of weights or of intermediate results is one block. A buffer of a cache is a growable block for each of its
 * tensors, because a cache fills all its tensors from their starts at the same rate. ggml asks for one base address and
 * computes the addresses of tensors from it, so such a buffer has a base without memory, and each tensor gets its true
 * address when ggml initialises it, before anything looks at it. Views follow, since ggml computes theirs from the
 * tensor.
 *
 * ggml does not say what a buffer is for. It asks for the size of every tensor first, on the same thread, and tensors
 * have names: llama.cpp's caches are named "cache_...". The last tensors that the thread asked about give the kind. A
 * wrong guess costs a wrong tag and nothing else; freezing does not rely on it. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the kind of a buffer, from its tensors --- */

typedef struct tensor_run {
    ggml_backend_buffer_type_t type;
    loch_ggml_kind kind;
    size_t bytes; /* of the last tensors of this type and kind, each rounded up to the alignment */
} tensor_run;

static _Thread_local tensor_run run = {.kind = LOCH_GGML_COMPUTE};

static void run_note(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor, size_t bytes)
{
    loch_ggml_kind kind = LOCH_GGML_WEIGHTS;
    if (tensor->op != GGML_OP_NONE || tensor->flags & (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT))
        kind = LOCH_GGML_COMPUTE;
    else if (strncmp(tensor->name, "cache_", 6) == 0)
        kind = LOCH_GGML_CACHE;
    if (type != run.type || kind != run.kind) run = (tensor_run){.type = type, .kind = kind};
    run.bytes += GGML_PAD(bytes, LOCHI_GGML_ALIGNMENT);
}

/* Forgets the tensors: ggml asks again for the size of each tensor when it has the buffer. */
static void run_end(void)
{
    run = (tensor_run){.kind = LOCH_GGML_COMPUTE};
}

static loch_ggml_kind run_guess(ggml_backend_buffer_type_t type, size_t bytes)
{
    const tensor_run last = run;
    run_end();
    if (last.type != type) return LOCH_GGML_COMPUTE;
    if (last.kind == LOCH_GGML_CACHE && last.bytes) return LOCH_GGML_CACHE;
    if (last.kind == LOCH_GGML_WEIGHTS && last.bytes == bytes) return LOCH_GGML_WEIGHTS;
    return LOCH_GGML_COMPUTE; /* also leaves of a graph, which are not all that the graph needs */
}

/* --- parts of a cache --- */

bool lochi_ggml_grow(loch_ggml *ggml, lochi_ggml_part *part, size_t bytes)
{
    if (bytes <= part->bytes) return true;
    bytes = GGML_PAD(bytes, ggml->granule_bytes);
    if (bytes > part->max_bytes) bytes = part->max_bytes;
    if (loch_pool_resize_growable(ggml->pool, part->address, bytes) != LOCH_OK) {
        lochi_ggml_log(ggml, "grow a cache", bytes - part->bytes);
        return false;
    }
    memset(part->address + part->bytes, 0, bytes - part->bytes);
    part->bytes = bytes;
    return true;
}

/* Returns the part of a tensor or of the tensor that it is a view of, and where the tensor starts in it. */
static lochi_ggml_part *part_find(const lochi_ggml_buffer *own, const struct ggml_tensor *tensor, size_t *start)
{
    if (!own->grows) return NULL;
    lochi_ggml_part *part = (tensor->view_src ? tensor->view_src : tensor)->extra;
    *start = (size_t)((char *)tensor->data - part->address);
    return part;
}

/* Grows for a write that ggml cannot be told to have failed. */
static bool part_grow_or_lose(lochi_ggml_buffer *own, lochi_ggml_part *part, size_t bytes)
{
    if (lochi_ggml_grow(own->ggml, part, bytes)) return true;
    atomic_store_explicit(&own->lost, true, memory_order_release);
    return false;
}

/* Returns how many of `size` bytes from `start` have memory. */
static size_t part_present(const lochi_ggml_part *part, size_t start, size_t size)
{
    if (start >= part->bytes) return 0;
    return size < part->bytes - start ? size : part->bytes - start;
}

/* --- the interface of a buffer --- */

static void buffer_free(ggml_backend_buffer_t buffer)
{
    lochi_ggml_buffer *own = buffer->context;
    loch_ggml *ggml = own->ggml;
    pthread_mutex_lock(&ggml->lock);
    *(own->previous ? &own->previous->next : &ggml->buffers) = own->next;
    if (own->next) own->next->previous = own->previous;
    pthread_mutex_unlock(&ggml->lock);
    while (own->parts) {
        lochi_ggml_part *part = own->parts;
        own->parts = part->next;
        if (loch_free(ggml->pool, part->address) != LOCH_OK) lochi_ggml_log(ggml, "free a cache", part->bytes);
        free(part);
    }
    if (loch_free(ggml->pool, own->base) != LOCH_OK) lochi_ggml_log(ggml, "free a buffer", buffer->size);
    free(own);
    lochi_ggml_release(ggml);
}

static void *buffer_get_base(ggml_backend_buffer_t buffer)
{
    return ((const lochi_ggml_buffer *)buffer->context)->base;
}

static enum ggml_status buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor)
{
    lochi_ggml_buffer *own = buffer->context;
    run_end();
    if (!own->grows || tensor->view_src) return GGML_STATUS_SUCCESS;
    const loch_request request = {.size = sizeof request,
                                  .alignment = LOCHI_GGML_PAGE,
                                  .tag = own->ggml->tags[LOCH_GGML_CACHE],
                                  .max_bytes = GGML_PAD(ggml_nbytes(tensor), LOCHI_GGML_ALIGNMENT)};
    void *address = NULL;
    lochi_ggml_part *part = calloc(1, sizeof *part);
    if (!part) return GGML_STATUS_ALLOC_FAILED;
    if (request.max_bytes && loch_allocator_alloc(own->ggml->pool, &request, &address) != LOCH_OK) {
        lochi_ggml_log(own->ggml, "reserve addresses for a cache", request.max_bytes);
        free(part);
        return GGML_STATUS_ALLOC_FAILED;
    }
    *part =
        (lochi_ggml_part){.address = address ? address : own->base, .max_bytes = request.max_bytes, .next = own->parts};
    own->parts = part;
    tensor->data = part->address;
    tensor->extra = part;
    return GGML_STATUS_SUCCESS;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset,
                          size_t size)
{
    lochi_ggml_buffer *own = buffer->context;
    size_t start;
    lochi_ggml_part *part = part_find(own, tensor, &start);
    if (part && !value) size = part_present(part, start + offset, size); /* the rest is zero */
    if (part && size && !part_grow_or_lose(own, part, start + offset + size)) return;
    if (size) memset((char *)tensor->data + offset, value, size);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
                       size_t size)
{
    lochi_ggml_buffer *own = buffer->context;
    size_t start;
    lochi_ggml_part *part = part_find(own, tensor, &start);
    if (part && !part_grow_or_lose(own, part, start + offset + size)) return;
    memcpy((char *)tensor->data + offset, data, size);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset,
                       size_t size)
{
    size_t start;
    const lochi_ggml_part *part = part_find(buffer->context, tensor, &start);
    const size_t present = part ? part_present(part, start + offset, size) : size;
    if (present) memcpy(data, (const char *)tensor->data + offset, present);
    memset((char *)data + present, 0, size - present);
}

/* Copies between two tensors of any size of memory; what has none is zero. */
static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *from, struct ggml_tensor *to)
{
    const size_t bytes = ggml_nbytes(from);
    const ggml_backend_buffer_t from_buffer = from->view_src ? from->view_src->buffer : from->buffer;
    const lochi_ggml_buffer *source = lochi_ggml_find(from_buffer);
    if (!source && !ggml_backend_buffer_is_host(from_buffer)) return false;
    size_t start;
    const lochi_ggml_part *part = source ? part_find(source, from, &start) : NULL;
    const size_t present = part ? part_present(part, start, bytes) : bytes;
    if (present) buffer_set(buffer, to, from->data, 0, present);
    buffer_memset(buffer, to, 0, present, bytes - present);
    return true;
}

/* Sets all bytes. Zeros in a cache are no memory: it goes back to the pool. */
static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    lochi_ggml_buffer *own = buffer->context;
    if (!own->grows) {
        memset(own->base, value, buffer->size);
        return;
    }
    atomic_store_explicit(&own->lost, false, memory_order_release);
    for (lochi_ggml_part *part = own->parts; part; part = part->next) {
        if (value) {
            if (part_grow_or_lose(own, part, part->max_bytes)) memset(part->address, value, part->max_bytes);
        } else if (part->bytes && loch_pool_resize_growable(own->ggml->pool, part->address, 0) == LOCH_OK) {
            part->bytes = 0;
        } else if (part->bytes) {
            memset(part->address, 0, part->bytes); /* the pool is busy, for example asleep in part */
        }
    }
}

static const struct ggml_backend_buffer_i buffer_interface = {
    .free_buffer = buffer_free,
    .get_base = buffer_get_base,
    .init_tensor = buffer_init_tensor,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
};

lochi_ggml_buffer *lochi_ggml_find(ggml_backend_buffer_t buffer)
{
    return buffer && buffer->iface.free_buffer == buffer_free ? buffer->context : NULL;
}

/* --- the interface of a type of buffers --- */

/* Allocates the memory of a buffer, or for a cache the addresses. */
static loch_status buffer_alloc(lochi_ggml_buffer *own, size_t bytes)
{
    loch_request request = {
        .size = sizeof request, .bytes = bytes, .alignment = LOCHI_GGML_ALIGNMENT, .tag = own->ggml->tags[own->kind]};
    loch_status status = LOCH_E_UNSUPPORTED;
    if (own->kind == LOCH_GGML_CACHE) {
        request.max_bytes = bytes;
        request.bytes = 0;
        status = loch_allocator_alloc(own->ggml->pool, &request, &own->base);
        own->grows = status == LOCH_OK;
        request.max_bytes = 0;
        request.bytes = bytes;
    }
    if (own->kind == LOCH_GGML_WEIGHTS) request.alignment = request.round_bytes = LOCHI_GGML_PAGE;
    if (status == LOCH_E_UNSUPPORTED) status = loch_allocator_alloc(own->ggml->pool, &request, &own->base);
    return status;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t bytes)
{
    loch_ggml *ggml = type->context;
    const bool is_guess = type == &ggml->types[LOCHI_GGML_BY_TENSORS];
    const loch_ggml_kind guess = run_guess(type, bytes);
    lochi_ggml_buffer *own = calloc(1, sizeof *own);
    if (!own) return NULL;
    own->ggml = ggml;
    own->is_guess = is_guess;
    own->kind = is_guess ? guess : (loch_ggml_kind)(type - ggml->types);
    if (own->kind == LOCH_GGML_COMPUTE && guess == LOCH_GGML_WEIGHTS) {
        own->kind = LOCH_GGML_WEIGHTS; /* the embedding of the tokens, which llama.cpp keeps near the host */
        own->is_guess = true;
    }
    if (buffer_alloc(own, bytes) != LOCH_OK) {
        lochi_ggml_log(ggml, "allocate a buffer", bytes);
        free(own);
        return NULL;
    }
    own->buffer = ggml_backend_buffer_init(type, buffer_interface, own, bytes);
    lochi_ggml_retain(ggml);
    pthread_mutex_lock(&ggml->lock);
    own->next = ggml->buffers;
    if (own->next) own->next->previous = own;
    ggml->buffers = own;
    pthread_mutex_unlock(&ggml->lock);
    return own->buffer;
}

static const char *type_get_name(ggml_backend_buffer_type_t type)
{
    const loch_ggml *ggml = type->context;
    return ggml->type_names[type - ggml->types];
}

static size_t type_get_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return LOCHI_GGML_ALIGNMENT;
}

static size_t type_get_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor)
{
    const size_t bytes = ggml_nbytes(tensor);
    run_note(type, tensor, bytes);
    return bytes;
}

/* Tells ggml whether it may use addresses of tensors on its own. Not for types that make caches: a part of a cache that
 * was not used yet has no memory. */
static bool type_is_host(ggml_backend_buffer_type_t type)
{
    const loch_ggml *ggml = type->context;
    return type != &ggml->types[LOCH_GGML_CACHE] && type != &ggml->types[LOCHI_GGML_BY_TENSORS];
}

void lochi_ggml_init_types(loch_ggml *ggml)
{
    static const char *const suffixes[] = {"_Weights", "_Cache", "_Host", ""};
    static const struct ggml_backend_buffer_type_i interface = {
        .get_name = type_get_name,
        .alloc_buffer = type_alloc,
        .get_alignment = type_get_alignment,
        .get_alloc_size = type_get_alloc_size,
        .is_host = type_is_host,
    };
    for (int i = 0; i < LOCHI_GGML_TYPES; i++) {
        snprintf(ggml->type_names[i], sizeof ggml->type_names[i], "%s%s", ggml->name, suffixes[i]);
        ggml->types[i] =
            (struct ggml_backend_buffer_type){.iface = interface, .device = &ggml->device, .context = ggml};
    }
}

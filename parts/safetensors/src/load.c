/* SPDX-License-Identifier: MIT */
/* Tensors out of a file: views of the mapping, copies of them or of parts, and parameters. */
#include "common.h"
#include "model.h"
#include "pieces.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The fewest bytes for a device that are worth pinned memory. */
#define LOAD_PIECES_MIN ((size_t)1 << 20)

/* --- what is read --- */

/* The elements of a load: a tensor, or a part of it along an axis. */
typedef struct load_source {
    const safetensors_entry *entry;
    int64_t shape[LOCH_DIMENSIONS_MAX]; /* of what is loaded */
    uint64_t offset;                    /* of the first byte in the file: of the part if it is one run, or of all */
    size_t bytes;                       /* of that run */
    bool is_scattered;                  /* the part is not one run: indices of `axis` of the whole tensor */
    int axis;
    int64_t start, count;
} load_source;

static load_source load_whole(const safetensors_entry *entry)
{
    load_source source = {
        .entry = entry, .offset = entry->file->data_start + entry->start, .bytes = (size_t)(entry->end - entry->start)};
    for (size_t i = 0; i < entry->dimensions; i++)
        source.shape[i] = entry->shape[i];
    return source;
}

/* Reads the part of a source from options, and checks it. */
static loch_status load_read_part(const loch_safetensors_load_options *how, load_source *source)
{
    const safetensors_entry *entry = source->entry;
    const int dimensions = (int)entry->dimensions;
    source->axis = how->axis < 0 ? how->axis + dimensions : how->axis;
    if (source->axis < 0 || source->axis >= dimensions)
        return LOCH_FAIL(INVALID, "%s: \"%.60s\" has no axis %d: it has %d dimensions",
                         safetensors_tail(entry->file->path), entry->name, how->axis, dimensions);
    const int64_t size = entry->shape[source->axis];
    if (how->start < 0 || how->count < 0 || how->start > size || how->count > size - how->start)
        return LOCH_FAIL(OUT_OF_RANGE, "%s: %lld indices from %lld on do not fit axis %d of \"%.50s\", which has %lld",
                         safetensors_tail(entry->file->path), (long long)how->count, (long long)how->start,
                         source->axis, entry->name, (long long)size);
    source->start = how->start;
    source->count = how->count ? how->count : size - how->start;
    return LOCH_OK;
}

/* Finds the elements that options name. */
static loch_status load_find(const safetensors_entry *entry, const loch_safetensors_load_options *how, load_source *out)
{
    *out = load_whole(entry);
    if (!how->axis && !how->start && !how->count) return LOCH_OK;
    LOCH_RETURN(load_read_part(how, out));
    const int64_t size = out->shape[out->axis];
    for (int i = 0; i < out->axis; i++)
        out->is_scattered |= out->shape[i] != 1;
    out->shape[out->axis] = out->count;
    if (out->is_scattered) return LOCH_OK;
    const size_t row = size ? out->bytes / (size_t)size : 0;
    out->offset += (uint64_t)out->start * row;
    out->bytes = (size_t)out->count * row;
    return LOCH_OK;
}

/* --- the tensor of a file --- */

static bool load_is_swapped(const load_source *source)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ && loch_dtype_bytes(source->entry->type->dtype) > 1;
}

/* Reads the run of a source from the file into a tensor that the host can access, contiguous and of the file's type. */
static loch_status load_read(const load_source *source, loch_tensor *to, loch_stream *stream)
{
    loch_mapping mapping;
    LOCH_RETURN(loch_tensor_map(to, LOCH_MAP_WRITE, stream, &mapping));
    const loch_status status =
        lochi_safetensors_file_read(source->entry->file, source->offset, mapping.address, source->bytes);
    if (status == LOCH_OK)
        lochi_safetensors_swap(mapping.address, source->bytes, loch_dtype_bytes(source->entry->type->dtype));
    const loch_error failed = *loch_error_get();
    const loch_status unmapped = loch_tensor_unmap(&mapping, stream);
    if (status == LOCH_OK) return unmapped;
    return loch_error_set(status, NULL, 0, "%s", failed.sentence);
}

/* Creates the tensor of a run: a view of the mapping if possible, otherwise a copy in host memory. */
static loch_status load_run(const load_source *source, const int64_t *shape, loch_buffer *mapped, loch_tensor **out)
{
    const safetensors_entry *entry = source->entry;
    const loch_dtype dtype = entry->type->dtype;
    if (source->bytes && source->offset % loch_dtype_bytes(dtype) == 0 && !load_is_swapped(source))
        return loch_tensor_create_in(mapped, (size_t)source->offset, dtype, entry->dimensions, shape, NULL, out);
    LOCH_RETURN(loch_tensor_create(dtype, entry->dimensions, shape, NULL, out));
    const loch_status status = source->bytes ? load_read(source, *out, NULL) : LOCH_OK;
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}

/* Creates the tensor of a source, on one of the mappings of its file. */
static loch_status load_tensor(const load_source *source, loch_buffer *mapped, loch_tensor **out)
{
    if (!source->is_scattered) return load_run(source, source->shape, mapped, out);
    loch_tensor *whole;
    LOCH_RETURN(load_run(source, source->entry->shape, mapped, &whole));
    const loch_status status =
        loch_tensor_slice(whole, source->axis, source->start, source->start + source->count, 1, out);
    loch_tensor_release(whole);
    return status;
}

loch_status loch_safetensors_acquire_tensor(const loch_safetensors *file, const char *name, loch_tensor **out)
{
    LOCHI_NOT_CANCELLED;
    if (out) *out = NULL;
    if (!file || !name || !out)
        return LOCH_FAIL(INVALID, "a tensor of a safetensors file needs the file, a name and an out pointer");
    const safetensors_entry *entry;
    LOCH_RETURN(lochi_safetensors_model_find(file, name, &entry));
    const load_source source = load_whole(entry);
    return load_tensor(&source, entry->file->shown, out);
}

/* --- copies --- */

static loch_status load_read_options(const loch_safetensors_load_options *given, loch_safetensors_load_options *out)
{
    *out = (loch_safetensors_load_options){.size = sizeof *out};
    LOCH_RETURN(lochi_sized_read("the options for safetensors", given, out, sizeof *out));
    if (out->dtype != LOCH_DTYPE_NONE && !loch_dtype_bytes(out->dtype))
        return LOCH_FAIL(INVALID, "%d is not a loch_dtype", (int)out->dtype);
    return LOCH_OK;
}

/* How a source gets into a tensor. */
typedef enum load_way {
    LOAD_READ,   /* read in place: the host has access */
    LOAD_PIECES, /* read into pinned memory, which the device copies from */
    LOAD_MAPPING /* copied from the mapping, by way of any conversion */
} load_way;

/* Returns whether pieces can be copied on a stream. No graph can hold the copies: the pieces go when the call ends. */
static bool load_has_pieces(const loch_tensor *to, loch_stream *stream)
{
    loch_capture_info capture = {.size = sizeof capture};
    if (!loch_tensor_get_device(to)) return false;
    if (!stream) return true;
    return loch_stream_get_device(stream) == loch_tensor_get_device(to) &&
           loch_stream_query_capture(stream, &capture) == LOCH_OK && !capture.active;
}

/* Chooses the way of a source. Reading the file is faster than a copy of pages that are not mapped yet, but the bytes
 * must be in order. */
static load_way load_choose(const load_source *source, const loch_tensor *to, loch_stream *stream)
{
    const bool is_plain = source->bytes && !source->is_scattered && loch_tensor_is_contiguous(to) &&
                          loch_tensor_get_dtype(to) == source->entry->type->dtype;
    if (!is_plain) return LOAD_MAPPING;
    if (loch_tensor_is_on_host(to)) return LOAD_READ;
    return !load_is_swapped(source) && load_has_pieces(to, stream) ? LOAD_PIECES : LOAD_MAPPING;
}

static loch_status load_copy_mapped(const load_source *source, loch_tensor *to, loch_stream *stream,
                                    loch_overflow overflow)
{
    loch_tensor *from;
    LOCH_RETURN(load_tensor(source, source->entry->file->mapped, &from));
    const loch_tensor_copy_options copy = {.size = sizeof copy, .stream = stream, .overflow = overflow};
    const loch_status status = loch_tensor_copy(to, from, &copy);
    loch_tensor_release(from);
    return status;
}

static safetensors_target load_target(const load_source *source, loch_tensor *to)
{
    return (safetensors_target){
        .file = source->entry->file, .offset = source->offset, .bytes = source->bytes, .tensor = to};
}

/* Fills targets on one device. Without a stream the call waits. */
static loch_status load_targets(safetensors_target *targets, size_t count, loch_stream *stream)
{
    if (stream) return lochi_safetensors_pieces_load(targets, count, stream, LOCH_WAIT_QUEUED);
    loch_device *device = loch_tensor_get_device(targets->tensor);
    return lochi_safetensors_pieces_load(targets, count, loch_stream_get_default(device), LOCH_WAIT_END);
}

/* Copies a source into a tensor of its shape. */
static loch_status load_into(const load_source *source, loch_tensor *to, loch_stream *stream, loch_overflow overflow)
{
    const load_way way = load_choose(source, to, stream);
    if (way == LOAD_READ) return load_read(source, to, stream);
    if (way == LOAD_MAPPING || source->bytes < LOAD_PIECES_MIN) return load_copy_mapped(source, to, stream, overflow);
    safetensors_target target = load_target(source, to);
    return load_targets(&target, 1, stream);
}

static loch_status load_new(const load_source *source, const loch_safetensors_load_options *how, loch_tensor **out)
{
    loch_tensor_options memory = {.size = sizeof memory};
    LOCH_RETURN(lochi_sized_read("the options for safetensors", how->memory, &memory, sizeof memory));
    memory.flags &= ~(uint32_t)LOCH_ALLOC_ZEROED; /* every byte is written */
    LOCH_RETURN(loch_tensor_create(how->dtype ? how->dtype : source->entry->type->dtype, source->entry->dimensions,
                                   source->shape, &memory, out));
    const loch_status status = load_into(source, *out, memory.stream, how->overflow);
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}

loch_status loch_safetensors_load(const loch_safetensors *file, const char *name,
                                  const loch_safetensors_load_options *options, loch_tensor **out)
{
    LOCHI_NOT_CANCELLED;
    if (out) *out = NULL;
    if (!file || !name || !out)
        return LOCH_FAIL(INVALID, "loading from a safetensors file needs the file, a name and an out pointer");
    loch_safetensors_load_options how;
    const safetensors_entry *entry;
    load_source source;
    LOCH_RETURN(load_read_options(options, &how));
    LOCH_RETURN(lochi_safetensors_model_find(file, name, &entry));
    LOCH_RETURN(load_find(entry, &how, &source));
    return load_new(&source, &how, out);
}

static loch_status load_check_shape(const load_source *source, const loch_tensor *to)
{
    const safetensors_entry *entry = source->entry;
    const int64_t *wanted = loch_tensor_get_shape(to);
    if (entry->dimensions != loch_tensor_get_dimensions(to))
        return LOCH_FAIL(INVALID, "%s: \"%.60s\" has %zu dimensions and cannot fill a tensor with %zu",
                         safetensors_tail(entry->file->path), entry->name, entry->dimensions,
                         loch_tensor_get_dimensions(to));
    for (size_t i = 0; i < entry->dimensions; i++)
        if (source->shape[i] != wanted[i])
            return LOCH_FAIL(INVALID, "%s: \"%.60s\" has size %lld along axis %zu and cannot fill a tensor with %lld",
                             safetensors_tail(entry->file->path), entry->name, (long long)source->shape[i], i,
                             (long long)wanted[i]);
    return LOCH_OK;
}

/* Finds the source of a copy by its name, and checks it against the tensor. */
static loch_status load_find_for(const loch_safetensors *file, const char *name,
                                 const loch_safetensors_load_options *how, const loch_tensor *to, load_source *out)
{
    const safetensors_entry *entry;
    LOCH_RETURN(lochi_safetensors_model_find(file, name, &entry));
    LOCH_RETURN(load_find(entry, how, out));
    return load_check_shape(out, to);
}

loch_status loch_safetensors_copy(const loch_safetensors *file, const char *name, loch_tensor *to,
                                  const loch_safetensors_load_options *options)
{
    LOCHI_NOT_CANCELLED;
    if (!file || !name || !to)
        return LOCH_FAIL(INVALID, "copying from a safetensors file needs the file, a name and a tensor");
    loch_safetensors_load_options how;
    load_source source;
    LOCH_RETURN(load_read_options(options, &how));
    LOCH_RETURN(load_find_for(file, name, &how, to, &source));
    return load_into(&source, to, how.stream, how.overflow);
}

/* --- many copies --- */

/* Orders targets by device, file and place. */
static int load_compare(const void *a, const void *b)
{
    const safetensors_target *one = a, *other = b;
    const uintptr_t here = (uintptr_t)loch_tensor_get_device(one->tensor);
    const uintptr_t there = (uintptr_t)loch_tensor_get_device(other->tensor);
    if (here != there) return here < there ? -1 : 1;
    if (one->file != other->file) return (uintptr_t)one->file < (uintptr_t)other->file ? -1 : 1;
    return (one->offset > other->offset) - (one->offset < other->offset);
}

/* Fills all targets, one device after the other. */
static loch_status load_all_targets(safetensors_target *targets, size_t count, loch_stream *stream)
{
    qsort(targets, count, sizeof *targets, load_compare);
    for (size_t first = 0, end; first < count; first = end) {
        loch_device *device = loch_tensor_get_device(targets[first].tensor);
        for (end = first + 1; end < count && loch_tensor_get_device(targets[end].tensor) == device;)
            end++;
        LOCH_RETURN(load_targets(targets + first, end - first, stream));
    }
    return LOCH_OK;
}

static loch_status load_many(const loch_safetensors *file, const char *const *names, loch_tensor *const *to,
                             size_t count, const loch_safetensors_load_options *how, safetensors_target *targets)
{
    load_source source;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (!names[i] || !to[i]) return LOCH_FAIL(INVALID, "tensor %zu of %zu to copy, or its name, is NULL", i, count);
        LOCH_RETURN(load_find_for(file, names[i], how, to[i], &source));
    }
    for (size_t i = 0; i < count; i++) {
        LOCH_RETURN(load_find_for(file, names[i], how, to[i], &source));
        if (load_choose(&source, to[i], how->stream) == LOAD_PIECES)
            targets[found++] = load_target(&source, to[i]);
        else
            LOCH_RETURN(load_into(&source, to[i], how->stream, how->overflow));
    }
    return load_all_targets(targets, found, how->stream);
}

loch_status loch_safetensors_copy_many(const loch_safetensors *file, const char *const *names, loch_tensor *const *to,
                                       size_t count, const loch_safetensors_load_options *options)
{
    LOCHI_NOT_CANCELLED;
    if (!file || (count && (!names || !to)))
        return LOCH_FAIL(INVALID, "copying from a safetensors file needs the file, names and tensors");
    loch_safetensors_load_options how;
    LOCH_RETURN(load_read_options(options, &how));
    if (!count) return LOCH_OK;
    safetensors_target *targets = calloc(count, sizeof *targets);
    if (!targets) return LOCH_FAIL(HOST_MEMORY, "no host memory for copies of %zu tensors", count);
    const loch_status status = load_many(file, names, to, count, &how, targets);
    free(targets);
    return status;
}

/* --- parameters --- */

/* Has the system read the elements of a tensor from the disk, without waiting for them. */
static void load_read_ahead(const safetensors_entry *entry)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t start = (size_t)(entry->file->data_start + entry->start) & ~(page - 1);
    char *pages = loch_buffer_get_address(entry->file->mapped);
    (void)madvise(pages + start, (size_t)(entry->file->data_start + entry->end) - start, MADV_WILLNEED);
}

static loch_status load_parameter(const safetensors_entry *entry, loch_context *context, loch_parameter *parameter)
{
    const load_source source = load_whole(entry);
    loch_tensor *from;
    LOCH_RETURN(load_tensor(&source, entry->file->mapped, &from));
    const loch_status status = loch_context_load(context, parameter, from);
    loch_tensor_release(from);
    return status;
}

loch_status loch_safetensors_load_parameters(const loch_safetensors *file, loch_context *context,
                                             loch_parameter *const *parameters, size_t count)
{
    LOCHI_NOT_CANCELLED;
    if (!file || !context || (count && !parameters))
        return LOCH_FAIL(INVALID, "loading parameters from a safetensors file needs the file, a context and them");
    const safetensors_entry *entry;
    for (size_t i = 0; i < count; i++) {
        if (!parameters[i]) return LOCH_FAIL(INVALID, "parameter %zu of %zu to load is NULL", i, count);
        LOCH_RETURN(lochi_safetensors_model_find(file, loch_parameter_get_name(parameters[i]), &entry));
    }
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count) {
            LOCH_RETURN(lochi_safetensors_model_find(file, loch_parameter_get_name(parameters[i + 1]), &entry));
            load_read_ahead(entry);
        }
        LOCH_RETURN(lochi_safetensors_model_find(file, loch_parameter_get_name(parameters[i]), &entry));
        LOCH_RETURN(load_parameter(entry, context, parameters[i]));
    }
    return LOCH_OK;
}

/* SPDX-License-Identifier: MIT */
/* Loads .npy files. Checks the header first, against the length of the file if it is a regular file, so that a damaged
 * file costs no memory. Then the data is mapped, or read directly into the tensor's memory, or read in pieces for a
 * device. A column-major file is loaded as a row-major tensor of the reversed shape, and then its axes are reversed. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/device.h"
#include "device/ranges.h"
#include "tensor/tensor.h"
#include "tensor/npy/header.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Size of pieces that go through the host. */
#define NPY_PIECE ((size_t)4 << 20)

/* The most that one system call is asked to read; systems have a limit close to it. */
#define NPY_READ_MAX ((size_t)1 << 30)

typedef struct npy_source {
    const char *path;
    int file;
    bool is_regular;
    uint64_t file_bytes; /* for a regular file */
    uint64_t position;   /* bytes read so far; after the header, the start of the data */
    lochi_npy_header header;
    lochi_layout layout;              /* as stored: row-major; of the reversed shape if the file is column-major */
    loch_tensor_options memory;       /* options for the tensor's memory */
    const loch_npy_load_options *how; /* the options after reading */
} npy_source;

/* --- reading --- */

/* Reads up to `bytes`. Reads less only at the end of the file. */
static loch_status npy_read_some(npy_source *source, void *to, size_t bytes, size_t *got)
{
    LOCHI_NOT_CANCELLED;
    for (*got = 0; *got < bytes;) {
        const size_t left = bytes - *got;
        const ssize_t count = read(source->file, (char *)to + *got, left < NPY_READ_MAX ? left : NPY_READ_MAX);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return LOCH_FAIL(IO, "%.120s cannot be read: %s", source->path, strerror(errno));
        if (count == 0) break;
        *got += (size_t)count;
    }
    source->position += *got;
    return LOCH_OK;
}

/* Reads exactly `bytes`. `what` names the data in the error sentence. */
static loch_status npy_read(npy_source *source, void *to, size_t bytes, const char *what)
{
    size_t got;
    LOCH_TRY_RETURN(npy_read_some(source, to, bytes, &got));
    if (got == bytes) return LOCH_OK;
    return LOCH_FAIL(CORRUPT, "%.120s is truncated: %zu of %zu bytes of %s are missing", source->path, bytes - got,
                     bytes, what);
}

/* Checks that a regular file still has `bytes` bytes, before anything is read or allocated for them. */
static loch_status npy_check_left(const npy_source *source, size_t bytes, const char *what)
{
    if (!source->is_regular) return LOCH_OK;
    const uint64_t left = source->file_bytes > source->position ? source->file_bytes - source->position : 0;
    if (left >= bytes) return LOCH_OK;
    return LOCH_FAIL(CORRUPT, "%.120s is truncated: %llu of %zu bytes of %s are missing", source->path,
                     (unsigned long long)(bytes - left), bytes, what);
}

static loch_status npy_open(npy_source *source)
{
    LOCHI_NOT_CANCELLED;
    do
        source->file = open(source->path, O_RDONLY | O_CLOEXEC);
    while (source->file < 0 && errno == EINTR);
    if (source->file < 0 && (errno == ENOENT || errno == ENOTDIR))
        return LOCH_FAIL(NOT_FOUND, "%.120s: %s", source->path, strerror(errno));
    if (source->file < 0) return LOCH_FAIL(IO, "%.120s cannot be opened: %s", source->path, strerror(errno));
    struct stat about;
    if (fstat(source->file, &about) != 0)
        return LOCH_FAIL(IO, "the size of %.120s cannot be read: %s", source->path, strerror(errno));
    source->is_regular = S_ISREG(about.st_mode);
    source->file_bytes = source->is_regular ? (uint64_t)about.st_size : 0;
    return LOCH_OK;
}

/* --- the header --- */

/* Reads the magic number, the version and the length of the dict. */
static loch_status npy_read_start(npy_source *source, size_t *dict_bytes)
{
    unsigned char start[LOCHI_NPY_MAGIC_BYTES + 2], length[4] = {0};
    size_t got;
    LOCH_TRY_RETURN(npy_read_some(source, start, sizeof start, &got));
    if (got < sizeof start || memcmp(start, LOCHI_NPY_MAGIC, LOCHI_NPY_MAGIC_BYTES) != 0)
        return LOCH_FAIL(CORRUPT, "%.120s is not an .npy file%s", source->path,
                         got > 4 && memcmp(start, "PK\3\4", 4) == 0
                             ? " but a zip archive: extract the .npy files from it first"
                             : "");
    const unsigned major = start[LOCHI_NPY_MAGIC_BYTES], minor = start[LOCHI_NPY_MAGIC_BYTES + 1];
    if (major < 1 || major > 3 || minor)
        return LOCH_FAIL(UNSUPPORTED,
                         "%.120s has version %u.%u of the .npy format; versions 1.0, 2.0 and 3.0 are supported",
                         source->path, major, minor);
    LOCH_TRY_RETURN(npy_read(source, length, major == 1 ? 2 : 4, "the header's length"));
    *dict_bytes = (size_t)length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    return LOCH_OK;
}

static loch_status npy_read_header(npy_source *source)
{
    size_t bytes;
    LOCH_TRY_RETURN(npy_read_start(source, &bytes));
    LOCH_TRY_RETURN(npy_check_left(source, bytes, "the header"));
    if (bytes > LOCHI_NPY_HEADER_MAX)
        return LOCH_FAIL(CORRUPT, "%.120s has a header of %zu bytes; the most that is read is %s", source->path, bytes,
                         LOCHI_SIZE(LOCHI_NPY_HEADER_MAX));
    char *text = lochi_alloc(bytes + 1); /* + 1: an empty header is left for the parser to refuse */
    if (!text) return LOCH_FAIL(HOST_MEMORY, "no host memory for a header of %s", LOCHI_SIZE(bytes));
    loch_status status = npy_read(source, text, bytes, "the header");
    if (status == LOCH_OK) status = lochi_npy_header_read(source->path, text, bytes, &source->header);
    lochi_free(text);
    return status;
}

/* Sets the type of raw bytes from the caller's options. */
static loch_status npy_choose_dtype(npy_source *source)
{
    lochi_npy_header *header = &source->header;
    if (header->dtype != LOCH_DTYPE_NONE) return LOCH_OK;
    if (source->how->dtype == LOCH_DTYPE_NONE)
        return LOCH_FAIL(UNSUPPORTED, "%.120s has raw elements (V%zu): set dtype in the options", source->path,
                         header->element_bytes);
    if (loch_dtype_bytes(source->how->dtype) != header->element_bytes)
        return LOCH_FAIL(INVALID, "%.120s has raw elements of %zu bytes, which cannot be read as %s", source->path,
                         header->element_bytes, loch_dtype_name(source->how->dtype));
    header->dtype = source->how->dtype;
    return LOCH_OK;
}

static loch_status npy_make_layout(npy_source *source)
{
    const lochi_npy_header *header = &source->header;
    int64_t shape[LOCH_DIMENSIONS_MAX] = {0};
    for (size_t i = 0; i < header->dimensions; i++)
        shape[i] = header->shape[header->is_columns ? header->dimensions - 1 - i : i];
    LOCH_TRY_RETURN(lochi_layout_make(header->dtype, header->dimensions, shape, NULL, &source->layout));
    return npy_check_left(source, source->layout.elements * source->layout.element_bytes, "data");
}

/* --- mapping --- */

static size_t npy_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Unmaps the data. A mapping begins at a page boundary, and the data somewhere after it. */
static void npy_unmap(void *address, size_t bytes, void *user)
{
    (void)user;
    const size_t before = (uintptr_t)address & (npy_page_bytes() - 1);
    munmap((char *)address - before, bytes + before);
}

/* Returns why the data cannot be mapped. Returns NULL if it can. */
static const char *npy_mapping_obstacle(const npy_source *source)
{
    const loch_tensor_options *memory = &source->memory;
    if (!source->is_regular) return "it is not a regular file";
    if (source->header.is_swapped) return "its byte order is not this machine's";
    if (source->position % source->layout.element_bytes) return "its elements do not lie at multiples of their size";
    if (memory->allocator) return "memory of an allocator is asked for";
    if (memory->device && !loch_device_can(memory->device, LOCH_CAN_HOST_ACCESS)) return "the host is not its place";
    if (memory->device && source->how->mapping == LOCH_NPY_MAP_AUTO) return "memory of a device is asked for";
    if (memory->alignment > npy_page_bytes() || (memory->alignment && source->position % memory->alignment))
        return "its data does not lie at a multiple of the alignment";
    return NULL;
}

static loch_status npy_wrap(npy_source *source, void *address, size_t bytes, loch_tensor **out)
{
    const loch_external external = {
        .size = sizeof external, .device = source->memory.device, .deleter = npy_unmap, .access = source->how->access};
    loch_buffer *buffer;
    const loch_status wrapped = loch_buffer_wrap(address, bytes, &external, &buffer);
    if (wrapped != LOCH_OK) {
        npy_unmap(address, bytes, NULL);
        return wrapped;
    }
    loch_status status = lochi_tensor_make(buffer, 0, &source->layout, out);
    loch_buffer_release(buffer);
    if (status == LOCH_OK) status = lochi_tensor_set_name(*out, source->memory.name);
    return status;
}

/* Maps the data with private pages: writes never reach the file. Returns LOCH_OK and NULL if the data must be read
 * instead. */
static loch_status npy_map(npy_source *source, loch_tensor **out)
{
    const char *obstacle = npy_mapping_obstacle(source);
    const size_t bytes = source->layout.elements * source->layout.element_bytes;
    const size_t before = (size_t)(source->position & (npy_page_bytes() - 1));
    void *pages = MAP_FAILED;
    if (!obstacle) {
        const int protection = source->how->access == LOCH_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
        pages = mmap(NULL, bytes + before, protection, MAP_PRIVATE, source->file, (off_t)(source->position - before));
        if (pages == MAP_FAILED) obstacle = strerror(errno);
    }
    if (pages != MAP_FAILED) return npy_wrap(source, (char *)pages + before, bytes, out);
    if (source->how->mapping == LOCH_NPY_MAP_AUTO) return LOCH_OK;
    return LOCH_FAIL(UNSUPPORTED, "%.120s cannot be mapped: %s", source->path, obstacle);
}

/* --- data --- */

static void npy_swap(void *data, size_t element_bytes, size_t bytes)
{
    for (char *at = data, *end = at + bytes; at < end; at += element_bytes)
        for (size_t i = 0; i < element_bytes / 2; i++) {
            const char byte = at[i];
            at[i] = at[element_bytes - 1 - i];
            at[element_bytes - 1 - i] = byte;
        }
}

static loch_status npy_read_elements(npy_source *source, void *to, size_t bytes)
{
    LOCH_TRY_RETURN(npy_read(source, to, bytes, "data"));
    if (source->header.is_swapped) npy_swap(to, source->layout.element_bytes, bytes);
    return LOCH_OK;
}

static loch_status npy_fill_host(npy_source *source, loch_tensor *tensor)
{
    loch_mapping mapping;
    LOCH_TRY_RETURN(loch_tensor_map(tensor, LOCH_MAP_WRITE, source->memory.stream, &mapping));
    const loch_status status = npy_read_elements(source, mapping.address, loch_tensor_get_bytes(tensor));
    const loch_error saved = lochi_error_save();
    const loch_status unmapped = loch_tensor_unmap(&mapping, source->memory.stream);
    if (status == LOCH_OK) return unmapped;
    lochi_error_restore(&saved);
    return status;
}

/* Fills elements [first, first + count) of the tensor as one row. */
static loch_status npy_fill_part(npy_source *source, loch_tensor *row, size_t first, size_t count, void *piece)
{
    loch_tensor *part = NULL;
    loch_status status;
    const size_t bytes = count * source->layout.element_bytes;
    LOCH_TRY(npy_read_elements(source, piece, bytes), end);
    LOCH_TRY(loch_tensor_slice(row, 0, (int64_t)first, (int64_t)(first + count), 1, &part), end);
    LOCH_TRY(loch_tensor_write(part, piece, bytes, source->memory.stream), end);
end:
    loch_tensor_release(part);
    return status;
}

static loch_status npy_fill_device(npy_source *source, loch_tensor *tensor)
{
    const size_t elements = source->layout.elements, most = NPY_PIECE / source->layout.element_bytes;
    const size_t room = elements < most ? elements : most;
    loch_tensor *row = NULL;
    loch_status status = LOCH_OK;
    void *piece = lochi_alloc_array(room, source->layout.element_bytes);
    if (!piece) return LOCH_FAIL(HOST_MEMORY, "no host memory for reading a file in pieces");
    lochi_host_scope scope;
    lochi_ranges_begin_host(&scope, piece, room * source->layout.element_bytes);
    LOCH_TRY(loch_tensor_view(tensor, LOCH_SHAPE(-1), &row), end);
    for (size_t first = 0; first < elements; first += room) {
        const size_t left = elements - first;
        LOCH_TRY(npy_fill_part(source, row, first, left < room ? left : room, piece), end);
    }
end:
    loch_tensor_release(row);
    lochi_ranges_end_host(&scope);
    lochi_free(piece);
    return status;
}

static loch_status npy_load_read(npy_source *source, loch_tensor **out)
{
    source->memory.flags &= ~(uint32_t)LOCH_ALLOC_ZEROED; /* every byte is written */
    LOCH_TRY_RETURN(lochi_tensor_alloc(&source->layout, &source->memory, out));
    if (!source->layout.elements) return LOCH_OK;
    return loch_tensor_is_on_host(*out) ? npy_fill_host(source, *out) : npy_fill_device(source, *out);
}

/* --- the call --- */

static loch_status npy_turn_axes(npy_source *source, loch_tensor **tensor)
{
    const size_t dimensions = source->layout.dimensions;
    if (!source->header.is_columns || dimensions < 2) return LOCH_OK;
    int axes[LOCH_DIMENSIONS_MAX];
    for (size_t i = 0; i < dimensions; i++)
        axes[i] = (int)(dimensions - 1 - i);
    loch_tensor *turned;
    LOCH_TRY_RETURN(loch_tensor_permute(*tensor, dimensions, axes, &turned));
    loch_tensor_release(*tensor);
    *tensor = turned;
    return lochi_tensor_set_name(turned, source->memory.name);
}

static loch_status npy_load_open(npy_source *source, loch_tensor **out)
{
    LOCH_TRY_RETURN(npy_open(source));
    LOCH_TRY_RETURN(npy_read_header(source));
    LOCH_TRY_RETURN(npy_choose_dtype(source));
    LOCH_TRY_RETURN(npy_make_layout(source));
    /* a tensor without elements needs no mapping */
    if (source->how->mapping != LOCH_NPY_MAP_NEVER && source->layout.elements) LOCH_TRY_RETURN(npy_map(source, out));
    if (!*out) LOCH_TRY_RETURN(npy_load_read(source, out));
    return npy_turn_axes(source, out);
}

static loch_status npy_read_load_options(const loch_npy_load_options *given, loch_npy_load_options *out)
{
    *out = (loch_npy_load_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("options for loading", given, out, sizeof *out));
    if ((unsigned)out->mapping > LOCH_NPY_MAP_REQUIRE || (unsigned)out->access > LOCH_READ_ONLY)
        return LOCH_FAIL(INVALID, "the load options have an invalid `mapping` or `access`");
    if (out->dtype != LOCH_DTYPE_NONE && !loch_dtype_bytes(out->dtype))
        return LOCH_FAIL(INVALID, "%d is not a loch_dtype", (int)out->dtype);
    return LOCH_OK;
}

loch_status loch_npy_load(const char *path, const loch_npy_load_options *options, loch_tensor **out)
{
    LOCHI_NOT_CANCELLED;
    if (out) *out = NULL;
    if (!path || !out) return LOCH_FAIL(INVALID, "loading needs a path and an out pointer");
    loch_npy_load_options how;
    LOCH_TRY_RETURN(npy_read_load_options(options, &how));
    npy_source source = {.path = path, .file = -1, .how = &how};
    LOCH_TRY_RETURN(lochi_tensor_read_options(how.memory, &source.memory));
    const loch_status status = npy_load_open(&source, out);
    if (status != LOCH_OK) loch_tensor_clear(out);
    if (source.file >= 0) close(source.file);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* Saves tensors as .npy files. A file is replaced as a whole (kit/new_file.h). Memory that the host can access and
 * that is contiguous, row-major or column-major, is written directly. Everything else is gathered in pieces of a few
 * megabytes. */
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "kit/new_file.h"
#include "device/ranges.h"
#include "tensor/npy/header.h"

#define NPY_PIECE ((size_t)4 << 20)

/* A file that is being written. */
typedef struct npy_target {
    lochi_new_file file;
    loch_stream *stream;
} npy_target;

/* --- elements --- */

static loch_status npy_write_in_place(npy_target *target, loch_tensor *tensor)
{
    loch_mapping mapping;
    LOCH_TRY_RETURN(loch_tensor_map(tensor, LOCH_MAP_READ, target->stream, &mapping));
    const loch_status status = lochi_new_file_write(&target->file, mapping.address, loch_tensor_get_bytes(tensor));
    const loch_error saved = lochi_error_save();
    const loch_status unmapped = loch_tensor_unmap(&mapping, target->stream);
    if (status == LOCH_OK) return unmapped;
    lochi_error_restore(&saved);
    return status;
}

/* Writes a tensor in row-major order through `piece`: as many indices of the first axis at a time as fit, or one index
 * after the other. */
static loch_status npy_write_gathered(npy_target *target, loch_tensor *tensor, void *piece) // NOLINT(misc-no-recursion)
{
    const size_t bytes = loch_tensor_get_bytes(tensor);
    if (bytes <= NPY_PIECE) {
        LOCH_TRY_RETURN(loch_tensor_read(tensor, piece, bytes, target->stream));
        return lochi_new_file_write(&target->file, piece, bytes);
    }
    const int64_t rows = loch_tensor_get_size(tensor, 0);
    const int64_t most = (int64_t)(NPY_PIECE / (bytes / (size_t)rows));
    const int64_t step = most ? most : 1;
    loch_status status = LOCH_OK;
    for (int64_t row = 0; status == LOCH_OK && row < rows; row += step) {
        loch_tensor *part;
        status = most ? loch_tensor_slice(tensor, 0, row, rows - row < step ? rows : row + step, 1, &part)
                      : loch_tensor_index(tensor, 0, row, &part);
        if (status != LOCH_OK) break;
        status = npy_write_gathered(target, part, piece);
        loch_tensor_release(part);
    }
    return status;
}

static loch_status npy_write_elements(npy_target *target, loch_tensor *tensor)
{
    const size_t bytes = loch_tensor_get_bytes(tensor);
    if (!bytes) return LOCH_OK;
    if (loch_tensor_is_on_host(tensor) && loch_tensor_is_contiguous(tensor)) return npy_write_in_place(target, tensor);
    const size_t piece_bytes = bytes < NPY_PIECE ? bytes : NPY_PIECE;
    void *piece = lochi_alloc(piece_bytes);
    if (!piece) return LOCH_FAIL(HOST_MEMORY, "no host memory for writing a tensor in pieces");
    lochi_host_scope scope;
    lochi_ranges_begin_host(&scope, piece, piece_bytes);
    const loch_status status = npy_write_gathered(target, tensor, piece);
    lochi_ranges_end_host(&scope);
    lochi_free(piece);
    return status;
}

/* --- the call --- */

/* Returns NumPy's name for a type; raw bytes for types that NumPy lacks. */
static const char *npy_descr(loch_dtype dtype)
{
    static const char *const little[LOCH_DTYPE_COUNT] = {
        [LOCH_F64] = "<f8",    [LOCH_F32] = "<f4", [LOCH_F16] = "<f2", [LOCH_BF16] = "<V2", [LOCH_F8E4M3] = "<V1",
        [LOCH_F8E5M2] = "<V1", [LOCH_I8] = "|i1",  [LOCH_I16] = "<i2", [LOCH_I32] = "<i4",  [LOCH_I64] = "<i8",
        [LOCH_U8] = "|u1",     [LOCH_U16] = "<u2", [LOCH_U32] = "<u4", [LOCH_U64] = "<u8",  [LOCH_BOOL] = "|b1"};
    static const char *const big[LOCH_DTYPE_COUNT] = {
        [LOCH_F64] = ">f8",    [LOCH_F32] = ">f4", [LOCH_F16] = ">f2", [LOCH_BF16] = ">V2", [LOCH_F8E4M3] = ">V1",
        [LOCH_F8E5M2] = ">V1", [LOCH_I8] = "|i1",  [LOCH_I16] = ">i2", [LOCH_I32] = ">i4",  [LOCH_I64] = ">i8",
        [LOCH_U8] = "|u1",     [LOCH_U16] = ">u2", [LOCH_U32] = ">u4", [LOCH_U64] = ">u8",  [LOCH_BOOL] = "|b1"};
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? big[dtype] : little[dtype];
}

static bool npy_is_foreign(loch_dtype dtype)
{
    return dtype == LOCH_BF16 || dtype == LOCH_F8E4M3 || dtype == LOCH_F8E5M2;
}

/* Reverses the axes of a column-major tensor. Otherwise returns the tensor itself. The caller owns the reference in
 * `out`. */
static loch_status npy_find_order(loch_tensor *tensor, bool *is_columns, loch_tensor **out)
{
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    *is_columns = false;
    *out = loch_tensor_retain(tensor);
    if (loch_tensor_is_contiguous(tensor)) return LOCH_OK;
    int axes[LOCH_DIMENSIONS_MAX];
    for (size_t i = 0; i < dimensions; i++)
        axes[i] = (int)(dimensions - 1 - i);
    loch_tensor *turned;
    const loch_status status = loch_tensor_permute(tensor, dimensions, axes, &turned);
    *is_columns = status == LOCH_OK && loch_tensor_is_contiguous(turned);
    if (*is_columns || status != LOCH_OK) {
        loch_tensor_release(tensor);
        *out = turned;
    } else {
        loch_tensor_release(turned);
    }
    return status;
}

static loch_status npy_save_ordered(npy_target *target, const char *path, loch_tensor *tensor, loch_tensor *ordered,
                                    bool is_columns)
{
    char header[LOCHI_NPY_HEADER_ROOM];
    const size_t bytes =
        lochi_npy_header_write(npy_descr(loch_tensor_get_dtype(tensor)), is_columns, loch_tensor_get_dimensions(tensor),
                               loch_tensor_get_shape(tensor), header);
    loch_status status = lochi_new_file_open(&target->file, path);
    if (status == LOCH_OK) status = lochi_new_file_write(&target->file, header, bytes);
    if (status == LOCH_OK) status = npy_write_elements(target, ordered);
    return lochi_new_file_close(&target->file, status);
}

loch_status loch_npy_save(loch_tensor *tensor, const char *path, const loch_npy_save_options *options)
{
    if (!path || !tensor) return LOCH_FAIL(INVALID, "saving needs a path and a tensor");
    loch_npy_save_options how = {.size = sizeof how};
    LOCH_TRY_RETURN(lochi_sized_read("options for saving", options, &how, sizeof how));
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    if (npy_is_foreign(dtype) && !how.as_bits)
        return LOCH_FAIL(UNSUPPORTED, "NumPy has no type %s: set as_bits in the options to write raw bytes",
                         loch_dtype_name(dtype));
    npy_target target = {.stream = how.stream};
    loch_tensor *ordered;
    bool is_columns;
    LOCH_TRY_RETURN(npy_find_order(tensor, &is_columns, &ordered));
    const loch_status status = npy_save_ordered(&target, path, tensor, ordered, is_columns);
    loch_tensor_release(ordered);
    return status;
}

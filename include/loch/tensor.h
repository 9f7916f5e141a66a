/* SPDX-License-Identifier: MIT */
/** @file tensor.h
 *  A tensor is a type, a shape and strides on a buffer. A view is a tensor that shares the buffer of another.
 *
 *      loch_tensor *matrix;
 *      LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), NULL, &matrix));
 *      LOCH_CHECK(loch_tensor_fill(matrix, loch_scalar_of(1.5f), NULL));
 *      loch_tensor_release(matrix);
 *
 *  - Tensors are reference counted and keep their buffer alive. Buffer, shape, strides and type never change.
 *  - Shapes and strides count elements, in 64 bits; every product is checked. A size of zero is valid. A tensor
 *    without dimensions is a scalar and has one element. Strides may be zero or negative.
 *  - A tensor cannot be created beyond the end of its buffer. If the buffer shrinks later, using the tensor gives
 *    E_OUT_OF_RANGE.
 *  - A negative axis or index counts from the end. A wrong axis gives E_INVALID, a wrong index E_OUT_OF_RANGE.
 *  - Work is ordered on a stream of one of the devices. With a NULL stream it runs on the default stream, and the
 *    call waits for its end. Both tensors of a copy stay alive until the copy has ended.
 *  - Functions work from any thread. Only one thread or stream at a time may change the contents.
 */
#ifndef LOCH_TENSOR_H
#define LOCH_TENSOR_H

#include <loch/buffer.h>
#include <loch/check.h>
#include <loch/dtype.h>

LOCH_BEGIN_DECLS

/** A tensor. Reference counted. */
typedef struct loch_tensor loch_tensor;

/** The longest name of a tensor in bytes, including the final zero. */
#define LOCH_TENSOR_NAME_MAX 64

/** Writes a shape as two arguments, the number of dimensions and the sizes: loch_tensor_create(LOCH_F32,
 *  LOCH_SHAPE(2, 3), NULL, &t). C only. */
#define LOCH_SHAPE(...)                                                                                                \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/** Writes the shape of a scalar as two arguments: no dimensions. */
#define LOCH_SCALAR 0, NULL

/** @name Create and share */
/** @{ */

/** Where the memory of a new tensor comes from. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_tensor_options {
    size_t size;               /**< sizeof(loch_tensor_options) */
    loch_allocator *allocator; /**< allocator; NULL for the default allocator of the device */
    loch_device *device;       /**< device; NULL for the device of the allocator, or "cpu" without an allocator */
    /** Stream that uses the memory first and orders the work of the call; NULL for the default stream. */
    loch_stream *stream;
    size_t alignment;    /**< alignment of the address: a power of two, or 0 for the allocator's own */
    loch_tag tag;        /**< tag for the statistics; 0 for none */
    uint32_t flags;      /**< set of loch_allocation_flag: LOCH_ALLOC_ZEROED, LOCH_ALLOC_MOVABLE */
    uint64_t timeout_ns; /**< how long to wait when memory is short, in nanoseconds; 0 for no waiting */
    const char *name;    /**< for people; copied; may be NULL */
    size_t round_bytes;  /**< the memory is rounded up to a multiple of this many bytes; 0 or 1 for no rounding */
} loch_tensor_options;

/** Creates a tensor with new memory, in row-major order. The contents are undefined without LOCH_ALLOC_ZEROED.
 *  E_INVALID: a size is negative, there are too many dimensions, or the type is not valid. E_OVERFLOW: the size does
 *  not fit the address space.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_create(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                                      const loch_tensor_options *options, loch_tensor **out);

/** Creates a tensor with new memory and copies its contents from host memory, in row-major order. `data` is read
 *  before the call returns.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_create_from(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                                           const void *data, const loch_tensor_options *options,
                                                           loch_tensor **out);

/** Takes another reference on a tensor and returns `tensor`. Give each reference back with loch_tensor_release. NULL
 *  returns NULL. Any thread. */
LOCH_API loch_tensor *loch_tensor_retain(loch_tensor *tensor);

/** Releases one reference on a tensor. The last release releases its buffer. NULL does nothing. Any thread. */
LOCH_API void loch_tensor_release(loch_tensor *tensor);

LOCH_DEFINE_CLEAR(tensor, loch_tensor_release(object))

/** Moves a reference out of `*slot`: returns the tensor and sets `*slot` to NULL. The caller owns the returned
 *  reference. A NULL slot returns NULL. */
static inline loch_tensor *loch_tensor_take(loch_tensor **slot)
{
    loch_tensor *taken = slot ? *slot : NULL;
    if (slot) *slot = NULL;
    return taken;
}

/** Creates a tensor on external memory, in row-major order, without copying. E_INVALID: the address is not aligned
 *  for the type. On failure the deleter is not called, and the memory still belongs to the caller.
 *  @param external  as for loch_buffer_wrap; may be NULL
 *  @param out       the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_wrap(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                                    void *address, const loch_external *external, loch_tensor **out);

/** Creates a tensor on a buffer, and retains the buffer. E_OUT_OF_RANGE: the tensor would reach beyond the buffer.
 *  @param offset_bytes  offset in bytes of the element with all indices 0; its address must be a multiple of the
 *                       element size
 *  @param strides       in elements; NULL for row-major order
 *  @param out           the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_create_in(loch_buffer *buffer, size_t offset_bytes, loch_dtype dtype,
                                                         size_t dimensions, const int64_t *shape,
                                                         const int64_t *strides, loch_tensor **out);

/** @} */
/** @name Properties */
/** @{ */

/** Returns the type of the elements. NULL returns LOCH_DTYPE_NONE. */
LOCH_API loch_dtype loch_tensor_get_dtype(const loch_tensor *tensor);

/** Returns the number of dimensions; 0 for a scalar and for NULL. */
LOCH_API size_t loch_tensor_get_dimensions(const loch_tensor *tensor);

/** Returns the sizes of all dimensions. Borrowed; never NULL. */
LOCH_API const int64_t *loch_tensor_get_shape(const loch_tensor *tensor);

/** Returns the strides of all dimensions, in elements. Borrowed; never NULL. */
LOCH_API const int64_t *loch_tensor_get_strides(const loch_tensor *tensor);

/** Returns the size along an axis; a negative axis counts from the end. -1 if there is no such axis. */
LOCH_API int64_t loch_tensor_get_size(const loch_tensor *tensor, int axis);

/** Returns the number of elements: the product of the sizes, 1 for a scalar. NULL returns 0. */
LOCH_API size_t loch_tensor_get_elements(const loch_tensor *tensor);

/** Returns the bytes of all elements, counted as if contiguous. NULL returns 0. */
LOCH_API size_t loch_tensor_get_bytes(const loch_tensor *tensor);

/** Returns non-zero if the elements are contiguous in row-major order. */
LOCH_API int loch_tensor_is_contiguous(const loch_tensor *tensor);

/** Returns non-zero if the host may read and write the elements in place. */
LOCH_API int loch_tensor_is_on_host(const loch_tensor *tensor);

/** Returns the device of a tensor; NULL for plain host memory that was wrapped. Borrowed. */
LOCH_API loch_device *loch_tensor_get_device(const loch_tensor *tensor);

/** Returns the address of the element with all indices 0 in `out`, checked against the present size of the buffer;
 *  NULL with LOCH_OK if there are no elements. Valid as long as the address of the buffer (loch_buffer_get_address).
 *  The call does not wait for streams: use loch_tensor_map to read on the host. E_OUT_OF_RANGE: the tensor no longer
 *  fits its buffer. E_BUSY: the buffer is movable and not pinned. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_get_address(const loch_tensor *tensor, void **out);

/** Returns whether the elements may be written. NULL returns LOCH_READ_ONLY. */
LOCH_API loch_access loch_tensor_get_access(const loch_tensor *tensor);

/** Returns the name of a tensor; "" if it has none. Borrowed. */
LOCH_API const char *loch_tensor_get_name(const loch_tensor *tensor);

/** Returns the buffer of a tensor. Borrowed. NULL returns NULL. */
LOCH_API loch_buffer *loch_tensor_get_buffer(const loch_tensor *tensor);

/** Returns the offset in bytes from the start of the buffer to the element with all indices 0. */
LOCH_API size_t loch_tensor_get_offset(const loch_tensor *tensor);

/** @} */
/** @name Contents */
/** @{ */

/** Options of loch_tensor_copy. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_tensor_copy_options {
    size_t size;            /**< sizeof(loch_tensor_copy_options) */
    loch_stream *stream;    /**< stream of one of the two devices; NULL for the default stream, and the call waits */
    loch_wait wait;         /**< when the call returns; a copy that goes through host memory always waits */
    loch_overflow overflow; /**< what conversion to f8 does with numbers out of range */
} loch_tensor_copy_options;

/** Copies all elements to a tensor of the same shape, between any layouts, types and devices. The two may share
 *  memory: the elements are read as they were before the copy. E_INVALID: the shapes differ, or the target is
 *  read-only, has elements that share a place, or has strides that could make elements share a place. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_copy(loch_tensor *to, loch_tensor *from,
                                                    const loch_tensor_copy_options *options);

/** Sets all elements to one number, converted to the type of the tensor, ordered on `stream`. A NULL stream means the
 *  default stream, and the call waits. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_fill(loch_tensor *tensor, loch_scalar value, loch_stream *stream);

/** Reads all elements into host memory in row-major order, and waits on the host. (loch_tensor_copy to a wrapped
 *  tensor does not wait.) E_INVALID: `bytes` is not loch_tensor_get_bytes, or `to` is not host memory. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_read(loch_tensor *tensor, void *to, size_t bytes, loch_stream *stream);

/** Writes all elements from host memory in row-major order, and waits on the host. E_INVALID: `bytes` is not
 *  loch_tensor_get_bytes, or `from` is not host memory. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_write(loch_tensor *tensor, const void *from, size_t bytes,
                                                     loch_stream *stream);

/** Reads one element, selected by `dimensions` indices, and waits on the host. E_OUT_OF_RANGE: there is no such
 *  index. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_read_item(loch_tensor *tensor, size_t dimensions, const int64_t *indices,
                                                         loch_stream *stream, loch_scalar *out);

/** Writes one element, selected by `dimensions` indices, and waits on the host. `value` is converted to the type of
 *  the tensor. E_OUT_OF_RANGE: there is no such index. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_write_item(loch_tensor *tensor, size_t dimensions,
                                                          const int64_t *indices, loch_scalar value,
                                                          loch_stream *stream);

/** Returns a tensor on `device` in `out`: a reference on the same tensor if it is there already, otherwise a copy
 *  with memory of the device's default allocator, queued on `stream` (a stream of either device). A NULL stream means
 *  the default stream, and the call waits. E_INVALID: `device` is NULL. Any thread. Short form of loch_tensor_to.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to_device(loch_tensor *tensor, loch_device *device, loch_stream *stream,
                                                         loch_tensor **out);

/** Returns a tensor in `out` on the device or from the allocator that `options` name, with type `dtype`
 *  (LOCH_DTYPE_NONE: no change): a reference on the same tensor if nothing changes, otherwise a copy. With a stream
 *  in the options the copy is queued, and may still be in progress when the call returns.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to(loch_tensor *tensor, loch_dtype dtype,
                                                  const loch_tensor_options *options, loch_tensor **out);

/** Copies a tensor to new memory, contiguous in row-major order.
 *  @param options  memory of the copy; NULL: the allocator of the tensor, or for external memory the default
 *                  allocator of its device
 *  @param out      the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_clone(loch_tensor *tensor, const loch_tensor_options *options,
                                                     loch_tensor **out);

/** Returns a contiguous tensor with the same elements in `out`: a reference on the same tensor if it is contiguous
 *  already, otherwise a copy.
 *  @param options  memory of the copy; NULL: the allocator of the tensor, or for external memory the default
 *                  allocator of its device
 *  @param out      the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_contiguous(loch_tensor *tensor, const loch_tensor_options *options,
                                                          loch_tensor **out);

/** Returns a tensor with another shape and the same number of elements in `out`: a view if the strides allow it,
 *  otherwise a copy. One size may be -1 and is computed from the others. E_INVALID: the numbers of elements differ.
 *  @param options  memory of the copy; NULL: the allocator of the tensor, or for external memory the default
 *                  allocator of its device
 *  @param out      the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_reshape(loch_tensor *tensor, size_t dimensions, const int64_t *shape,
                                                       const loch_tensor_options *options, loch_tensor **out);

/** @} */
/** @name Views
 *  A view copies no element: it shares the buffer of the tensor. `out` receives the caller's reference, or NULL on
 *  failure. */
/** @{ */

/** Creates a view with another shape and the same number of elements in the same order. One size may be -1 and is
 *  computed from the others. E_INVALID: the numbers of elements differ. E_UNSUPPORTED: the strides do not allow it;
 *  loch_tensor_reshape copies then. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_view(loch_tensor *tensor, size_t dimensions, const int64_t *shape,
                                                    loch_tensor **out);

/** Creates a view of the same bits as another type. If the element size changes, the last dimension grows or shrinks;
 *  it must be contiguous. E_INVALID: the last dimension does not divide. E_UNSUPPORTED: the strides do not allow it. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_view_as(loch_tensor *tensor, loch_dtype dtype, loch_tensor **out);

/** Leaves a bound of loch_tensor_slice open. */
#define LOCH_OPEN INT64_MIN

/** Creates a view of the elements start, start + step, ... before stop along one axis, as start:stop:step in Python.
 *  Bounds beyond the ends are clipped; LOCH_OPEN means the respective end. E_INVALID: the step is 0. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_slice(loch_tensor *tensor, int axis, int64_t start, int64_t stop,
                                                     int64_t step, loch_tensor **out);

/** Selects one index along `axis`; the result has one dimension less. E_OUT_OF_RANGE: there is no such index. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_index(loch_tensor *tensor, int axis, int64_t index, loch_tensor **out);

/** Creates a view with two axes exchanged. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_transpose(loch_tensor *tensor, int axis, int other, loch_tensor **out);

/** Creates a view with all axes in another order: axis i of the view is axes[i] of the tensor. E_INVALID: an axis is
 *  missing or appears twice. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_permute(loch_tensor *tensor, size_t dimensions, const int *axes,
                                                       loch_tensor **out);

/** Creates a view without the axes of size 1. A tensor of shape [1, 1] becomes a scalar. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_squeeze(loch_tensor *tensor, loch_tensor **out);

/** Creates a view without one axis, which must have size 1. E_INVALID: the size is not 1. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_squeeze_axis(loch_tensor *tensor, int axis, loch_tensor **out);

/** Creates a view with a new axis of size 1 before `axis`; -1 adds it after the last. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_unsqueeze(loch_tensor *tensor, int axis, loch_tensor **out);

/** Creates a view that repeats elements along axes of size 1 and along new first axes, as NumPy broadcasts. Repeated
 *  elements cannot be written through the view. E_INVALID: the shape cannot be reached. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_expand(loch_tensor *tensor, size_t dimensions, const int64_t *shape,
                                                      loch_tensor **out);

/** Creates up to `chunks` views by cutting a tensor along an axis into equal parts; the last may be smaller, as in
 *  torch.chunk.
 *  @param out    room for `chunks` tensors; each is the caller's reference. All NULL on failure.
 *  @param count  number of views created */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_chunk(loch_tensor *tensor, int axis, size_t chunks, loch_tensor **out,
                                                     size_t *count);

/** @} */
/** @name Access on the host */
/** @{ */

/** What a mapping is used for. */
typedef enum loch_map_access {
    LOCH_MAP_READ,      /**< contents are there; they must not be changed */
    LOCH_MAP_WRITE,     /**< contents are undefined; write all elements */
    LOCH_MAP_READ_WRITE /**< contents are there; changes are written back */
} loch_map_access;

/** The elements of a tensor at a host address. */
typedef struct loch_mapping {
    /** Address of the element with all indices 0; NULL if there are no elements. */
    void *address;
    /** Strides in elements: those of the tensor, or those of a row-major copy. */
    int64_t strides[LOCH_DIMENSIONS_MAX];
    struct lochi_mapping *inside; /**< used by the library */
} loch_mapping;

/** Makes the elements of a tensor readable and writable on the host, after waiting on the host for `stream` (NULL:
 *  the default stream). Works in place if the host can access the memory, otherwise in a copy that loch_tensor_unmap
 *  writes back. The mapping keeps the tensor alive. Do not use the tensor otherwise until loch_tensor_unmap.
 *  E_INVALID: `access` includes writing, and the tensor is read-only or has elements that share a place. On failure
 *  `out` is all zero. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_map(loch_tensor *tensor, loch_map_access access, loch_stream *stream,
                                                   loch_mapping *out);

/** Ends a mapping, writes changes back ordered on `stream` (NULL: the default stream), and waits on the host. The
 *  mapping ends even on failure. An all-zero mapping does nothing. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_unmap(loch_mapping *mapping, loch_stream *stream);

/** @} */

LOCH_END_DECLS

/* the rest of libloch_tensor */
#include <loch/dlpack.h>
#include <loch/npy.h>
#include <loch/print.h>

#endif

/* SPDX-License-Identifier: MIT */
/** @file tensor.h
 *  A tensor is a type, a shape and strides on a buffer. Views are tensors that share the buffer of another.
 *
 *  - Tensors are counted, and keep their buffer alive. Shape, strides and type never change; the buffer does only by
 *    loch_tensor_bind, and for that tensor alone.
 *  - Shapes and strides count elements, in 64 bits; every product is checked. A dimension of zero is legal, and so is a
 *    tensor without dimensions, a scalar, with one element. Strides may be zero or negative.
 *  - A tensor that reaches beyond its buffer cannot be made. One whose buffer has shrunk since is E_OUT_OF_RANGE to use.
 *  - An axis or an index counts from the end when it is negative. E_INVALID for an axis that is not there, E_OUT_OF_RANGE for
 *    an index.
 *  - Work is done in the order of a stream of a device involved. With none given it is the default stream, and the call
 *    waits for the end. Both sides of a copy stay alive until it has ended.
 *  - Every function is safe in any thread; contents are for one thread or stream at a time to change.
 */
#ifndef LOCH_TENSOR_H
#define LOCH_TENSOR_H

#include <loch/buffer.h>
#include <loch/dtype.h>

LOCH_BEGIN_DECLS

/** A tensor. */
typedef struct loch_tensor loch_tensor;

/** The most dimensions. */
#define LOCH_DIMENSIONS_MAX 16

/** The longest name of a tensor, with its final zero. */
#define LOCH_TENSOR_NAME_MAX 64

/** A shape in a call, as number of dimensions and sizes: loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), NULL, &t). C only. */
#define LOCH_SHAPE(...)                                                                                                \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/** The shape of a scalar. */
#define LOCH_SCALAR 0, NULL

/** @name Making and sharing */
/** @{ */

/** Where a new tensor's memory comes from; zero means default, NULL all defaults. */
typedef struct loch_tensor_options {
    size_t size;               /**< sizeof(loch_tensor_options) */
    loch_allocator *allocator; /**< NULL: the default allocator of the device */
    loch_device *device;       /**< NULL: the allocator's; "cpu" without one */
    loch_stream *stream; /**< the stream that uses it first, and of the work of the call; NULL: the default stream */
    size_t alignment;    /**< of the address; a power of two, or 0 for the allocator's own */
    loch_tag tag;        /**< for the statistics */
    uint32_t flags;      /**< set of loch_allocation_flag: LOCH_ALLOC_ZEROED */
    uint64_t timeout_ns; /**< patience when memory is short */
    const char *name;    /**< for people; copied; may be NULL */
    size_t round_bytes;  /**< the memory is rounded up to a multiple of these; 0 or 1 for not */
} loch_tensor_options;

/** Makes a tensor with memory of its own, row after row. Contents are undefined unless flags say LOCH_ALLOC_ZEROED.
 *  @param out  the caller's reference, given back by loch_tensor_release; NULL on failure
 *  E_INVALID for a negative size, too many dimensions or no type; E_OVERFLOW. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_create(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                                      const loch_tensor_options *options, loch_tensor **out);

/** Makes a tensor with the contents of host memory, row after row, that is read before the call returns. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_create_from(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                                           const void *data, const loch_tensor_options *options,
                                                           loch_tensor **out);

/** Makes a tensor on a buffer, which it retains.
 *  @param offset_bytes  of the element with all indices 0; makes its address a multiple of the type's size
 *  @param strides       in elements; NULL: row after row
 *  E_OUT_OF_RANGE when it would reach beyond the buffer. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_create_in(loch_buffer *buffer, size_t offset_bytes, loch_dtype dtype,
                                                         size_t dimensions, const int64_t *shape,
                                                         const int64_t *strides, loch_tensor **out);

/** Makes a tensor of memory from outside, row after row, without copying; see loch_buffer_wrap. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_wrap(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                                    void *address, const loch_external *external, loch_tensor **out);

/** Takes another reference; returns `tensor`. NULL gives NULL. Any thread. */
LOCH_API loch_tensor *loch_tensor_retain(loch_tensor *tensor);

/** Gives a reference back. NULL does nothing. Any thread. */
LOCH_API void loch_tensor_release(loch_tensor *tensor);

/** Releases what `*slot` holds and sets it to NULL; NULL and an empty slot do nothing. */
LOCH_API void loch_tensor_clear(loch_tensor **slot);

/** Moves a reference out: returns what `*slot` held, and sets it to NULL. */
LOCH_API loch_tensor *loch_tensor_take(loch_tensor **slot);

/** Puts another buffer under this tensor, at an offset in bytes; shape, strides and type stay. Views that were made of it keep
 *  the old one. Not while other threads use this tensor. E_OUT_OF_RANGE when it does not fit; then nothing changes. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_bind(loch_tensor *tensor, loch_buffer *buffer, size_t offset_bytes);

/** @} */
/** @name Questions */
/** @{ */

LOCH_API loch_dtype loch_tensor_get_dtype(const loch_tensor *tensor);

/** How many dimensions; 0 for a scalar. */
LOCH_API size_t loch_tensor_get_dimensions(const loch_tensor *tensor);

/** The sizes. Borrowed, not NULL. */
LOCH_API const int64_t *loch_tensor_get_shape(const loch_tensor *tensor);

/** The strides, in elements. Borrowed, not NULL. */
LOCH_API const int64_t *loch_tensor_get_strides(const loch_tensor *tensor);

/** The size along an axis, negative ones from the end; -1 for an axis that is not there. */
LOCH_API int64_t loch_tensor_get_size(const loch_tensor *tensor, int axis);

/** How many elements: the product of the sizes, 1 for a scalar. */
LOCH_API size_t loch_tensor_get_elements(const loch_tensor *tensor);

/** Bytes of all elements, as if they lay side by side. */
LOCH_API size_t loch_tensor_get_bytes(const loch_tensor *tensor);

/** Non-zero if the elements lie side by side, row after row. */
LOCH_API int loch_tensor_is_contiguous(const loch_tensor *tensor);

/** Non-zero if the host may read and write it in place. */
LOCH_API int loch_tensor_is_on_host(const loch_tensor *tensor);

/** References now; views are tensors of their own, and hold the buffer. For tests and curiosity: other threads may change it. */
LOCH_API size_t loch_tensor_get_references(const loch_tensor *tensor);

/** Its buffer. Borrowed. */
LOCH_API loch_buffer *loch_tensor_get_buffer(const loch_tensor *tensor);

/** Bytes from the start of its buffer to the element with all indices 0. */
LOCH_API size_t loch_tensor_get_offset(const loch_tensor *tensor);

/** Its device; NULL for plain host memory from outside. Borrowed. */
LOCH_API loch_device *loch_tensor_get_device(const loch_tensor *tensor);

/** The address of the element with all indices 0, checked against what the buffer has now; NULL, and LOCH_OK, when there are no
 *  elements. Valid as long as the buffer's address is. Memory that the host and a device share is in the order of streams all the same:
 *  loch_tensor_map waits. E_OUT_OF_RANGE. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_get_address(const loch_tensor *tensor, void **out);

/** Whether it may be written. */
LOCH_API loch_access loch_tensor_get_access(const loch_tensor *tensor);

/** The name; "" without one. Borrowed, until the next loch_tensor_set_name. */
LOCH_API const char *loch_tensor_get_name(const loch_tensor *tensor);

/** Names a tensor; NULL takes the name away. What does not fit is E_INVALID. Not while other threads ask for it. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_set_name(loch_tensor *tensor, const char *name);

/** @} */
/** @name Views: no element is copied; `out` is the caller's reference, NULL on failure */
/** @{ */

/** Leaves a bound of a slice open. */
#define LOCH_OPEN INT64_MIN

/** Another shape with as many elements, in the same order; one size may be -1, and follows from the others. E_INVALID when the
 *  numbers disagree; E_UNSUPPORTED when the strides do not allow it (loch_tensor_reshape copies then). */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_view(loch_tensor *tensor, size_t dimensions, const int64_t *shape,
                                                    loch_tensor **out);

/** The same bits as another type. With elements of another size the last dimension becomes longer or shorter, and has to lie side
 *  by side. E_INVALID when it does not divide, E_UNSUPPORTED for strides that do not allow it. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_view_as(loch_tensor *tensor, loch_dtype dtype, loch_tensor **out);

/** Elements start, start + step, ... before stop, along one axis, as in Python's start:stop:step: bounds beyond the ends are
 *  clipped, LOCH_OPEN is the end in question. E_INVALID for a step of 0. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_slice(loch_tensor *tensor, int axis, int64_t start, int64_t stop,
                                                     int64_t step, loch_tensor **out);

/** One index along an axis, which goes. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_index(loch_tensor *tensor, int axis, int64_t index, loch_tensor **out);

/** Two axes change places. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_transpose(loch_tensor *tensor, int axis, int other, loch_tensor **out);

/** All axes in another order: axis i of the view is axes[i] of the tensor. E_INVALID when one is missing or twice there. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_permute(loch_tensor *tensor, size_t dimensions, const int *axes,
                                                       loch_tensor **out);

/** Without the axes of size 1; what is left of [1, 1] is a scalar. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_squeeze(loch_tensor *tensor, loch_tensor **out);

/** Without one axis of size 1. E_INVALID for another size. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_squeeze_axis(loch_tensor *tensor, int axis, loch_tensor **out);

/** With a new axis of size 1 before `axis`; -1 is behind the last. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_unsqueeze(loch_tensor *tensor, int axis, loch_tensor **out);

/** Stretched to a shape by repeating along axes of size 1 and new first ones, as NumPy broadcasts. Elements that share a place
 *  cannot be written through it. E_INVALID. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_expand(loch_tensor *tensor, size_t dimensions, const int64_t *shape,
                                                      loch_tensor **out);

/** Cut along an axis into at most `chunks` pieces of equal size, the last of which may be smaller, as torch.chunk.
 *  @param out    room for `chunks` tensors; all NULL on failure
 *  @param count  how many there are */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_chunk(loch_tensor *tensor, int axis, size_t chunks, loch_tensor **out,
                                                     size_t *count);

/** @} */
/** @name Contents */
/** @{ */

/** How to copy; zero means default, NULL all defaults. */
typedef struct loch_tensor_copy_options {
    size_t size;            /**< sizeof(loch_tensor_copy_options) */
    loch_stream *stream;    /**< of one of the devices involved; NULL: the default stream, and waits */
    loch_wait wait;         /**< when to return. What has to go through the host waits in any case */
    loch_overflow overflow; /**< of conversions to f8 */
} loch_tensor_copy_options;

/** Copies all elements into a tensor of the same shape: between any layouts, types and devices. The two may share memory: what is
 *  read is what was there before. E_INVALID for another shape, a read-only target, or one with elements that share a place,
 *  or whose strides interleave so that they might. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_copy(loch_tensor *to, loch_tensor *from,
                                                    const loch_tensor_copy_options *options);

/** Sets all elements to one number, converted to the type. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_fill(loch_tensor *tensor, loch_scalar value, loch_stream *stream);

/** A tensor with the same elements, side by side: another reference on this one where they are already, else a copy with memory
 *  as `options` say; without them from the same allocator (memory from outside: the device's). */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_contiguous(loch_tensor *tensor, const loch_tensor_options *options,
                                                          loch_tensor **out);

/** Another shape: a view where the strides allow it, else a copy, with memory as for loch_tensor_contiguous. Shape as for
 *  loch_tensor_view. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_reshape(loch_tensor *tensor, size_t dimensions, const int64_t *shape,
                                                       const loch_tensor_options *options, loch_tensor **out);

/** A copy with memory of its own, side by side; memory as for loch_tensor_contiguous. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_clone(loch_tensor *tensor, const loch_tensor_options *options,
                                                     loch_tensor **out);

/** The tensor on a device (or from an allocator) that the options name, and as a type (LOCH_DTYPE_NONE: its own): another reference
 *  on this one where nothing would change, else a copy. A copy that a given stream runs is queued, and may still be under way. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to(loch_tensor *tensor, loch_dtype dtype,
                                                  const loch_tensor_options *options, loch_tensor **out);

/** The tensor on a device: another reference on this one where it is there, else a copy from the device's default allocator, queued on
 *  `stream` (a stream of either device; NULL: the default stream, and waits). The short form of loch_tensor_to. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to_device(loch_tensor *tensor, loch_device *device, loch_stream *stream,
                                                         loch_tensor **out);

/** Reads all elements into host memory, row after row, and waits (loch_tensor_copy into a wrapped tensor does not). `bytes` has to be loch_tensor_get_bytes: E_INVALID. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_read(loch_tensor *tensor, void *to, size_t bytes, loch_stream *stream);

/** Writes all elements from host memory, row after row, and waits. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_write(loch_tensor *tensor, const void *from, size_t bytes,
                                                     loch_stream *stream);

/** Reads one element, by `dimensions` indices, and waits. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_read_item(loch_tensor *tensor, size_t dimensions, const int64_t *indices,
                                                         loch_stream *stream, loch_scalar *out);

/** Writes one element, and waits. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_write_item(loch_tensor *tensor, size_t dimensions,
                                                          const int64_t *indices, loch_scalar value,
                                                          loch_stream *stream);

/** What a mapping is for. */
typedef enum loch_map_access {
    LOCH_MAP_READ,      /**< contents are there; changes are lost or not, and must not be made */
    LOCH_MAP_WRITE,     /**< contents are undefined; all elements are to be written */
    LOCH_MAP_READ_WRITE /**< contents are there, changes go back */
} loch_map_access;

/** A tensor's elements at an address of the host. */
typedef struct loch_mapping {
    void *address;                        /**< of the element with all indices 0; NULL when there are none */
    int64_t strides[LOCH_DIMENSIONS_MAX]; /**< in elements; those of the tensor, or of a copy, row after row */
    struct lochi_mapping *inside;         /**< the library's */
} loch_mapping;

/** Makes a tensor's elements readable and writable on the host, after waiting for `stream` (NULL: the default stream): in place
 *  where the host can reach them, else in a copy that unmap writes back. The tensor is not to be used otherwise meanwhile, and
 *  stays alive. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_map(loch_tensor *tensor, loch_map_access access, loch_stream *stream,
                                                   loch_mapping *out);

/** Ends a mapping, writes changes back in the order of `stream` and waits. The mapping is gone even on failure; one that is all zero
 *  does nothing. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_unmap(loch_mapping *mapping, loch_stream *stream);

/** @} */

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/** @file safetensors.h
 *  Tensors in .safetensors files, mapped and without a copy. A library of its own, libloch_safetensors, on the public
 *  interface of Loch.
 *
 *      loch_safetensors *model;
 *      loch_tensor *weight;
 *      LOCH_CHECK(loch_safetensors_open("model.safetensors", NULL, &model));
 *      LOCH_CHECK(loch_safetensors_acquire_tensor(model, "encoder.weight", &weight));
 *      ...
 *      loch_tensor_release(weight);
 *      loch_safetensors_close(model);
 *
 *  - A file is checked as a whole when it is opened: the header, and that the tensors cover the data without holes and
 *    overlaps. A file that does not hold is refused with one sentence that names the file, the tensor and the figures.
 *  - A model in several files is opened by its index (model.safetensors.index.json) and looks like one file.
 *  - While a file is open or one of its tensors exists, no program may change it in place: the elements would change,
 *    and access beyond a shortened file ends the program. loch_safetensors_save is safe: it puts a new file in its
 *    place.
 *  - An opened file never changes. All calls work from any thread, and several threads may use one file at a time.
 */
#ifndef LOCH_SAFETENSORS_H
#define LOCH_SAFETENSORS_H

#include <loch/context.h>
#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** An opened file, or an opened model in several files. */
typedef struct loch_safetensors loch_safetensors;

/** @name Open and close */
/** @{ */

/** Options of loch_safetensors_open. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_safetensors_options {
    size_t size; /**< sizeof(loch_safetensors_options) */
    /** Access of acquired tensors; LOCH_READ_WRITE writes to private pages, never to the file, and loads do not see
     *  what was written. */
    loch_access access;
} loch_safetensors_options;

/** Opens a .safetensors file, or the index of a model in several files, and maps it. The kind is found by the contents.
 *  The files of a model lie in the folder of its index. E_NOT_FOUND: there is no such file. E_IO: a file cannot be
 *  read. E_CORRUPT: not a .safetensors file, truncated, or not valid. E_UNSUPPORTED: not a regular file, or the
 *  system cannot map it. E_OVERFLOW: the file does not fit the address space.
 *  @param out  owned by the caller; close it with loch_safetensors_close. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_open(const char *path, const loch_safetensors_options *options,
                                                         loch_safetensors **out);

/** Closes a file. Tensors that were acquired stay valid and hold the mapping. No other thread may use `file` during
 *  the call or after it. NULL does nothing. */
LOCH_API void loch_safetensors_close(loch_safetensors *file);
LOCH_DEFINE_CLEAR(safetensors, loch_safetensors_close(object))

/** @} */
/** @name Contents */
/** @{ */

/** A tensor in a file. Pointers are borrowed and valid until the file is closed. */
typedef struct loch_safetensors_info {
    size_t size;          /**< set by the caller to sizeof(loch_safetensors_info) */
    const char *name;     /**< name of the tensor, UTF-8 */
    const char *type;     /**< type as the file names it: "BF16" */
    loch_dtype dtype;     /**< type; LOCH_DTYPE_NONE if Loch lacks it */
    size_t dimensions;    /**< number of dimensions; a tensor may have more than LOCH_DIMENSIONS_MAX */
    const int64_t *shape; /**< sizes of all dimensions; never NULL */
    uint64_t bytes;       /**< bytes of all elements */
    const char *path;     /**< file that has the elements */
    uint64_t offset;      /**< place of the first element in that file, in bytes */
} loch_safetensors_info;

/** Finds a tensor by its name. Set `out->size` before the call. E_NOT_FOUND: there is no tensor of that name. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_find(const loch_safetensors *file, const char *name,
                                                         loch_safetensors_info *out);

/** Receives a tensor of a walk. Any status but LOCH_OK ends the walk. */
typedef loch_status loch_safetensors_visitor(const loch_safetensors_info *info, void *user);

/** Visits all tensors in the order of their data, file by file. Returns the status of the visitor that ended the walk.
 *  The visitor may call any function with `file`, except loch_safetensors_close. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_walk(const loch_safetensors *file,
                                                         loch_safetensors_visitor *visitor, void *user);

/** Returns a text of the metadata; NULL if there is no such key. For a model in several files: the metadata of the
 *  index, where a number is given as it is written, and anything else but text is left out. Borrowed; valid until the
 *  file is closed. */
LOCH_API const char *loch_safetensors_get_metadata(const loch_safetensors *file, const char *key);

/** Receives an entry of the metadata. Any status but LOCH_OK ends the walk. */
typedef loch_status loch_safetensors_metadata_visitor(const char *key, const char *value, void *user);

/** Visits the metadata in the order of the file. Returns the status of the visitor that ended the walk. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_walk_metadata(const loch_safetensors *file,
                                                                  loch_safetensors_metadata_visitor *visitor,
                                                                  void *user);

/** @} */
/** @name Load */
/** @{ */

/** Acquires a tensor of a file: a view of the mapping, without a copy. It has the access of the mapping. A tensor whose
 *  elements do not lie at multiples of their size in the file, and every tensor on a machine that stores the highest
 *  byte first, is a copy in host memory instead. E_NOT_FOUND: there is no tensor of that name. E_UNSUPPORTED: Loch
 *  lacks its type, or it has more than LOCH_DIMENSIONS_MAX dimensions.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_acquire_tensor(const loch_safetensors *file, const char *name,
                                                                   loch_tensor **out);

/** Options of a load. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_safetensors_load_options {
    size_t size;            /**< sizeof(loch_safetensors_load_options) */
    int axis;               /**< axis of the part to load; a negative axis counts from the end */
    int64_t start;          /**< first index of the part along `axis` */
    int64_t count;          /**< number of indices of the part; 0 for all from `start` on */
    loch_overflow overflow; /**< what conversion to f8 does with numbers out of range */
    loch_dtype dtype;       /**< type of a new tensor; LOCH_DTYPE_NONE for that of the file; no use for a copy */
    /** Stream that orders a copy into an existing tensor; NULL for the default stream, and the call waits. */
    loch_stream *stream;
    /** Memory of a new tensor; its stream orders the copy; NULL for host memory; no use for a copy. */
    const loch_tensor_options *memory;
} loch_safetensors_load_options;

/** Loads a tensor, or a part of it along an axis, into new memory, converted to a type. Only the part is read from the
 *  file, by several threads if it is large. With memory of a device, one piece is read while others are copied; with a
 *  stream, the call returns when the file is read and the copies are queued, and may wait for work that was queued on
 *  the stream before. Works as loch_tensor_create and loch_tensor_copy do. E_NOT_FOUND: there is
 *  no tensor of that name. E_OUT_OF_RANGE: the part does not lie inside the tensor. E_UNSUPPORTED: as for
 *  loch_safetensors_acquire_tensor. E_CORRUPT: the file has become shorter. E_IO: it cannot be read.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_load(const loch_safetensors *file, const char *name,
                                                         const loch_safetensors_load_options *options,
                                                         loch_tensor **out);

/** Copies a tensor of a file, or a part of it along an axis, into an existing tensor of the same shape, on any device,
 *  converted to its type, ordered on the stream of the options. Fails as loch_safetensors_load and loch_tensor_copy do;
 *  the contents of `to` are then undefined. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_copy(const loch_safetensors *file, const char *name,
                                                         loch_tensor *to, const loch_safetensors_load_options *options);

/** Copies `count` tensors of a file, each as loch_safetensors_copy does with the same options: for a device as one long
 *  copy, in the order of the file, where neighbours in the file are read at once. Faster than a call for each tensor.
 *  All names and shapes are checked before the first byte is written. The tensors must not overlap, and may lie on
 *  several devices if no stream is given. Fails as loch_safetensors_copy does; the contents of all tensors are then
 *  undefined. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_copy_many(const loch_safetensors *file, const char *const *names,
                                                              loch_tensor *const *to, size_t count,
                                                              const loch_safetensors_load_options *options);

/** Loads parameters by their names, on all their seats, each seat its own part, and waits on the host. All names and
 *  types are looked up before the first parameter is loaded. The next parameter is read from the disk while one is
 *  copied. The first failure ends the call; parameters before it stay loaded. E_NOT_FOUND: the file lacks a name.
 *  Other statuses are those of loch_context_load. Only the thread of `context`. */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_load_parameters(const loch_safetensors *file, loch_context *context,
                                                                    loch_parameter *const *parameters, size_t count);

/** @} */
/** @name Save */
/** @{ */

/** Options of loch_safetensors_save. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_safetensors_save_options {
    size_t size;                        /**< sizeof(loch_safetensors_save_options) */
    loch_stream *stream;                /**< stream that the read is ordered after; NULL for the default stream */
    const char *const *metadata_keys;   /**< names of the metadata, UTF-8 */
    const char *const *metadata_values; /**< texts of the metadata, UTF-8 */
    size_t metadata_count;              /**< number of entries in both */
} loch_safetensors_save_options;

/** Writes tensors of any device to one file. An existing file is replaced only when the new one is completely on the
 *  disk. Symbolic links are followed. Permissions are those of the existing file, otherwise those of the umask. The
 *  data is ordered by type, then by name, and the header padded with spaces, as the format's own library does.
 *  E_INVALID: a name is missing, not UTF-8, "__metadata__", or there twice. E_IO: the file cannot be written.
 *  @param names    one name for each tensor
 *  @param count    number of tensors; zero gives a file without tensors */
LOCH_API LOCH_MUST_USE loch_status loch_safetensors_save(const char *path, const char *const *names,
                                                         loch_tensor *const *tensors, size_t count,
                                                         const loch_safetensors_save_options *options);

/** @} */

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/* Declarations that the files of the extension module loch._core share.
 *
 * The module uses the limited API of Python 3.11, so that one binary serves every later version. A free-threaded
 * interpreter has no limited API before 3.15; the sources are then compiled for that one version.
 *
 * Rules of all files:
 * - A function that returns a PyObject * returns a new reference, or NULL with an exception set. A function that
 *   returns int returns 0, or -1 with an exception set.
 * - The GIL is released around calls of Loch that may wait, call a driver or touch many bytes. The error record of Loch
 *   belongs to the thread and is read when the GIL is held again.
 * - A Tensor never changes its handle. Objects that can be closed guard their handle with a gate (gate.h).
 * - A forked child does not free what it inherited: lochpy_is_own.
 * - Without a GIL any two calls run at the same time. What can change is atomic (gate.h), under a mutex, or set once.
 *   References of items that another thread may replace are not borrowed: lists are copied to tuples first. */
#ifndef LOCHPY_CORE_H
#define LOCHPY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdbool.h>
#include <structmember.h>

#include "gate.h"

/* Casts a function to the type in a table of methods or slots. The intermediate cast silences compilers that compare
 * numbers of parameters. */
#define LOCHPY_METHOD(function) ((PyCFunction)(void (*)(void))(function))
#define LOCHPY_SLOT(function) ((void *)(uintptr_t)(function))

/* Methods with keyword arguments, with positional arguments, with one argument, and without any. */
#define LOCHPY_KEYWORDS(name, function, text)                                                                          \
    {                                                                                                                  \
        name, LOCHPY_METHOD(function), METH_VARARGS | METH_KEYWORDS, text                                              \
    }
#define LOCHPY_VARIABLE(name, function, text)                                                                          \
    {                                                                                                                  \
        name, function, METH_VARARGS, text                                                                             \
    }
#define LOCHPY_ONE(name, function, text)                                                                               \
    {                                                                                                                  \
        name, function, METH_O, text                                                                                   \
    }
#define LOCHPY_NONE(name, function, text)                                                                              \
    {                                                                                                                  \
        name, LOCHPY_METHOD(function), METH_NOARGS, text                                                               \
    }

/* --- the module (module.c) --- */

typedef struct lochpy_types {
    PyTypeObject *tensor, *device, *stream, *event, *pool, *session, *block;
} lochpy_types;

/* Types of the module. Created once in a process, by the main interpreter. */
extern lochpy_types lochpy;

/* Number of forks that led to this process. */
extern unsigned lochpy_generation;

/* Tells whether an object was made by this process and not inherited through a fork. */
static inline bool lochpy_is_own(unsigned generation)
{
    return generation == lochpy_generation;
}

/* Tells whether the caller has the only reference on an object. Without a GIL the count cannot be read in one step
 * while other threads change it, so the answer is no. */
static inline bool lochpy_is_last_reference(PyObject *object)
{
#ifdef Py_GIL_DISABLED
    (void)object;
    return false;
#else
    return Py_REFCNT(object) == 1;
#endif
}

/* Calls a function of a Python module of the package with the arguments of a format of Py_BuildValue, which has to be a
 * tuple: "(O)". */
PyObject *lochpy_call(const char *module, const char *name, const char *format, ...);

/* Makes a type from a specification and adds it to the module under the last part of its name. Returns a new
 * reference. */
PyTypeObject *lochpy_add_type(PyObject *module, PyType_Spec *spec);

/* Allocates an object of a type, all members zero. */
void *lochpy_new(PyTypeObject *type);

/* Frees the memory of an object and releases its type. Called last by deallocators. */
void lochpy_free(PyObject *self);

/* --- errors (errors.c) --- */

/* Raises the exception of a failed call of Loch, from the error record of the thread. Returns NULL. */
PyObject *lochpy_raise(loch_status status);

/* Returns 0 for LOCH_OK; otherwise raises the exception of a call that was given a path, for which E_NOT_FOUND is a
 * FileNotFoundError, and returns -1. */
int lochpy_check_file(loch_status status);

/* Raises the exception of a status with a sentence of the extension's own. Returns NULL. */
PyObject *lochpy_raise_text(loch_status status, const char *format, ...) LOCH_PRINTF(2, 3);

/* Raises an exception that the protocol of DLPack requires, a BufferError. Returns NULL. */
PyObject *lochpy_raise_export(loch_status status);

/* Returns 0 for LOCH_OK; otherwise raises the exception of the status and returns -1. */
static inline int lochpy_check(loch_status status)
{
    if (status == LOCH_OK) return 0;
    (void)lochpy_raise(status);
    return -1;
}

/* Runs one statement without the GIL. */
#define LOCHPY_WITHOUT_GIL(statement)                                                                                  \
    do {                                                                                                               \
        PyThreadState *lochpy_thread = PyEval_SaveThread();                                                            \
        statement;                                                                                                     \
        PyEval_RestoreThread(lochpy_thread);                                                                           \
    } while (0)

/* Calls a function that returns a status without the GIL; evaluates to 0 or -1 with the exception of the status. */
#define LOCHPY_TRY(call)                                                                                               \
    __extension__({                                                                                                    \
        loch_status lochpy_status;                                                                                     \
        LOCHPY_WITHOUT_GIL(lochpy_status = (call));                                                                    \
        lochpy_check(lochpy_status);                                                                                   \
    })

/* LOCHPY_TRY for a call that is given a path. */
#define LOCHPY_TRY_FILE(call)                                                                                          \
    __extension__({                                                                                                    \
        loch_status lochpy_status;                                                                                     \
        LOCHPY_WITHOUT_GIL(lochpy_status = (call));                                                                    \
        lochpy_check_file(lochpy_status);                                                                              \
    })

/* --- arguments (arguments.c) --- */

/* Sizes or strides of a tensor. */
typedef struct lochpy_shape {
    size_t dimensions;
    int64_t sizes[LOCH_DIMENSIONS_MAX];
} lochpy_shape;

/* Reads a shape: one integer or a sequence of integers. */
int lochpy_read_shape(PyObject *argument, lochpy_shape *out);

/* Reads a shape from the arguments of a call: f(2, 3) or f((2, 3)). */
int lochpy_read_shape_arguments(PyObject *arguments, lochpy_shape *out);

/* Makes a tuple of integers. */
PyObject *lochpy_make_shape(size_t dimensions, const int64_t *sizes, int64_t factor);

/* Reads a type of elements: a name, a loch.DType, a type of NumPy, PyTorch or Python. None gives LOCH_DTYPE_NONE. */
int lochpy_read_dtype(PyObject *argument, loch_dtype *out);

/* Returns the object that stands for a type of elements. */
PyObject *lochpy_make_dtype(loch_dtype dtype);

/* Sets the objects that stand for the types of elements: a tuple in the order of loch_dtype. */
int lochpy_set_dtypes(PyObject *tuple);

/* Reads a number of bytes: an integer, or text such as "40GiB". None and NULL give 0. */
int lochpy_read_bytes(PyObject *argument, size_t *out);

/* Reads a limit in bytes: None and NULL give 0, no limit; 0 raises. */
int lochpy_read_limit(PyObject *argument, size_t *out);

/* Reads a number for an element of a type. Integers and floats that the type cannot hold raise an OverflowError or a
 * ValueError, as in NumPy. LOCH_DTYPE_NONE accepts all numbers of 64 bits. */
int lochpy_read_scalar(PyObject *argument, loch_dtype dtype, loch_scalar *out);

/* Makes a number of Python from an element. */
PyObject *lochpy_make_scalar(loch_scalar scalar);

/* Reads one word of a list that ends with NULL, and returns its place. */
int lochpy_read_word(const char *what, const char *word, const char *const *words, int *out);

/* Reads a tag: its name, or None for the tag of the thread (lochpy_thread_tag). */
int lochpy_read_tag(PyObject *argument, loch_tag *out);

/* Finds a tag that exists by its name. Raises if there is none, and creates nothing. */
int lochpy_find_tag(PyObject *argument, loch_tag *out);

/* Tag of allocations of this thread through this module; 0 for none. */
extern _Thread_local loch_tag lochpy_thread_tag;

/* Returns the UTF-8 of a str, borrowed from it. Text with a zero inside raises a ValueError. */
const char *lochpy_text_of(PyObject *string);

/* Makes text with UTF-8 that may be damaged. */
PyObject *lochpy_make_text(const char *text);

/* Reads a duration: seconds as a number, as nanoseconds. None gives 0. */
int lochpy_read_seconds(PyObject *argument, uint64_t *out_ns);

/* --- devices and streams (device.c, stream.c, event.c) --- */

/* Reads a device: a name, a Device, a device of PyTorch. The caller releases it. None and NULL give NULL. */
int lochpy_read_device(PyObject *argument, loch_device **out);

/* A stream that an argument names, for the time of one call. */
typedef struct lochpy_stream_use {
    loch_stream *stream; /* NULL for the default stream */
    PyObject *owner;     /* Stream object whose gate was entered; NULL for none */
} lochpy_stream_use;

/* Reads the argument `stream`: None, a Stream, a handle, or an object of another library with a stream. `device` owns
 * the stream; NULL accepts None and a Stream only. End the use with lochpy_stream_done. */
int lochpy_read_stream(PyObject *argument, loch_device *device, lochpy_stream_use *out);

/* Ends the use of a stream. Does nothing for an empty one. */
void lochpy_stream_done(lochpy_stream_use *use);

/* Returns a wrapper of a queue of the driver's. Borrowed, as long as the caller has a reference on `owner`, the object
 * that the queue belongs to; NULL if there is none. */
int lochpy_stream_of_handle(loch_device *device, void *native, PyObject *owner, loch_stream **out);

/* Returns the handle of a stream that an argument names, as an integer for DLPack: 1 for the default stream. */
PyObject *lochpy_stream_number(PyObject *argument);

int lochpy_add_device_type(PyObject *module);
int lochpy_add_stream_type(PyObject *module);
int lochpy_add_event_type(PyObject *module);

/* Makes the answer of a query: LOCH_OK means that the work has ended, E_BUSY that it has not. */
PyObject *lochpy_answer(loch_status status);

/* Makes later work on a Stream wait for an Event (event.c). */
PyObject *lochpy_stream_wait(PyObject *self, PyObject *event);

PyObject *lochpy_devices(PyObject *self, PyObject *unused);

/* --- allocators (pool.c, block.c) --- */

/* Makes a Pool of an allocator and takes over one reference of it, also on failure. */
PyObject *lochpy_make_pool(loch_allocator *allocator);

/* Reads a pool and takes a reference of its allocator. None and NULL give NULL. */
int lochpy_read_pool(PyObject *argument, loch_allocator **out);

/* Allocates a block of an allocator. `session` is NULL, or the Session that the block belongs to. */
PyObject *lochpy_make_block(loch_allocator *allocator, PyObject *session, PyObject *arguments, PyObject *keywords);

/* Begins a session on an allocator. */
PyObject *lochpy_make_session(loch_allocator *allocator, const char *name);

/* Sleeps and compactions (rest.c): methods of Pool. */
PyObject *lochpy_pool_sleep(loch_allocator *pool, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_pool_compact(loch_allocator *pool, PyObject *arguments, PyObject *keywords);

/* Pressure functions of a Pool object (pressure.c): a list, empty as NULL. */
typedef struct lochpy_pressure lochpy_pressure;
int lochpy_add_pressure(loch_allocator *pool, lochpy_pressure **list, PyObject *function);
int lochpy_remove_pressure(loch_allocator *pool, lochpy_pressure **list, PyObject *function);

/* Removes all functions of a list. */
void lochpy_end_pressure(loch_allocator *pool, lochpy_pressure **list);

/* Shows the functions of a list to the garbage collector. */
int lochpy_visit_pressure(lochpy_pressure *list, visitproc visit, void *arg);

/* Makes the dictionary of statistics; a loch.Stats. */
PyObject *lochpy_make_stats(const loch_stats *stats);

/* Makes the dictionary of a pool's figures; a loch.PoolInfo. */
PyObject *lochpy_make_info(const loch_pool_info *info);

/* Makes a list of the live blocks of an allocator. */
PyObject *lochpy_list_blocks(loch_allocator *pool);

/* Items that a visitor collects. A walk may hold a lock of the library: its visitor must not take the GIL, nor make
 * objects, because either may wait for a thread that waits for the lock. */
typedef struct lochpy_list {
    void **items;
    size_t count, room;
} lochpy_list;

/* Adds an item; needs no GIL. Returns -1 without host memory. */
int lochpy_list_add(lochpy_list *list, void *item);

/* Adds a copy of a text; needs no GIL. */
loch_status lochpy_list_add_text(lochpy_list *list, const char *text);

/* Makes a list of Python after a walk that returned `status`, and drops all items. `drop` may be NULL. */
PyObject *lochpy_list_end(lochpy_list *list, loch_status status, PyObject *(*make)(void *item),
                          void (*drop)(void *item));
PyObject *lochpy_list_make_text(void *item);

/* Text that a function of Loch prints. */
typedef loch_status lochpy_printer(const void *object, char *text, size_t bytes, size_t *length);
PyObject *lochpy_print(lochpy_printer *printer, const void *object);

int lochpy_add_pool_type(PyObject *module);
int lochpy_add_block_types(PyObject *module);

/* --- tensors --- */

/* A tensor. Its members never change. */
typedef struct lochpy_tensor {
    PyObject_HEAD loch_tensor *handle;
    unsigned generation;
    PyObject *weak; /* weak references */
} lochpy_tensor;

/* Returns the handle of an object that is known to be a Tensor. Borrowed. */
static inline loch_tensor *lochpy_tensor_of(PyObject *object)
{
    return ((lochpy_tensor *)(void *)object)->handle;
}

/* Tells whether an object is a Tensor. */
static inline bool lochpy_is_tensor(PyObject *object)
{
    return PyObject_TypeCheck(object, lochpy.tensor);
}

/* Makes a Tensor and takes over the reference `handle`, also on failure. */
PyObject *lochpy_make_tensor(loch_tensor *handle);

/* Makes a Tensor of what a call of Loch returned: raises if the status is a failure. */
PyObject *lochpy_made(loch_status status, loch_tensor *handle);

/* Where the memory of a new tensor comes from: the keyword arguments device, pool, stream and tag. */
typedef struct lochpy_memory {
    loch_tensor_options options;
    lochpy_stream_use stream;
} lochpy_memory;

/* Reads the arguments that say where memory comes from; each may be NULL or None. `like` gives the device if none is
 * named; may be NULL. End with lochpy_memory_done. */
int lochpy_read_memory(PyObject *device, PyObject *pool, PyObject *stream, PyObject *tag, loch_tensor *like,
                       lochpy_memory *out);

/* Releases what lochpy_read_memory took. */
void lochpy_memory_done(lochpy_memory *memory);

int lochpy_add_tensor_type(PyObject *module);

/* Memory of sleeping pools (awake.c). */

/* Raises E_BUSY if the memory of a tensor sleeps and the host would access it. Called before contents are touched. */
int lochpy_awake(loch_tensor *tensor);

/* Checks that a pool may sleep, and notes that it does. */
int lochpy_before_sleep(loch_allocator *pool, loch_tag tag);

/* Counts an export of a tensor's memory. Returns what lochpy_export_end takes; NULL if nothing has to be counted. */
loch_allocator *lochpy_export_begin(loch_tensor *tensor);
void lochpy_export_end(const loch_allocator *pool);

/* Text (text.c). */
PyObject *lochpy_tensor_str(PyObject *self);
PyObject *lochpy_tensor_repr(PyObject *self);
PyObject *lochpy_tensor_format(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_tensor_format_with(PyObject *self, PyObject *specification);

/* Indices (index.c). */
PyObject *lochpy_tensor_get(PyObject *self, PyObject *key);
int lochpy_tensor_set(PyObject *self, PyObject *key, PyObject *value);
PyObject *lochpy_tensor_item_at(PyObject *self, Py_ssize_t index);
Py_ssize_t lochpy_tensor_length(PyObject *self);

/* Makes a view start:stop:step of an axis, with the numbers of PySlice_Unpack. */
loch_status lochpy_slice(loch_tensor *tensor, int axis, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step,
                         loch_tensor **out);

/* Tells whether a value holds numbers in nested lists. */
static inline bool lochpy_is_sequence(PyObject *value)
{
    return PyList_Check(value) || PyTuple_Check(value) || PyObject_TypeCheck(value, &PyRange_Type);
}

/* Tells whether a value is one number, or something that is not known and is read as one. */
bool lochpy_is_number(PyObject *value);

/* Makes a Tensor of anything that can be assigned: numbers in lists, arrays, tensors. `dtype` is the type for numbers
 * in lists, which have to fit it; LOCH_DTYPE_NONE for one that holds them exactly. */
PyObject *lochpy_as_tensor(PyObject *value, loch_dtype dtype);

/* Numbers (number.c). */
PyObject *lochpy_tensor_tolist(PyObject *self, PyObject *unused);
PyObject *lochpy_tensor_item(PyObject *self, PyObject *arguments);
int lochpy_tensor_bool(PyObject *self);
PyObject *lochpy_tensor_int(PyObject *self);
PyObject *lochpy_tensor_float(PyObject *self);
PyObject *lochpy_tensor_index_number(PyObject *self);

/* Makes a tensor of an integer type on the host of one of another integer type: numbers beyond the range become the
 * least or the most. `stream` orders the reads, and may be NULL. */
loch_tensor *lochpy_clip(loch_tensor *tensor, loch_dtype dtype, loch_stream *stream);

/* Comparisons (compare.c). */
PyObject *lochpy_tensor_compare(PyObject *self, PyObject *other, int operation);
int lochpy_tensor_contains(PyObject *self, PyObject *value);

/* Exchange (dlpack.c, buffer.c). */
PyObject *lochpy_tensor_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_tensor_dlpack_device(PyObject *self, PyObject *unused);
PyObject *lochpy_tensor_cuda_interface(PyObject *self, void *unused);
PyObject *lochpy_from_dlpack(PyObject *module, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_from_buffer(PyObject *module, PyObject *arguments, PyObject *keywords);
int lochpy_tensor_get_buffer(PyObject *self, Py_buffer *view, int flags);
void lochpy_tensor_release_buffer(PyObject *self, Py_buffer *view);

/* Makes a Tensor that shares the memory of an object with the buffer protocol, or copies it. */
PyObject *lochpy_tensor_of_buffer(PyObject *source, bool copies);

/* New tensors (create.c). */
PyObject *lochpy_empty(PyObject *module, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_zeros(PyObject *module, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_full(PyObject *module, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_tensor_of_numbers(PyObject *module, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_load(PyObject *module, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_create_from(PyObject *module, PyObject *arguments, PyObject *keywords);
PyObject *lochpy_tensor_of_sequence(PyObject *value, loch_dtype dtype);

/* Settings of the process (process.c). */
extern PyMethodDef lochpy_process_methods[];

/* Plans (plan.c). */
extern PyMethodDef lochpy_plan_methods[];

#endif

/* SPDX-License-Identifier: MIT */
/** @file kernel.h
 *  Kernels of your own on CUDA devices: libloch_kernel.so. The program needs no CUDA runtime and no toolkit.
 *
 *      loch_module *module;
 *      loch_kernel *axpy;
 *      LOCH_CHECK(loch_module_create(device, image, bytes, NULL, &module));
 *      LOCH_CHECK(loch_module_find(module, "axpy", &axpy));
 *      const loch_argument arguments[] = {loch_argument_write(y), loch_argument_read(x),
 *                                         loch_argument_scalar(LOCH_F32, loch_scalar_of(0.5f)),
 *                                         loch_argument_scalar(LOCH_U64, loch_scalar_of(count))};
 *      const loch_launch_options options = {.size = sizeof options, .grid = {blocks}, .block = {256}};
 *      LOCH_CHECK(loch_kernel_launch(axpy, arguments, 4, stream, &options));
 *
 *  - A module is PTX, which the driver compiles for the device, or a cubin, which is for one architecture. Name the
 *    functions with extern "C".
 *  - A launch records its tensors: their memory is reused only behind it, even if they are released right after the
 *    call. Addresses and structs are not looked into: call loch_buffer_record_use for the memory behind them.
 *  - Launches may be captured into a graph. The owner of the graph keeps the tensors and the module.
 *  - The context that is current in the calling thread stays current.
 *  - On devices that are not of the driver "cuda" every function gives E_UNSUPPORTED.
 */
#ifndef LOCH_KERNEL_H
#define LOCH_KERNEL_H

#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** @name Modules */
/** @{ */

/** Code that is loaded on one device. */
typedef struct loch_module loch_module;

/** A function of a module. Lives as long as the module. */
typedef struct loch_kernel loch_kernel;

/** Options of loch_module_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_module_options {
    size_t size;      /**< sizeof(loch_module_options) */
    const char *name; /**< for error sentences; copied, 31 bytes at most; NULL for "module" */
    /** Receives what the driver's compiler says, as text with a final zero; empty if it says nothing. May be NULL. */
    char *log;
    size_t log_bytes; /**< room at `log` */
} loch_module_options;

/** Loads PTX or a cubin on a device. `image` is read before the call returns; a final zero behind PTX is not needed.
 *  PTX may be compiled here, which takes milliseconds; the driver keeps the result on disk. Legal while another stream
 *  is captured. E_INVALID: the image is neither PTX nor a cubin, is cut off, or does not compile; the sentence has the
 *  compiler's first error. E_UNSUPPORTED: the device is not a CUDA device, or the image is for another architecture or
 *  for a newer driver. Any thread.
 *  @param out  owned by the caller; destroy it with loch_module_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_module_create(loch_device *device, const void *image, size_t bytes,
                                                      const loch_module_options *options, loch_module **out);

/** Unloads a module and all its kernels. Wait for their work first (loch_stream_sync), and launch no graph with them
 *  afterwards. NULL does nothing. Any thread. */
LOCH_API void loch_module_destroy(loch_module *module);
LOCH_DEFINE_CLEAR(module, loch_module_destroy(object))

/** Finds a function of a module by name. A name gives one kernel, however often it is found. E_NOT_FOUND: the module
 *  has no such function. Any thread.
 *  @param out  borrowed; lives as long as the module. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_module_find(loch_module *module, const char *name, loch_kernel **out);

/** @} */
/** @name Launches */
/** @{ */

/** What an argument of a launch is. */
typedef enum loch_argument_kind {
    LOCH_ARGUMENT_READ,    /**< the address of a tensor that the kernel only reads */
    LOCH_ARGUMENT_WRITE,   /**< the address of a tensor that the kernel writes, and may read */
    LOCH_ARGUMENT_SCALAR,  /**< a number, converted to a type */
    LOCH_ARGUMENT_ADDRESS, /**< an address of the device, as it is */
    LOCH_ARGUMENT_BYTES    /**< a struct or another value, copied byte by byte */
} loch_argument_kind;

/** One argument of a launch. Build it with one of the functions below. */
typedef struct loch_argument {
    loch_argument_kind kind; /**< selects the member of `value` */
    loch_dtype dtype;        /**< type that a scalar is converted to */
    size_t bytes;            /**< size of LOCH_ARGUMENT_BYTES */
    /** The value. Borrowed until the launch returns. */
    union {
        loch_tensor *tensor;
        loch_scalar scalar;
        const void *address;
        const void *bytes;
    } value;
} loch_argument;

/** Makes an argument from a tensor that the kernel only reads. */
static inline loch_argument loch_argument_read(loch_tensor *tensor)
{
    loch_argument argument = {LOCH_ARGUMENT_READ, LOCH_DTYPE_NONE, 0, {NULL}};
    argument.value.tensor = tensor;
    return argument;
}

/** Makes an argument from a tensor that the kernel writes. The launch raises the version of its buffer. */
static inline loch_argument loch_argument_write(loch_tensor *tensor)
{
    loch_argument argument = {LOCH_ARGUMENT_WRITE, LOCH_DTYPE_NONE, 0, {NULL}};
    argument.value.tensor = tensor;
    return argument;
}

/** Makes an argument from a number; the kernel's parameter has type `dtype`. */
static inline loch_argument loch_argument_scalar(loch_dtype dtype, loch_scalar scalar)
{
    loch_argument argument = {LOCH_ARGUMENT_SCALAR, dtype, 0, {NULL}};
    argument.value.scalar = scalar;
    return argument;
}

/** Makes an argument from an address that the device can access. Its memory is not recorded. */
static inline loch_argument loch_argument_address(const void *address)
{
    loch_argument argument = {LOCH_ARGUMENT_ADDRESS, LOCH_DTYPE_NONE, 0, {NULL}};
    argument.value.address = address;
    return argument;
}

/** Makes an argument from `bytes` bytes at `from`, for structs that the kernel takes by value. */
static inline loch_argument loch_argument_bytes(const void *from, size_t bytes)
{
    loch_argument argument = {LOCH_ARGUMENT_BYTES, LOCH_DTYPE_NONE, bytes, {NULL}};
    argument.value.bytes = from;
    return argument;
}

/** The most arguments of one launch. */
#define LOCH_ARGUMENTS_MAX 128

/** How a launch runs. */
typedef enum loch_launch_flag {
    /** All blocks run at the same time, so that the kernel may synchronise its whole grid. */
    LOCH_LAUNCH_COOPERATIVE = 1 << 0,
    /** The kernel may begin before the work in front of it on the stream has ended. It waits itself, by
     *  griddepcontrol.wait, before it reads what that work wrote. Needs compute capability 9.0; ignored before. */
    LOCH_LAUNCH_EARLY = 1 << 1
} loch_launch_flag;

/** Options of loch_kernel_launch. Zero means default; a NULL pointer means one block of one thread. */
typedef struct loch_launch_options {
    size_t size;         /**< sizeof(loch_launch_options) */
    uint32_t grid[3];    /**< blocks in each direction; 0 means 1 */
    uint32_t block[3];   /**< threads of a block in each direction; 0 means 1 */
    size_t shared_bytes; /**< dynamic shared memory of a block; beyond 48 KiB the kernel is prepared for it */
    uint32_t flags;      /**< set of loch_launch_flag */
} loch_launch_options;

/** Queues a kernel on `stream` (NULL: the default stream of the device, and the call waits for its end). Tensors are
 *  of the kernel's device and are recorded as used on the stream; a tensor without elements is a NULL address; movable
 *  ones are pinned during the call. `arguments` is read before the call returns. If the driver can tell the
 *  parameters of the kernel, their number and sizes are compared. E_INVALID: a wrong argument, or a tensor of another
 *  device, or one that is written and read-only. E_OUT_OF_RANGE: a tensor no longer fits its buffer. E_LIMIT: more
 *  threads or shared memory than the kernel or the device can have. E_UNSUPPORTED: the driver is too old for a flag.
 *  Nothing is queued on failure. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_kernel_launch(loch_kernel *kernel, const loch_argument *arguments, size_t count,
                                                      loch_stream *stream, const loch_launch_options *options);

/** What a kernel needs of a device. */
typedef struct loch_kernel_info {
    size_t size;             /**< set by the caller to sizeof(loch_kernel_info) */
    const char *name;        /**< name of the function; borrowed from the kernel */
    int64_t arguments;       /**< number of parameters; -1 if the driver cannot tell */
    uint32_t threads_max;    /**< the most threads of a block */
    uint32_t registers;      /**< registers of a thread */
    size_t shared_bytes;     /**< static shared memory of a block in bytes */
    size_t shared_max_bytes; /**< the most dynamic shared memory of a block in bytes */
    size_t local_bytes;      /**< local memory of a thread in bytes: spilled registers and arrays */
    uint32_t blocks;         /**< blocks of `block_threads` threads that fit a multiprocessor; 0 if not asked */
    uint32_t block_threads;  /**< set by the caller: threads of a block, for `blocks`; 0 to ask nothing */
} loch_kernel_info;

/** Reads what a kernel needs. Set `out->size` before the call; members beyond that size are not written. E_INVALID: the
 *  size is not set. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_kernel_get_info(const loch_kernel *kernel, loch_kernel_info *out);

/** @} */

LOCH_END_DECLS

#endif

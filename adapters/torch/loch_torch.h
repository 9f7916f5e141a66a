/* SPDX-License-Identifier: MIT */
/* Internal header of the PyTorch plug-in: the exported functions, and what its files share.
 *
 * PyTorch finds the exported names by dlsym (torch.cuda.memory.CUDAPluggableAllocator) or gets their addresses, so
 * other code does not include this file. docs/pytorch.md is for users.
 *
 * Everything here stays until the process ends: PyTorch frees blocks from static destructors. */
#ifndef LOCH_TORCH_H
#define LOCH_TORCH_H

#include <loch/loch.h>
#include <loch/driver.h>
#include <stdatomic.h>

/* --- exported; all from any thread --- */

/* alloc_fn: allocates `size` bytes for work on `stream`, a cudaStream_t. Returns NULL for 0 bytes. Returns NULL after a
 * report on stderr if there is no memory; torch.cuda.MemPool then frees cached memory and tries again. */
LOCH_API void *loch_torch_malloc(size_t size, int device, void *stream);

/* alloc_fn for torch.cuda.memory.change_current_allocator, which does not check for NULL: a failure becomes a C++
 * exception that PyTorch shows as a RuntimeError. */
LOCH_API void *loch_torch_malloc_or_raise(size_t size, int device, void *stream);

/* free_fn: frees a block in the order of the stream of its allocation. Ignores `size`: PyTorch 2.5 to 2.9 may pass a
 * wrong size. */
LOCH_API void loch_torch_free(void *ptr, size_t size, int device, void *stream);

/* For set_record_stream_fn (Tensor.record_stream). Ignores memory that is not from Loch. */
LOCH_API void loch_torch_record_stream(void *ptr, void *stream);

/* For set_reset_fn (torch.cuda.empty_cache): gives cached memory back to the devices. */
LOCH_API void loch_torch_empty_cache(void);

/* Returns the statistics of all devices together as one JSON object; valid until the thread's next call. */
LOCH_API const char *loch_torch_stats_json(void);

/* Resets peaks and counts, except the counts of driver calls. */
LOCH_API void loch_torch_reset_peaks(void);

/* --- devices.c --- */

/* PyTorch numbers devices by a signed byte. */
#define LOCHI_TORCH_DEVICES 128

/* A stream that was used on a device. Never changed, never freed: PyTorch does not destroy its streams. */
typedef struct lochi_torch_stream {
    void *native;
    loch_stream *stream;
    struct lochi_torch_stream *next;
} lochi_torch_stream;

#define LOCHI_TORCH_BUCKETS 64

typedef struct lochi_torch_device {
    loch_allocator *pool;
    _Atomic(lochi_torch_stream *)
        streams[LOCHI_TORCH_BUCKETS]; /* by native handle; grown with the lock held, read without it */
} lochi_torch_device;

/* Returns the device with PyTorch's number. Opens it on first use. */
loch_status lochi_torch_open(int number, lochi_torch_device **out);

/* Returns the device with PyTorch's number, or NULL if it was not opened. */
lochi_torch_device *lochi_torch_get(int number);

/* Returns Loch's stream for a cudaStream_t. */
loch_status lochi_torch_find_stream(lochi_torch_device *device, void *native, loch_stream **out);

#endif

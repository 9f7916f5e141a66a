/* SPDX-License-Identifier: MIT */
/* The PyTorch plug-in from the inside: what it exports, and what its files share.
 *
 * PyTorch finds the exported names by dlsym (torch.cuda.memory.CUDAPluggableAllocator) or is told their addresses, so
 * nobody includes this file from outside. docs/share-with-pytorch.md is for the people who use it.
 *
 * Everything here lives until the process ends: PyTorch frees blocks from static destructors, and whatever was torn down
 * before them would be missing then. */
#ifndef LOCH_TORCH_H
#define LOCH_TORCH_H

#include <loch/loch.h>
#include <loch/driver.h>
#include <stdatomic.h>

/* --- exported; all from any thread --- */

/* alloc_fn: `size` bytes for work on `stream`, a cudaStream_t. NULL for 0 bytes; NULL and a report on stderr when there are
 * none to be had, which is what torch.cuda.MemPool wants: it frees what it can and asks again. */
LOCH_API void *loch_torch_malloc(size_t size, int device, void *stream);

/* alloc_fn for torch.cuda.memory.change_current_allocator, which does not look whether it got NULL: a failure becomes the
 * C++ exception that PyTorch shows as a RuntimeError. */
LOCH_API void *loch_torch_malloc_or_raise(size_t size, int device, void *stream);

/* free_fn, in the order of the stream of the allocation. `size` is not looked at: PyTorch 2.5 to 2.9 may give a wrong
 * one. */
LOCH_API void loch_torch_free(void *ptr, size_t size, int device, void *stream);

/* For set_record_stream_fn (Tensor.record_stream). Memory that is not ours is left alone. */
LOCH_API void loch_torch_record_stream(void *ptr, void *stream);

/* For set_reset_fn (torch.cuda.empty_cache): gives cached memory back to the devices. */
LOCH_API void loch_torch_empty_cache(void);

/* The figures of all devices together as one JSON object; valid until the thread's next call. */
LOCH_API const char *loch_torch_stats_json(void);

/* Starts peaks and counts anew; driver calls go on counting. */
LOCH_API void loch_torch_reset_peaks(void);

/* --- devices.c --- */

/* PyTorch numbers devices by a signed byte. */
#define LOCHI_TORCH_DEVICES 128

/* A stream that was seen on a device. Never changed, never freed: PyTorch does not destroy its streams. */
typedef struct lochi_torch_stream {
    void *native;
    loch_stream *stream;
    struct lochi_torch_stream *next;
} lochi_torch_stream;

#define LOCHI_TORCH_BUCKETS 64

typedef struct lochi_torch_device {
    loch_allocator *pool;
    _Atomic(lochi_torch_stream *)
        streams[LOCHI_TORCH_BUCKETS]; /* by native handle; grown under the lock, read without */
} lochi_torch_device;

/* The device with PyTorch's number, opened when it is first asked for. */
loch_status lochi_torch_open(int number, lochi_torch_device **out);

/* The same, NULL if it was not opened. */
lochi_torch_device *lochi_torch_get(int number);

/* Loch's name for a cudaStream_t. */
loch_status lochi_torch_find_stream(lochi_torch_device *device, void *native, loch_stream **out);

/* --- raise.c --- */

/* Throws std::runtime_error(text) with the C++ library that the process has; returns if it has none. */
void lochi_torch_raise(const char *text);

#endif

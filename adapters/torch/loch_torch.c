/* SPDX-License-Identifier: MIT */
/* The functions that PyTorch calls for memory. Each is a few steps around one call of Loch and keeps no statistics or
 * tables of its own.
 *
 * PyTorch has no way to receive a status from them, so they report failures on stderr. */
#include "loch_torch.h"

#include <raise.h>
#include <stdio.h>

/* Alignment that cudaMalloc promises and that libraries above PyTorch rely on. */
#define ALIGNMENT_BYTES 256

/* Size of the pool's report on a failure; a longer report is cut. */
#define REPORT_MAX 4096

static loch_status torch_alloc(size_t size, int number, void *native, void **out)
{
    lochi_torch_device *device;
    loch_request request = {.size = sizeof request, .bytes = size, .alignment = ALIGNMENT_BYTES};
    loch_status status = lochi_torch_open(number, &device);
    if (status == LOCH_OK) status = lochi_torch_find_stream(device, native, &request.stream);
    if (status == LOCH_OK) status = loch_allocator_alloc(device->pool, &request, out);
    return status;
}

/* Writes why the thread's last allocation failed, and what the pool holds. */
static void torch_explain(loch_status status, size_t size, int number, char text[REPORT_MAX])
{
    const int is_short = status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED;
    /* The first words are those that programs search for when they retry with a smaller batch. */
    const int length = snprintf(text, REPORT_MAX, "%sLoch has no %zu bytes on device %d: %s\n",
                                is_short ? "CUDA out of memory. " : "", size, number, loch_error_get()->sentence);
    lochi_torch_device *device = lochi_torch_get(number);
    if (is_short && device) (void)!loch_pool_print(device->pool, text + length, REPORT_MAX - (size_t)length, NULL);
}

/* Not inlined, so that the functions that call it have small frames. */
__attribute__((noinline, cold)) static void torch_print_failure(loch_status status, size_t size, int number)
{
    char text[REPORT_MAX];
    torch_explain(status, size, number, text);
    fputs(text, stderr);
}

__attribute__((noinline, cold)) static void torch_raise_failure(loch_status status, size_t size, int number)
{
    char text[REPORT_MAX];
    torch_explain(status, size, number, text);
    lochi_raise(text);
    fputs(text, stderr);
}

void *loch_torch_malloc(size_t size, int device, void *stream)
{
    void *block = NULL;
    if (!size) return NULL;
    const loch_status status = torch_alloc(size, device, stream, &block);
    if (status != LOCH_OK) torch_print_failure(status, size, device);
    return block;
}

void *loch_torch_malloc_or_raise(size_t size, int device, void *stream)
{
    void *block = NULL;
    if (!size) return NULL;
    const loch_status status = torch_alloc(size, device, stream, &block);
    if (status != LOCH_OK) torch_raise_failure(status, size, device);
    return block;
}

/* Reports a failure, unless the CUDA driver was shut down first at exit: the user cannot do anything about that. */
static void torch_complain(loch_status status, const char *what, const void *ptr)
{
    if (status == LOCH_E_DRIVER || status == LOCH_E_DEVICE_LOST) return;
    fprintf(stderr, "Loch could not %s %p: %s\n", what, ptr, loch_error_get()->sentence);
}

void loch_torch_free(void *ptr, size_t size, int number, void *stream)
{
    (void)size;
    (void)stream; /* the stream of the allocation, which the pool has recorded */
    if (!ptr) return;
    lochi_torch_device *device = lochi_torch_get(number);
    const loch_status status =
        device ? loch_free(device->pool, ptr)
               : loch_error_set(LOCH_E_FOREIGN, NULL, 0, "nothing was handed out on device %d", number);
    if (status != LOCH_OK) torch_complain(status, "free", ptr);
}

/* Returns the device of a block; NULL for memory that is not from Loch. */
static lochi_torch_device *torch_device_of(const void *ptr)
{
    for (int i = 0; i < LOCHI_TORCH_DEVICES; i++) {
        lochi_torch_device *device = lochi_torch_get(i);
        loch_block block = {.size = sizeof block};
        if (device && loch_allocator_find(device->pool, ptr, &block) == LOCH_OK) return device;
    }
    return NULL;
}

void loch_torch_record_stream(void *ptr, void *native)
{
    loch_stream *stream;
    lochi_torch_device *device = ptr ? torch_device_of(ptr) : NULL;
    if (!device) return; /* an empty tensor, or memory of another library */
    loch_status status = lochi_torch_find_stream(device, native, &stream);
    if (status == LOCH_OK) status = loch_allocator_record_use(device->pool, ptr, stream);
    if (status != LOCH_OK) torch_complain(status, "mark the use of", ptr);
}

void loch_torch_empty_cache(void)
{
    for (int i = 0; i < LOCHI_TORCH_DEVICES; i++) {
        lochi_torch_device *device = lochi_torch_get(i);
        if (!device) continue;
        const loch_status status = loch_allocator_trim(device->pool, 0, NULL);
        if (status != LOCH_OK) torch_complain(status, "trim the pool of", device->pool);
    }
}

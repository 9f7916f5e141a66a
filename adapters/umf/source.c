/* SPDX-License-Identifier: MIT */
/* A UMF memory provider as a Loch allocator: the source of a pool's segments.
 *
 * UMF's functions are found in the process, so this library needs no UMF to be built or loaded: by the names that the
 * loader has linked, or in libumf.so.1, which is there because a pool is created by it. A program that is linked with a
 * static UMF exports umfMemoryProviderAlloc and the others (-rdynamic), or compiles these files itself.
 *
 * Providers align in different ways. A provider that refuses an alignment says NOT_SUPPORTED, INVALID_ALIGNMENT or
 * INVALID_ARGUMENT. That becomes E_UNSUPPORTED, and the pool takes more bytes and aligns by itself.
 *
 * A provider with IPC is never asked for more than a page of alignment: UMF's OS provider (1.0 to 1.2) cuts the head
 * off an aligned mapping of its file and keeps the offset of the head, so other processes would open wrong memory. Its
 * name does not tell it: programs choose the name, and other providers wrap it. */
#include "source.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOURCE_IMPORT __attribute__((weak, visibility("default")))

extern SOURCE_IMPORT lochi_umf_result umfMemoryProviderAlloc(lochi_umf_provider *provider, size_t size,
                                                             size_t alignment, void **out);
extern SOURCE_IMPORT lochi_umf_result umfMemoryProviderFree(lochi_umf_provider *provider, void *address, size_t size);
extern SOURCE_IMPORT lochi_umf_result umfMemoryProviderGetIPCHandleSize(lochi_umf_provider *provider, size_t *size);
extern SOURCE_IMPORT int umfGetCurrentVersion(void);

struct lochi_umf_source {
    lochi_umf_calls calls;
    /* NULL once the source is closed. Written after the last block of the pool was freed, read by frees that come from
     * other threads later. */
    _Atomic(lochi_umf_provider *) provider;
    _Atomic size_t held_bytes;
    size_t alignment_max; /* larger ones are refused without asking */
};

static _Thread_local lochi_umf_result source_error;

lochi_umf_result lochi_umf_source_take_error(void)
{
    const lochi_umf_result error = source_error;
    source_error = LOCHI_UMF_SUCCESS;
    return error;
}

/* --- calls of UMF --- */

/* Copies the address of a function to `out`, a pointer to a pointer to a function. */
static int source_find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

/* Returns whether the process has UMF. */
static int source_find_calls(lochi_umf_calls *out)
{
    *out = (lochi_umf_calls){.alloc = umfMemoryProviderAlloc,
                             .free = umfMemoryProviderFree,
                             .get_ipc_size = umfMemoryProviderGetIPCHandleSize,
                             .get_version = umfGetCurrentVersion};
    if (out->alloc && out->free && out->get_ipc_size && out->get_version) return 1;
    out->library = dlopen("libumf.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (out->library && source_find(out->library, "umfMemoryProviderAlloc", &out->alloc) &&
        source_find(out->library, "umfMemoryProviderFree", &out->free) &&
        source_find(out->library, "umfMemoryProviderGetIPCHandleSize", &out->get_ipc_size) &&
        source_find(out->library, "umfGetCurrentVersion", &out->get_version))
        return 1;
    if (out->library) dlclose(out->library);
    out->library = NULL;
    return 0;
}

/* --- the allocator --- */

static loch_status source_alloc(void *self, const loch_request *request, void **out)
{
    lochi_umf_source *source = self;
    lochi_umf_provider *provider = atomic_load_explicit(&source->provider, memory_order_acquire);
    *out = NULL;
    if (!provider) return loch_error_set(LOCH_E_DEVICE_MEMORY, "umf", 0, "the UMF pool is destroyed");
    if (request->alignment > source->alignment_max) return LOCH_E_UNSUPPORTED;
    lochi_umf_result result = source->calls.alloc(provider, request->bytes, request->alignment, out);
    if (result == LOCHI_UMF_SUCCESS && !*out) result = LOCHI_UMF_OUT_OF_MEMORY;
    if (result == LOCHI_UMF_SUCCESS) {
        atomic_fetch_add_explicit(&source->held_bytes, request->bytes, memory_order_relaxed);
        source_error = LOCHI_UMF_SUCCESS;
        return LOCH_OK;
    }
    *out = NULL;
    const int is_alignment =
        request->alignment && (result == LOCHI_UMF_NOT_SUPPORTED || result == LOCHI_UMF_INVALID_ALIGNMENT ||
                               result == LOCHI_UMF_INVALID_ARGUMENT);
    if (!is_alignment) source_error = result; /* otherwise the pool asks again */
    return loch_error_set(is_alignment ? LOCH_E_UNSUPPORTED : LOCH_E_DEVICE_MEMORY, "umf", (long)result,
                          "the UMF provider refused %zu bytes aligned to %zu with result %d", request->bytes,
                          request->alignment, (int)result);
}

/* `bytes` is known: the table of the library has the size of every block of an allocator without a slot `find`. */
static loch_status source_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    (void)stream;
    lochi_umf_source *source = self;
    lochi_umf_provider *provider = atomic_load_explicit(&source->provider, memory_order_acquire);
    if (!provider) return LOCH_OK; /* the memory went with the provider */
    const lochi_umf_result result = source->calls.free(provider, address, bytes);
    if (result != LOCHI_UMF_SUCCESS)
        return loch_error_set(LOCH_E_DRIVER, "umf", (long)result,
                              "the UMF provider does not take %zu bytes back: result %d", bytes, (int)result);
    atomic_fetch_sub_explicit(&source->held_bytes, bytes, memory_order_relaxed);
    return LOCH_OK;
}

static void source_destroy(void *self)
{
    lochi_umf_source *source = self;
    if (source->calls.library) dlclose(source->calls.library);
    free(source);
}

static const loch_allocator_ops source_ops = {.size = sizeof source_ops,
                                              .kind = "umf",
                                              .traits = LOCH_TRAIT_THREAD_SAFE,
                                              .alloc = source_alloc,
                                              .free = source_free,
                                              .destroy = source_destroy};

loch_status lochi_umf_source_create(loch_device *device, lochi_umf_provider *provider, lochi_umf_source **out,
                                    loch_allocator **allocator)
{
    *out = NULL;
    *allocator = NULL;
    lochi_umf_source *source = calloc(1, sizeof *source);
    if (!source) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for the source of a UMF pool");
    atomic_init(&source->provider, provider);
    loch_status status;
    if (!source_find_calls(&source->calls)) {
        status = loch_error_set(LOCH_E_NOT_FOUND, NULL, 0,
                                "the process has no UMF 1: neither libumf.so.1 nor an exported umfMemoryProviderAlloc");
        goto fail;
    }
    if (source->calls.get_version() < (int)LOCHI_UMF_VERSION(1, 0)) {
        status = loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "UMF %d.%d is too old: version 1.0 is needed",
                                source->calls.get_version() >> 16, source->calls.get_version() & 0xffff);
        goto fail;
    }
    size_t ipc_bytes;
    const int has_ipc = source->calls.get_ipc_size(provider, &ipc_bytes) == LOCHI_UMF_SUCCESS;
    source->alignment_max = has_ipc ? (size_t)sysconf(_SC_PAGESIZE) : SIZE_MAX;
    status = loch_allocator_create(device, "UMF provider", &source_ops, source, allocator);
    if (status != LOCH_OK) goto fail;
    *out = source;
    return LOCH_OK;
fail:
    source_destroy(source);
    return status;
}

size_t lochi_umf_source_close(lochi_umf_source *source)
{
    atomic_store_explicit(&source->provider, NULL, memory_order_release);
    return atomic_load_explicit(&source->held_bytes, memory_order_relaxed);
}

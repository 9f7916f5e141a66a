/* SPDX-License-Identifier: MIT */
/* A UMF memory provider of the test, and a Loch pool on it. */
#ifndef LOCH_TEST_UMF_BED_H
#define LOCH_TEST_UMF_BED_H

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#include "loch_umf.h"

#include <loch/loch.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

/* --- a provider that counts, fails when it is told to, and aligns as it is told to --- */

typedef struct provider {
    atomic_size_t bytes, calls;
    atomic_int result;         /* of the next allocations */
    atomic_int left;           /* allocations before `result` holds; -1 for all of them succeed */
    atomic_bool refuses_frees; /* NOT_SUPPORTED */
    void *refused;             /* the last address of such a free */
    size_t alignment_max;      /* larger ones are NOT_SUPPORTED; 0 for no limit */
    size_t shift;              /* of the addresses, when no alignment is asked for */
} provider;

static umf_result_t provider_initialize(const void *params, void **out)
{
    *out = (void *)(uintptr_t)params;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_finalize(void *self)
{
    (void)self;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_alloc(void *self, size_t size, size_t alignment, void **out)
{
    provider *p = self;
    *out = NULL;
    atomic_fetch_add(&p->calls, 1);
    if (p->alignment_max && alignment > p->alignment_max) return UMF_RESULT_ERROR_NOT_SUPPORTED;
    if (atomic_load(&p->left) >= 0 && atomic_fetch_sub(&p->left, 1) <= 0) {
        atomic_store(&p->left, 0);
        return (umf_result_t)atomic_load(&p->result);
    }
    char *address = aligned_alloc(1 << 16, (size + (1 << 17)) & ~(size_t)((1 << 16) - 1));
    if (!address) return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    atomic_fetch_add(&p->bytes, size);
    *out = address;
    if (alignment <= 1) *out = address + p->shift;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_free(void *self, void *address, size_t size)
{
    provider *p = self;
    if (atomic_load(&p->refuses_frees)) {
        p->refused = address;
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    atomic_fetch_sub(&p->bytes, size);
    free((void *)((uintptr_t)address & ~(uintptr_t)((1 << 16) - 1)));
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_get_error(void *self, const char **message, int32_t *code)
{
    (void)self;
    *message = "none";
    *code = 0;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_get_page(void *self, size_t size, size_t *out)
{
    (void)self;
    (void)size;
    *out = 4096;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_get_min_page(void *self, const void *address, size_t *out)
{
    (void)address;
    return provider_get_page(self, 0, out);
}

static umf_result_t provider_get_name(void *self, const char **name)
{
    (void)self;
    *name = "counting";
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_provider_ops_t provider_ops = {.version = UMF_MAKE_VERSION(1, 0),
                                                       .initialize = provider_initialize,
                                                       .finalize = provider_finalize,
                                                       .alloc = provider_alloc,
                                                       .free = provider_free,
                                                       .get_last_native_error = provider_get_error,
                                                       .get_recommended_page_size = provider_get_page,
                                                       .get_min_page_size = provider_get_min_page,
                                                       .get_name = provider_get_name};

/* --- a pool on it --- */

typedef struct bed {
    provider memory;
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool;
} bed;

#define CHECK_UMF(call) assert_int_equal((call), UMF_RESULT_SUCCESS)

static void bed_open(bed *bed, const loch_umf_options *options)
{
    memset(bed, 0, sizeof *bed);
    atomic_init(&bed->memory.left, -1);
    CHECK_UMF(umfMemoryProviderCreate(&provider_ops, &bed->memory, &bed->provider));
    CHECK_UMF(umfPoolCreate(loch_umf_pool_ops(), bed->provider, options, 0, &bed->pool));
}

/* Destroys the pool. All memory is back at the provider. */
static void bed_close(bed *bed)
{
    CHECK_UMF(umfPoolDestroy(bed->pool));
    assert_int_equal(atomic_load(&bed->memory.bytes), 0);
    CHECK_UMF(umfMemoryProviderDestroy(bed->provider));
}

static void *take(bed *bed, size_t size)
{
    void *block = umfPoolMalloc(bed->pool, size);
    assert_non_null(block);
    return block;
}

static size_t figure(bed *bed, const char *path)
{
    char full[128];
    size_t value = SIZE_MAX;
    snprintf(full, sizeof full, "umf.pool.by_handle.{}.%s", path);
    CHECK_UMF(umfCtlGet(full, &value, sizeof value, bed->pool));
    return value;
}

static void set(bed *bed, const char *path, size_t value)
{
    char full[128];
    snprintf(full, sizeof full, "umf.pool.by_handle.{}.%s", path);
    CHECK_UMF(umfCtlSet(full, &value, sizeof value, bed->pool));
}

#endif

/* SPDX-License-Identifier: MIT */
/* Loch's pool under a real UMF: every function of the table, through UMF's own calls. tests/adapters/umf/run builds
 * this file with the headers of each version of UMF and runs it with that version's library. */
#include "bed.h"

/* The declarations of the adapter under another name, to compare them with UMF's. */
#define umf_memory_pool_ops_t lochi_umf_ops
#define umf_memory_provider_t lochi_umf_provider_tag
#include "interface.h"
#undef umf_memory_pool_ops_t
#undef umf_memory_provider_t

#include <umf/ipc.h>
#include <umf/providers/provider_os_memory.h>

#define HAS_TRIM (UMF_POOL_OPS_VERSION_CURRENT >= UMF_MAKE_VERSION(1, 1))

/* --- the adapter's declarations are UMF's --- */

#define SAME_VALUE(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)
#define SAME_PLACE(ours, theirs)                                                                                       \
    _Static_assert(offsetof(struct lochi_umf_ops, ours) == offsetof(struct umf_memory_pool_ops_t, theirs), #theirs)

SAME_VALUE(LOCHI_UMF_SUCCESS, UMF_RESULT_SUCCESS);
SAME_VALUE(LOCHI_UMF_OUT_OF_MEMORY, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
SAME_VALUE(LOCHI_UMF_PROVIDER_SPECIFIC, UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
SAME_VALUE(LOCHI_UMF_INVALID_ARGUMENT, UMF_RESULT_ERROR_INVALID_ARGUMENT);
SAME_VALUE(LOCHI_UMF_INVALID_ALIGNMENT, UMF_RESULT_ERROR_INVALID_ALIGNMENT);
SAME_VALUE(LOCHI_UMF_NOT_SUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED);
SAME_VALUE(LOCHI_UMF_MISSING, UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
SAME_VALUE(LOCHI_UMF_UNKNOWN, UMF_RESULT_ERROR_UNKNOWN);
SAME_VALUE(LOCHI_UMF_READ, CTL_QUERY_READ);
SAME_VALUE(LOCHI_UMF_WRITE, CTL_QUERY_WRITE);
SAME_VALUE(LOCHI_UMF_RUN, CTL_QUERY_RUNNABLE);
SAME_VALUE(LOCHI_UMF_CALL, CTL_QUERY_PROGRAMMATIC);
SAME_VALUE(LOCHI_UMF_CONFIGURATION, CTL_QUERY_CONFIG_INPUT);
SAME_VALUE(LOCHI_UMF_VERSION(1, 1), UMF_MAKE_VERSION(1, 1));
SAME_PLACE(version, version);
SAME_PLACE(initialize, initialize);
SAME_PLACE(finalize, finalize);
SAME_PLACE(malloc, malloc);
SAME_PLACE(calloc, calloc);
SAME_PLACE(realloc, realloc);
SAME_PLACE(aligned_malloc, aligned_malloc);
SAME_PLACE(get_size, malloc_usable_size);
SAME_PLACE(free, free);
SAME_PLACE(get_last_error, get_last_allocation_error);
SAME_PLACE(get_name, get_name);
SAME_PLACE(control, ext_ctl);
#if HAS_TRIM
SAME_VALUE(LOCHI_UMF_INVALID_PATH, UMF_RESULT_ERROR_INVALID_CTL_PATH);
SAME_VALUE(LOCHI_UMF_TABLE_VERSION, UMF_POOL_OPS_VERSION_CURRENT);
SAME_PLACE(trim, ext_trim_memory);
_Static_assert(sizeof(struct lochi_umf_ops) == sizeof(struct umf_memory_pool_ops_t), "size of the table");
#endif

/* --- blocks --- */

static void blocks_are_memory_of_the_provider(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    assert_int_equal(atomic_load(&bed.memory.calls), 0); /* nothing before the first block */
    void *blocks[64];
    for (size_t i = 0; i < 64; i++) {
        blocks[i] = take(&bed, 1 + i * 1001);
        memset(blocks[i], (int)i, 1 + i * 1001);
        umf_memory_pool_handle_t found = NULL;
        CHECK_UMF(umfPoolByPtr((char *)blocks[i] + i * 1001, &found));
        assert_ptr_equal(found, bed.pool);
    }
    assert_true(atomic_load(&bed.memory.bytes) >= 64 * 65 / 2 * 1001);
    assert_int_equal(atomic_load(&bed.memory.bytes), figure(&bed, "stats.reserved_memory"));
    for (size_t i = 0; i < 64; i++) {
        for (size_t byte = 0; byte < 1 + i * 1001; byte += 333)
            assert_int_equal(((unsigned char *)blocks[i])[byte], i);
        if (i % 2)
            CHECK_UMF(umfPoolFree(bed.pool, blocks[i]));
        else
            CHECK_UMF(umfFree(blocks[i])); /* UMF finds the pool */
    }
    assert_int_equal(figure(&bed, "stats.used_memory"), 0);
    CHECK_UMF(umfPoolFree(bed.pool, NULL));
    bed_close(&bed);
}

static void a_request_of_zero_bytes_returns_a_block(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    void *blocks[] = {umfPoolMalloc(bed.pool, 0), umfPoolCalloc(bed.pool, 0, 8), umfPoolCalloc(bed.pool, 8, 0),
                      umfPoolRealloc(bed.pool, NULL, 0), umfPoolAlignedMalloc(bed.pool, 0, 0)};
    for (size_t i = 0; i < 5; i++) {
        assert_non_null(blocks[i]);
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(blocks[i], blocks[k]);
    }
    assert_int_equal(figure(&bed, "stats.alloc_count"), 5);
    for (size_t i = 0; i < 5; i++)
        CHECK_UMF(umfPoolFree(bed.pool, blocks[i]));
    bed_close(&bed);
}

static void calloc_clears_memory_that_was_used(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    static const size_t sizes[] = {1, 24, 4096, 100000, 3 << 20};
    for (size_t i = 0; i < 5; i++) {
        void *used = take(&bed, 7 * sizes[i]);
        memset(used, 0xa5, 7 * sizes[i]);
        CHECK_UMF(umfPoolFree(bed.pool, used));
        unsigned char *block = umfPoolCalloc(bed.pool, 7, sizes[i]);
        assert_non_null(block);
        for (size_t byte = 0; byte < 7 * sizes[i]; byte++)
            assert_int_equal(block[byte], 0);
        CHECK_UMF(umfPoolFree(bed.pool, block));
    }
    assert_null(umfPoolCalloc(bed.pool, SIZE_MAX / 2, 4));
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    bed_close(&bed);
}

static void realloc_keeps_the_contents(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    unsigned char *block = umfPoolRealloc(bed.pool, NULL, 1);
    assert_non_null(block);
    block[0] = 1;
    size_t size = 1;
    for (; size < (8 << 20); size *= 3) {
        block = umfPoolRealloc(bed.pool, block, 3 * size);
        assert_non_null(block);
        for (size_t i = 0; i < size; i += 1 + size / 50)
            assert_int_equal(block[i], (unsigned char)(i + 1));
        for (size_t i = 0; i < 3 * size; i++)
            block[i] = (unsigned char)(i + 1);
    }
    assert_int_equal(figure(&bed, "stats.alloc_count"), 1);
    block = umfPoolRealloc(bed.pool, block, 100); /* smaller */
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(block[i], i + 1);
    assert_null(umfPoolRealloc(bed.pool, block, SIZE_MAX - 4096)); /* fails: the block stays */
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(block[99], 100);
    assert_null(umfPoolRealloc(bed.pool, block, 0)); /* frees */
    assert_int_equal(figure(&bed, "stats.alloc_count"), 0);
    assert_int_equal(figure(&bed, "stats.used_memory"), 0);
    bed_close(&bed);
}

static void aligned_blocks_are_aligned(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    void *blocks[24];
    for (size_t i = 0; i < 24; i++) {
        blocks[i] = umfPoolAlignedMalloc(bed.pool, 100, (size_t)1 << i);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] & (((uintptr_t)1 << i) - 1), 0);
        memset(blocks[i], 1, 100);
    }
    for (size_t i = 0; i < 24; i++)
        CHECK_UMF(umfPoolFree(bed.pool, blocks[i]));
    assert_null(umfPoolAlignedMalloc(bed.pool, 100, 24));
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    assert_null(umfPoolAlignedMalloc(bed.pool, 100, ~(SIZE_MAX / 2))); /* 2 to the power of 63 */
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    for (size_t size = 1; size < 100000; size = size * 5 / 3 + 1) { /* plain blocks, as malloc aligns them */
        void *block = take(&bed, size);
        assert_int_equal((uintptr_t)block & 15, 0);
        CHECK_UMF(umfPoolFree(bed.pool, block));
    }
    bed_close(&bed);
}

static void the_usable_size_is_the_requested_size(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    for (size_t size = 1; size < (4 << 20); size = size * 2 + 1) {
        void *block = take(&bed, size);
        size_t usable = 0;
        CHECK_UMF(umfPoolMallocUsableSize(bed.pool, block, &usable));
        assert_int_equal(usable, size);
        if (size > 1)
            assert_int_equal(umfPoolMallocUsableSize(bed.pool, (char *)block + 1, &usable),
                             UMF_RESULT_ERROR_INVALID_ARGUMENT);
        CHECK_UMF(umfPoolFree(bed.pool, block));
    }
    size_t usable = 1;
    CHECK_UMF(umfPoolMallocUsableSize(bed.pool, NULL, &usable));
    assert_int_equal(usable, 0);
    CHECK_UMF(umfPoolMallocUsableSize(bed.pool, NULL, NULL));
    bed_close(&bed);
}

static void a_wrong_free_is_refused(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    int own;
    char *block = take(&bed, 4096);
    assert_int_equal(umfPoolFree(bed.pool, &own), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(umfPoolFree(bed.pool, block + 16), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    assert_null(umfPoolRealloc(bed.pool, block + 16, 10000));
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK_UMF(umfPoolFree(bed.pool, block));
    assert_int_equal(umfPoolFree(bed.pool, block), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    bed_close(&bed);
}

/* --- errors --- */

static void *fail_on_a_thread(void *argument)
{
    bed *bed = argument;
    assert_int_equal(umfPoolGetLastAllocationError(bed->pool), UMF_RESULT_SUCCESS); /* of this thread */
    assert_null(umfPoolAlignedMalloc(bed->pool, 1, 3));
    assert_int_equal(umfPoolGetLastAllocationError(bed->pool), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    return NULL;
}

static void the_last_error_belongs_to_the_thread(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    assert_null(umfPoolMalloc(bed.pool, SIZE_MAX));
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_on_a_thread, &bed), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    bed_close(&bed);
}

static void the_result_of_a_provider_that_fails_is_passed_on(void **state)
{
    (void)state;
    static const umf_result_t results[] = {
        UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC,
        UMF_RESULT_ERROR_INVALID_ARGUMENT,   UMF_RESULT_ERROR_NOT_SUPPORTED,
        UMF_RESULT_ERROR_USER_SPECIFIC,      UMF_RESULT_ERROR_UNKNOWN};
    bed bed;
    bed_open(&bed, NULL);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        atomic_store(&bed.memory.result, (int)results[i]);
        atomic_store(&bed.memory.left, 0);
        assert_null(umfPoolMalloc(bed.pool, 1 << 20));
        assert_int_equal(umfPoolGetLastAllocationError(bed.pool), results[i]);
        assert_null(umfPoolCalloc(bed.pool, 1, 10));
        assert_int_equal(umfPoolGetLastAllocationError(bed.pool), results[i]);
    }
    atomic_store(&bed.memory.result, (int)UMF_RESULT_SUCCESS); /* success without memory is a failure too */
    assert_null(umfPoolMalloc(bed.pool, 1 << 20));
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    atomic_store(&bed.memory.left, -1); /* the provider is well again */
    void *block = take(&bed, 1 << 20);
    CHECK_UMF(umfPoolFree(bed.pool, block));
    bed_close(&bed);
}

/* A fixed program runs with a provider that gives memory N times, for N = 0, 1, ... until nothing fails. */
static void every_allocation_of_the_provider_may_fail(void **state)
{
    (void)state;
    int failures = 1;
    for (int left = 0; failures; left++) {
        assert_true(left < 200);
        bed bed;
        bed_open(&bed, NULL);
        atomic_store(&bed.memory.result, (int)UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        atomic_store(&bed.memory.left, left);
        failures = 0;
        unsigned char *blocks[40];
        for (size_t i = 0; i < 40; i++) {
            const size_t size = (size_t)16 << (i % 18);
            blocks[i] = i % 3 ? umfPoolMalloc(bed.pool, size) : umfPoolAlignedMalloc(bed.pool, size, 1 << 12);
            failures += !blocks[i];
            if (blocks[i]) memset(blocks[i], (int)i, size);
            if (!blocks[i])
                assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        }
        for (size_t i = 0; i < 40; i++) {
            if (!blocks[i]) continue;
            unsigned char *larger = umfPoolRealloc(bed.pool, blocks[i], (size_t)80 << (i % 18));
            failures += !larger;
            blocks[i] = larger ? larger : blocks[i];
            assert_int_equal(blocks[i][0], i);
            CHECK_UMF(umfPoolFree(bed.pool, blocks[i]));
        }
        bed_close(&bed);
    }
}

static void a_pool_on_a_provider_without_alignment_works(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 4096; shift = shift * 2 + 8) {
        bed bed;
        bed_open(&bed, NULL);
        bed.memory.alignment_max = 1;
        bed.memory.shift = shift;
        for (size_t alignment = 1; alignment <= (1 << 21); alignment *= 2) {
            void *block = umfPoolAlignedMalloc(bed.pool, 1000, alignment);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block & (alignment - 1), 0);
            memset(block, 1, 1000);
            if (alignment & 0x55555555) CHECK_UMF(umfPoolFree(bed.pool, block)); /* the others stay */
        }
        bed_close(&bed);
    }
}

/* UMF's OS provider has a wrong offset for what it aligns: the pool must not let it align. */
static void another_process_would_open_the_right_memory(void **state)
{
    (void)state;
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool;
    CHECK_UMF(umfOsMemoryProviderParamsCreate(&params));
    CHECK_UMF(umfOsMemoryProviderParamsSetVisibility(params, UMF_MEM_MAP_SHARED));
    CHECK_UMF(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider));
    CHECK_UMF(umfOsMemoryProviderParamsDestroy(params));
    CHECK_UMF(umfPoolCreate(loch_umf_pool_ops(), provider, NULL, 0, &pool));
    umf_ipc_handler_handle_t handler;
    CHECK_UMF(umfPoolGetIPCHandler(pool, &handler));
    for (size_t size = 1; size < (16 << 20); size *= 8) {
        unsigned char *block = umfPoolMalloc(pool, size);
        assert_non_null(block);
        for (size_t i = 0; i < size; i++)
            block[i] = (unsigned char)(i * 7 + size);
        umf_ipc_handle_t handle;
        size_t handle_size;
        void *opened;
        CHECK_UMF(umfGetIPCHandle(block, &handle, &handle_size));
        CHECK_UMF(umfOpenIPCHandle(handler, handle, &opened));
        assert_ptr_not_equal(opened, block);
        assert_memory_equal(opened, block, size);
        CHECK_UMF(umfCloseIPCHandle(opened));
        CHECK_UMF(umfPutIPCHandle(handle));
        CHECK_UMF(umfPoolFree(pool, block));
    }
    CHECK_UMF(umfPoolDestroy(pool));
    CHECK_UMF(umfMemoryProviderDestroy(provider));
}

/* --- create and destroy --- */

static void a_pool_may_be_destroyed_with_live_blocks(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    for (size_t i = 0; i < 3000; i++)
        take(&bed, 1 + i * 7);
    bed_close(&bed); /* all memory is back */
}

static void a_provider_that_takes_nothing_back_ends_the_pool_with_an_error(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    CHECK_UMF(umfPoolFree(bed.pool, take(&bed, 1 << 20)));
    atomic_store(&bed.memory.refuses_frees, true);
#if HAS_TRIM
    CHECK_UMF(umfPoolTrimMemory(bed.pool, 0)); /* the memory stays with the pool, which tries again later */
#endif
    assert_int_not_equal(umfPoolDestroy(bed.pool), UMF_RESULT_SUCCESS);
    assert_true(atomic_load(&bed.memory.bytes) > 0);
    CHECK_UMF(umfMemoryProviderDestroy(bed.provider));
    free(bed.memory.refused);
    bed_open(&bed, NULL); /* the next pool does not touch the provider that is gone */
    CHECK_UMF(umfPoolFree(bed.pool, take(&bed, 1 << 20)));
    bed_close(&bed);
}

static void names_are_checked(void **state)
{
    (void)state;
    const char *name = NULL;
    CHECK_UMF(loch_umf_pool_ops()->get_name(NULL, &name));
    assert_string_equal(name, "loch");
    bed bed;
    bed_open(&bed, NULL);
    CHECK_UMF(umfPoolGetName(bed.pool, &name));
    assert_string_equal(name, "loch");
    bed_close(&bed);
    bed_open(&bed, &(loch_umf_options){.size = sizeof(loch_umf_options), .name = "Weights_0-a"});
    CHECK_UMF(umfPoolGetName(bed.pool, &name));
    assert_string_equal(name, "Weights_0-a");
    static const char *const wrong[] = {"", "with space", "a.b",
                                        "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < 4; i++) {
        const loch_umf_options options = {.size = sizeof options, .name = wrong[i]};
        umf_memory_pool_handle_t pool = NULL;
        assert_int_equal(umfPoolCreate(loch_umf_pool_ops(), bed.provider, &options, 0, &pool),
                         UMF_RESULT_ERROR_INVALID_ARGUMENT);
        assert_null(pool);
        assert_non_null(strstr(loch_error_get()->sentence, "name of a UMF pool"));
    }
    bed_close(&bed);
}

static void wrong_parameters_are_refused(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    loch_allocator *other = NULL;
    CHECK_UMF(umfCtlGet("umf.pool.by_handle.{}.loch.allocator", &other, sizeof(void *), bed.pool));
    const loch_pool_options with_source = {.size = sizeof with_source, .source = other};
    const loch_pool_options without_size = {.size = 0};
    const loch_pool_options too_new = {.size = sizeof too_new + 8};
    const struct {
        loch_umf_options options;
        umf_result_t result;
    } cases[] = {
        {{.size = 0}, UMF_RESULT_ERROR_INVALID_ARGUMENT},
        {{.size = sizeof(loch_umf_options) + 8}, UMF_RESULT_ERROR_INVALID_ARGUMENT},
        {{.size = sizeof(loch_umf_options), .source = (loch_umf_source)2}, UMF_RESULT_ERROR_INVALID_ARGUMENT},
        {{.size = sizeof(loch_umf_options), .device = "sim:many"}, UMF_RESULT_ERROR_INVALID_ARGUMENT},
        {{.size = sizeof(loch_umf_options), .device = "nothere:0"}, UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE},
        {{.size = sizeof(loch_umf_options), .pool = &with_source}, UMF_RESULT_ERROR_INVALID_ARGUMENT},
        {{.size = sizeof(loch_umf_options), .pool = &without_size}, UMF_RESULT_ERROR_INVALID_ARGUMENT},
        {{.size = sizeof(loch_umf_options), .pool = &too_new}, UMF_RESULT_ERROR_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        umf_memory_pool_handle_t pool = NULL;
        loch_error_clear();
        const umf_result_t result = umfPoolCreate(loch_umf_pool_ops(), bed.provider, &cases[i].options, 0, &pool);
        if (result != cases[i].result)
            fail_msg("case %zu: %d instead of %d: %s", i, (int)result, (int)cases[i].result,
                     loch_error_get()->sentence);
        assert_null(pool);
        assert_true(loch_error_get()->sentence[0]);
    }
    void *pool = NULL;
    assert_int_equal(loch_umf_pool_ops()->initialize(NULL, NULL, &pool), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(loch_umf_pool_ops()->initialize(bed.provider, NULL, NULL), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(loch_umf_pool_ops()->finalize(NULL), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    bed_close(&bed);
}

static void options_of_an_older_loch_are_accepted(void **state)
{
    (void)state;
    const loch_umf_options options = {
        .size = offsetof(loch_umf_options, device), .name = "old", .device = "not read", .source = (loch_umf_source)77};
    bed bed;
    bed_open(&bed, &options);
    CHECK_UMF(umfPoolFree(bed.pool, take(&bed, 100)));
    bed_close(&bed);
}

/* A table of version 1.0 has no trim. UMF of any version takes it. */
static void a_table_of_version_1_0_works(void **state)
{
    (void)state;
    umf_memory_pool_ops_t old = *loch_umf_pool_ops();
    old.version = UMF_MAKE_VERSION(1, 0);
    bed bed;
    bed_open(&bed, NULL);
    CHECK_UMF(umfPoolDestroy(bed.pool));
    CHECK_UMF(umfPoolCreate(&old, bed.provider, NULL, 0, &bed.pool));
    void *block = take(&bed, 1000);
    CHECK_UMF(umfPoolFree(bed.pool, block));
#if HAS_TRIM
    assert_int_equal(umfPoolTrimMemory(bed.pool, 0), UMF_RESULT_ERROR_NOT_SUPPORTED);
#endif
    bed_close(&bed);
}

/* --- trim and controls --- */

#if HAS_TRIM
static void trim_gives_memory_back_to_the_provider(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    void *blocks[100];
    for (size_t i = 0; i < 100; i++)
        blocks[i] = take(&bed, 100000);
    for (size_t i = 0; i < 100; i++)
        CHECK_UMF(umfPoolFree(bed.pool, blocks[i]));
    const size_t before = atomic_load(&bed.memory.bytes);
    assert_true(before >= 100 * 100000);
    CHECK_UMF(umfPoolTrimMemory(bed.pool, SIZE_MAX)); /* keeps all */
    assert_int_equal(atomic_load(&bed.memory.bytes), before);
    CHECK_UMF(umfPoolTrimMemory(bed.pool, before / 2));
    assert_true(atomic_load(&bed.memory.bytes) <= before / 2);
    CHECK_UMF(umfPoolTrimMemory(bed.pool, 0));
    assert_int_equal(atomic_load(&bed.memory.bytes), 0);
    assert_int_equal(figure(&bed, "stats.reserved_memory"), 0);
    assert_true(figure(&bed, "stats.peak_reserved_memory") >= 100 * 100000);
    bed_close(&bed);
}
#endif

static void controls_read_figures_and_write_limits(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, NULL);
    loch_allocator *allocator = NULL;
    CHECK_UMF(umfCtlGet("umf.pool.by_handle.{}.loch.allocator", &allocator, sizeof(void *), bed.pool));
    void *block = take(&bed, 100000);
    loch_pool_info info = {.size = sizeof info};
    assert_int_equal(loch_pool_get_info(allocator, &info), LOCH_OK);
    assert_int_equal(figure(&bed, "stats.used_memory"), info.used_bytes);
    assert_int_equal(figure(&bed, "stats.reserved_memory"), info.reserved_bytes);
    assert_int_equal(figure(&bed, "params.limit_bytes"), 0);
    set(&bed, "params.limit_bytes", 8 << 20);
    assert_int_equal(figure(&bed, "params.limit_bytes"), 8 << 20);
    assert_null(umfPoolMalloc(bed.pool, 16 << 20));
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "8 MiB")); /* the sentence says which limit */
    set(&bed, "params.idle_bytes", 1 << 20);
    assert_int_equal(figure(&bed, "params.idle_bytes"), 1 << 20);
    CHECK_UMF(umfPoolFree(bed.pool, block));

    size_t value = 0;
    const char *path = "umf.pool.by_handle.{}.params.limit_bytes";
    assert_int_not_equal(umfCtlGet(path, &value, 1, bed.pool), UMF_RESULT_SUCCESS);
    assert_int_not_equal(umfCtlSet(path, &value, 4, bed.pool), UMF_RESULT_SUCCESS);
    assert_int_not_equal(umfCtlSet("umf.pool.by_handle.{}.stats.used_memory", &value, sizeof value, bed.pool),
                         UMF_RESULT_SUCCESS);
    assert_int_not_equal(umfCtlExec("umf.pool.by_handle.{}.stats.used_memory", NULL, 0, bed.pool), UMF_RESULT_SUCCESS);
    assert_int_not_equal(umfCtlGet("umf.pool.by_handle.{}.stats.nothing", &value, sizeof value, bed.pool),
                         UMF_RESULT_SUCCESS);
    bed_close(&bed);
}

#if HAS_TRIM
/* UMF_CONF of the environment is set by the script. */
static void the_configuration_sets_limits_of_new_pools(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, &(loch_umf_options){.size = sizeof(loch_umf_options), .name = "configured"});
    assert_int_equal(figure(&bed, "params.limit_bytes"), 32 << 20);
    assert_int_equal(figure(&bed, "params.idle_bytes"), 0); /* its text is no number */
    bed_close(&bed);
}
#endif

/* --- memory of a Loch device --- */

static void a_pool_on_a_device_does_not_ask_the_provider(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, &(loch_umf_options){.size = sizeof(loch_umf_options), .source = LOCH_UMF_DEVICE});
    void *block = take(&bed, 10 << 20);
    memset(block, 1, 10 << 20);
    assert_int_equal(atomic_load(&bed.memory.calls), 0);
    umf_memory_pool_handle_t found = NULL;
    assert_int_not_equal(umfPoolByPtr(block, &found), UMF_RESULT_SUCCESS); /* UMF does not know it */
    block = umfPoolRealloc(bed.pool, block, 20 << 20);
    assert_non_null(block);
    CHECK_UMF(umfPoolFree(bed.pool, block));
    take(&bed, 5000); /* stays */
    bed_close(&bed);
}

/* A simulated device runs fills and copies on a stream: they have ended when the call returns. */
static void fills_and_copies_of_a_device_have_ended_when_the_call_returns(void **state)
{
    (void)state;
    bed bed;
    bed_open(&bed, &(loch_umf_options){
                       .size = sizeof(loch_umf_options), .source = LOCH_UMF_DEVICE, .device = "sim:256MiB,backed"});
    unsigned char *block = umfPoolCalloc(bed.pool, 1, 4 << 20);
    assert_non_null(block);
    for (size_t i = 0; i < (4 << 20); i += 4096)
        assert_int_equal(block[i], 0);
    memset(block, 7, 4 << 20);
    block = umfPoolRealloc(bed.pool, block, 64 << 20);
    assert_non_null(block);
    for (size_t i = 0; i < (4 << 20); i += 4096)
        assert_int_equal(block[i], 7);
    CHECK_UMF(umfPoolFree(bed.pool, block));
    assert_null(umfPoolMalloc(bed.pool, 512 << 20));
    assert_int_equal(umfPoolGetLastAllocationError(bed.pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    bed_close(&bed);
}

/* --- threads --- */

#define THREADS 8
#define ROUNDS 4000

typedef struct exchange {
    bed *bed;
    _Atomic(unsigned char *) slots[256]; /* blocks that any thread may take and free; the first byte is the slot */
} exchange;

static void *exchange_blocks(void *argument)
{
    exchange *exchange = argument;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    for (size_t i = 0; i < ROUNDS; i++) {
        const size_t slot = (size_t)rand_r(&seed) % 256;
        const size_t size = (size_t)1 << (rand_r(&seed) % 17);
        unsigned char *block = i % 3   ? umfPoolMalloc(exchange->bed->pool, size)
                               : i % 2 ? umfPoolCalloc(exchange->bed->pool, size, 1)
                                       : umfPoolAlignedMalloc(exchange->bed->pool, size, 256);
        if (!block) return (void *)"no block";
        block[0] = (unsigned char)slot;
        block[size - 1] = (unsigned char)slot;
        unsigned char *other = atomic_exchange(&exchange->slots[slot], block);
        if (!other) continue;
        if (other[0] != slot) return (void *)"overwritten";
        if (i % 5 == 0) other = umfPoolRealloc(exchange->bed->pool, other, size + 100);
        if (!other || other[0] != slot) return (void *)"lost by realloc";
        if (umfPoolFree(exchange->bed->pool, other) != UMF_RESULT_SUCCESS) return (void *)"not freed";
#if HAS_TRIM
        if (i % 1000 == 0 && umfPoolTrimMemory(exchange->bed->pool, 0) != UMF_RESULT_SUCCESS)
            return (void *)"not trimmed";
#endif
    }
    return NULL;
}

static void threads_free_blocks_of_each_other(void **state)
{
    (void)state;
    static exchange exchange;
    bed bed;
    bed_open(&bed, NULL);
    exchange.bed = &bed;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, exchange_blocks, &exchange), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *fault;
        assert_int_equal(pthread_join(threads[i], &fault), 0);
        if (fault) fail_msg("%s", (const char *)fault);
    }
    for (size_t i = 0; i < 256; i++)
        if (exchange.slots[i]) CHECK_UMF(umfPoolFree(bed.pool, exchange.slots[i]));
    assert_int_equal(figure(&bed, "stats.used_memory"), 0);
    assert_int_equal(figure(&bed, "stats.alloc_count"), 0);
    bed_close(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_memory_of_the_provider),
        cmocka_unit_test(a_request_of_zero_bytes_returns_a_block),
        cmocka_unit_test(calloc_clears_memory_that_was_used),
        cmocka_unit_test(realloc_keeps_the_contents),
        cmocka_unit_test(aligned_blocks_are_aligned),
        cmocka_unit_test(the_usable_size_is_the_requested_size),
        cmocka_unit_test(a_wrong_free_is_refused),
        cmocka_unit_test(the_last_error_belongs_to_the_thread),
        cmocka_unit_test(the_result_of_a_provider_that_fails_is_passed_on),
        cmocka_unit_test(every_allocation_of_the_provider_may_fail),
        cmocka_unit_test(a_pool_on_a_provider_without_alignment_works),
        cmocka_unit_test(another_process_would_open_the_right_memory),
        cmocka_unit_test(a_pool_may_be_destroyed_with_live_blocks),
        cmocka_unit_test(a_provider_that_takes_nothing_back_ends_the_pool_with_an_error),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(wrong_parameters_are_refused),
        cmocka_unit_test(options_of_an_older_loch_are_accepted),
        cmocka_unit_test(a_table_of_version_1_0_works),
#if HAS_TRIM
        cmocka_unit_test(trim_gives_memory_back_to_the_provider),
        cmocka_unit_test(the_configuration_sets_limits_of_new_pools),
#endif
        cmocka_unit_test(controls_read_figures_and_write_limits),
        cmocka_unit_test(a_pool_on_a_device_does_not_ask_the_provider),
        cmocka_unit_test(fills_and_copies_of_a_device_have_ended_when_the_call_returns),
        cmocka_unit_test(threads_free_blocks_of_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

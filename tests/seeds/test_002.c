/* SPDX-License-Identifier: MIT */
/* Text 002: all memory goes through one allocator that counts; tensors and buffers that end by themselves; leaks,
 * profiles, and what was planned: CUDA, a pool, reuse of buffers. */
#include "seeds.h"
#include <loch/plan.h>
#include <stdatomic.h>

static loch_tensor *tensor_of(size_t dimensions, const int64_t *shape)
{
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_F32, dimensions, shape, LOCH_OPTIONS(tensor, .allocator = host), &tensor));
    return tensor;
}

/* --- overview --- */

ROW(002_01, "one allocator manages all allocations")
{
    LOCH_AUTO(tensor) tensor = tensor_of(LOCH_SHAPE(4, 4));
    LOCH_AUTO(buffer) buffer = buffer_of(host, 100, 0);
    assert_int_equal(live(host), 2);
}
ROW(002_02, "one interface for managing memory")
{
    loch_allocator *all[] = {host, memory};
    for (int i = 0; i < 2; i++) {
        void *block = ask(all[i], LOCH_REQUEST(.bytes = 100, .alignment = 256));
        assert_int_equal((uintptr_t)block % 256, 0);
        give(all[i], block);
    }
}
ROW(002_03, "memory use is tracked and counted")
{
    void *block = take(host, 1000);
    assert_int_equal(loch_stats_of(host).requested_bytes, 1000);
    give(host, block);
    assert_int_equal(loch_stats_of(host).requested_bytes, 0);
    assert_int_equal(loch_stats_of(host).frees, 1);
}
static void *frees(void *block)
{
    CHECK_OK(loch_address_free(block));
    return NULL;
}
static void *works(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++)
        give(host, take(host, (size_t)i % 100 + 1));
    return NULL;
}
ROW(002_04, "thread safe")
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, works, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(loch_stats_of(host).allocs, 4000);
    assert_int_equal(live(host), 0);
}
ROW(002_05, "the interface is there for the memory of GPUs")
{
    LOCH_AUTO(buffer) buffer = buffer_of(memory, 1000, 'g');
    assert_ptr_equal(loch_buffer_get_device(buffer), gpu);
}
ROW(002_06, "application over Tensor and Buffer over the allocator over malloc and free")
{
    LOCH_AUTO(allocator) direct = NULL;
    CHECK_OK(loch_direct_create(cpu, "malloc", NULL, &direct));
    {
        LOCH_AUTO(tensor) tensor = NULL;
        CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(10), LOCH_OPTIONS(tensor, .allocator = direct), &tensor));
        assert_ptr_equal(loch_buffer_get_allocator(loch_tensor_get_buffer(tensor)), direct);
        assert_int_equal(live(direct), 1);
    }
    assert_int_equal(live(direct), 0);
}

/* --- CPUAllocator --- */

ROW(002_07, "allocates and frees memory of the CPU")
{
    int *block = take(host, 100 * sizeof(int));
    block[99] = 1;
    give(host, block);
}
static loch_status counts(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes;
    return LOCH_OK;
}
ROW(002_08, "tracks all live allocations")
{
    void *one = take(host, 100), *two = take(host, 200);
    size_t bytes = 0;
    CHECK_OK(loch_allocator_walk(host, counts, &bytes));
    assert_int_equal(bytes, 300);
    give(host, one);
    give(host, two);
}
ROW(002_09, "counts current use and the peak")
{
    give(host, take(host, 1000));
    assert_int_equal(loch_stats_of(host).requested_bytes, 0);
    assert_int_equal(loch_stats_of(host).peak_requested_bytes, 1000);
}
ROW(002_10, "void *allocate(size)")
{
    give(host, take(host, 1));
}
ROW(002_11, "void deallocate(ptr): the address is enough")
{
    CHECK_OK(loch_address_free(take(host, 100)));
    assert_int_equal(live(host), 0);
}
ROW(002_12, "total_allocated(): bytes that are allocated now")
{
    void *block = take(host, 12345);
    assert_int_equal(loch_stats_of(host).requested_bytes, 12345);
    give(host, block);
}
ROW(002_13, "peak_allocated()")
{
    void *one = take(host, 1000), *two = take(host, 2000);
    give(host, one);
    give(host, two);
    give(host, take(host, 100));
    assert_int_equal(loch_stats_of(host).peak_requested_bytes, 3000);
}
ROW(002_14, "allocation_count(): live allocations")
{
    void *one = take(host, 1000), *two = take(host, 2000);
    assert_int_equal(loch_stats_of(host).blocks, 2);
    give(host, one);
    assert_int_equal(loch_stats_of(host).blocks, 1);
    give(host, two);
}
ROW(002_15, "static get_instance()")
{
    LOCH_AUTO(allocator) again = NULL;
    CHECK_OK(loch_device_acquire_default(cpu, &again));
    assert_ptr_equal(again, host);
}
static void *reads(void *stop)
{
    while (!atomic_load((atomic_bool *)stop)) {
        const loch_stats stats = loch_stats_of(host);
        assert_true(stats.allocs >= stats.frees && stats.peak_requested_bytes >= stats.requested_bytes);
    }
    return NULL;
}
ROW(002_16, "a mutex protects the state: figures are consistent while others allocate")
{
    atomic_bool stop = false;
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, reads, &stop), 0);
    works(NULL);
    atomic_store(&stop, true);
    pthread_join(reader, NULL);
}
ROW(002_17, "all public methods are thread safe: frees of another thread")
{
    void *block = take(host, 100);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, frees, block), 0);
    pthread_join(other, NULL);
    assert_int_equal(live(host), 0);
}

/* --- Tensor --- */

ROW(002_18, "Tensor::create({8, 64, 56, 56}, FLOAT32) takes memory of the allocator by itself")
{
    LOCH_AUTO(tensor) tensor = tensor_of(LOCH_SHAPE(8, 64, 56, 56));
    assert_int_equal(loch_stats_of(host).requested_bytes, (uint64_t)8 * 64 * 56 * 56 * 4);
}
ROW(002_19, "size_in_bytes()")
{
    LOCH_AUTO(tensor) tensor = tensor_of(LOCH_SHAPE(8, 64, 56, 56));
    assert_int_equal(loch_tensor_get_bytes(tensor), 8 * 64 * 56 * 56 * 4);
}
ROW(002_20, "a shared_ptr with a deleter frees the memory by itself")
{
    loch_tensor *tensor = tensor_of(LOCH_SHAPE(10)), *second = loch_tensor_retain(tensor);
    loch_tensor_release(tensor);
    assert_int_equal(live(host), 1);
    loch_tensor_release(second);
    assert_int_equal(live(host), 0);
}
ROW(002_21, "Tensor: shapes whose bytes do not fit are refused")
{
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_FAILS(loch_tensor_create(LOCH_F32, LOCH_SHAPE(INT64_MAX, 4), NULL, &tensor), OVERFLOW);
}

/* --- Buffer<T> --- */

static loch_buffer *floats(size_t count)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create_array(host, count, sizeof(float), LOCH_REQUEST(.flags = LOCH_ALLOC_ZEROED), &buffer));
    return buffer;
}
ROW(002_22, "Buffer<float> buffer(1 MiB / sizeof(float))")
{
    LOCH_AUTO(buffer) buffer = floats(MIB / sizeof(float));
    assert_int_equal(loch_buffer_get_bytes(buffer), MIB);
}
ROW(002_23, "float *data = buffer.data()")
{
    LOCH_AUTO(buffer) buffer = floats(100);
    float *data = loch_buffer_get_address(buffer);
    data[99] = 1.5f;
    assert_true(((float *)loch_buffer_get_address(buffer))[99] == 1.5f);
}
ROW(002_24, "the buffer leaves its scope and frees the memory")
{
    {
        LOCH_AUTO(buffer) buffer = floats(100);
        assert_int_equal(live(host), 1);
    }
    assert_int_equal(live(host), 0);
}
ROW(002_25, "cannot be copied, can be moved")
{
    LOCH_AUTO(buffer) from = floats(100);
    const void *data = loch_buffer_get_address(from);
    LOCH_AUTO(buffer) to = loch_buffer_take(&from);
    assert_null(from);
    assert_ptr_equal(loch_buffer_get_address(to), data);
    assert_int_equal(loch_buffer_get_references(to), 1);
}
ROW(002_26, "uses the allocator by itself")
{
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_OK(loch_buffer_create_for_device(NULL, 100, NULL, &buffer));
    assert_int_equal(live(host), 1);
}
ROW(002_27, "initialised with zeros, used memory too")
{
    void *dirty = take(host, 400);
    memset(dirty, 0xff, 400);
    give(host, dirty);
    LOCH_AUTO(buffer) buffer = floats(100);
    expect_bytes(loch_buffer_get_address(buffer), 400, 0);
}
ROW(002_28, "elements times size: the product is checked")
{
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_FAILS(loch_buffer_create_array(host, SIZE_MAX / 2, sizeof(float), NULL, &buffer), OVERFLOW);
}

/* --- use --- */

ROW(002_29, "Tensor for inputs and weights, all managed by the allocator")
{
    LOCH_AUTO(tensor) input = tensor_of(LOCH_SHAPE(1, 3, 8, 8));
    LOCH_AUTO(tensor) weight = tensor_of(LOCH_SHAPE(16, 3, 3, 3));
    assert_int_equal(loch_stats_of(host).requested_bytes, loch_tensor_get_bytes(input) + loch_tensor_get_bytes(weight));
}
ROW(002_30, "temporary buffers of operators (col_buffer) come from the allocator: tracked, and seen by tag")
{
    loch_tag tag;
    CHECK_OK(loch_tag_create("col_buffer", &tag));
    LOCH_AUTO(buffer) columns = NULL;
    CHECK_OK(loch_buffer_create(host, 5000, LOCH_REQUEST(.tag = tag), &columns));
    loch_stats stats = LOCH_SIZED(loch_stats);
    CHECK_OK(loch_allocator_get_tag_stats(host, tag, &stats));
    assert_int_equal(stats.requested_bytes, 5000);
}
ROW(002_31, "memory of an operator can be watched")
{
    loch_profile_report report = LOCH_SIZED(loch_profile_report);
    loch_profile *profile;
    CHECK_OK(loch_profile_begin(host, "conv", &profile));
    loch_buffer_release(buffer_of(host, 7000, 0));
    loch_profile_end(profile, &report);
    assert_int_equal(report.peak_bytes, 7000);
    assert_int_equal(report.allocs, 1);
}
ROW(002_32, "memory of an operator is cleaned up, no leak: also on an early return")
{
    for (int i = 0; i < 2; i++) {
        LOCH_AUTO(buffer) columns = floats(10);
        if (i == 0) continue;
    }
    assert_int_equal(live(host), 0);
}
ROW(002_33, "statistics before and after the model: delta, peak, live allocations")
{
    const uint64_t before = loch_stats_of(host).requested_bytes;
    LOCH_AUTO(tensor) output = tensor_of(LOCH_SHAPE(100));
    loch_tensor_release(tensor_of(LOCH_SHAPE(1000)));
    assert_int_equal(loch_stats_of(host).requested_bytes - before, 400);
    assert_int_equal(loch_stats_of(host).peak_requested_bytes, 4400);
    assert_int_equal(loch_stats_of(host).blocks, 1);
}

/* --- tracking --- */

ROW(002_34, "allocations_[ptr] = size: the size of an address")
{
    void *block = take(host, 777);
    assert_int_equal(find(host, block).requested_bytes, 777);
    give(host, block);
}
ROW(002_35, "allocate: total += size")
{
    void *one = take(host, 100), *two = take(host, 23);
    assert_int_equal(loch_stats_of(host).requested_bytes, 123);
    give(host, one);
    give(host, two);
}
ROW(002_36, "allocate: peak = max(peak, total)")
{
    give(host, take(host, 100));
    give(host, take(host, 50));
    assert_int_equal(loch_stats_of(host).peak_requested_bytes, 100);
}
ROW(002_37, "a failed allocation counts nothing")
{
    void *none;
    CHECK_FAILS(loch_alloc(host, SIZE_MAX / 2, &none), OVERFLOW);
    assert_int_equal(loch_stats_of(host).requested_bytes + loch_stats_of(host).allocs, 0);
}
ROW(002_38, "deallocate: finds the size, total -= size")
{
    void *one = take(host, 100), *two = take(host, 23);
    give(host, one);
    assert_int_equal(loch_stats_of(host).requested_bytes, 23);
    give(host, two);
}
ROW(002_39, "deallocate: the address is not known afterwards")
{
    void *block = take(host, 100);
    give(host, block);
    loch_block found = LOCH_SIZED(loch_block);
    CHECK_FAILS_SET(loch_allocator_find(host, block, &found), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
}
ROW(002_40, "deallocate of an unknown address changes nothing")
{
    int mine;
    CHECK_FAILS(loch_free(host, &mine), FOREIGN);
    assert_int_equal(loch_stats_of(host).frees, 0);
}

/* --- cost --- */

ROW(002_41, "bookkeeping of large blocks is negligible")
{
    loch_host_usage before = LOCH_SIZED(loch_host_usage), after = LOCH_SIZED(loch_host_usage);
    give(memory, take(memory, 64 * MIB));
    CHECK_OK(loch_host_get_usage(&before));
    void *block = take(memory, 64 * MIB);
    CHECK_OK(loch_host_get_usage(&after));
    assert_true(after.bytes - before.bytes < 64 * KIB);
    give(memory, block);
}
ROW(002_42, "strategy: fewer small allocations by one large block")
{
    LOCH_AUTO(buffer) large = buffer_of(host, 1000, 'p');
    LOCH_AUTO(buffer) part = NULL;
    CHECK_OK(loch_buffer_slice(large, 100, 200, &part));
    assert_int_equal(live(host), 1);
    assert_int_equal(loch_buffer_get_bytes(part), 200);
}
ROW(002_43, "strategy: reuse of buffers")
{
    LOCH_AUTO(buffer_pool) pool = NULL;
    CHECK_OK(loch_buffer_pool_create(memory, NULL, &pool));
    loch_buffer *buffer;
    for (int i = 0; i < 10; i++) {
        CHECK_OK(loch_buffer_pool_acquire(pool, 4096, stream, &buffer));
        CHECK_OK(loch_buffer_pool_release(pool, buffer, stream));
    }
    assert_int_equal(loch_stats_of(memory).allocs, 1);
}
ROW(002_44, "MemoryPool: large blocks taken before, small ones cut from them")
{
    LOCH_AUTO(allocator) pool = NULL;
    CHECK_OK(loch_pool_create(gpu, "pool", LOCH_OPTIONS(pool, .initial_bytes = 8 * MIB), &pool));
    const uint64_t made = figures(pool).handles_created;
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = take(pool, 10000);
    assert_int_equal(figures(pool).handles_created, made);
    for (int i = 0; i < 100; i++)
        give(pool, blocks[i]);
}
ROW(002_45, "MemoryPool: fewer calls of malloc and free")
{
    const uint64_t made = figures(host).handles_created;
    give(host, take(host, 100));
    const uint64_t first = figures(host).handles_created;
    for (int i = 0; i < 1000; i++)
        give(host, take(host, 100));
    assert_int_equal(figures(host).handles_created, first);
    assert_true(first >= made);
}

/* --- beside TensorRT --- */

ROW(002_46, "table: unified management, tracking and peaks")
{
    give(memory, take(memory, 100));
    assert_int_equal(loch_stats_of(memory).peak_requested_bytes, 100);
}
ROW(002_47, "table: a memory pool")
{
    void *block = take(memory, 100);
    give(memory, block);
    void *again = take(memory, 100);
    assert_ptr_equal(again, block);
    give(memory, again);
}
ROW(002_48, "table: GPUs, and several threads on them")
{
    void *block = take(memory, 100);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, frees, block), 0);
    pthread_join(other, NULL);
    assert_int_equal(live(memory), 0);
}

/* --- leaks and profiles --- */

ROW(002_49, "test_memory_leak: counts before and after are equal if tensors end by themselves")
{
    const uint64_t count = live(host), bytes = loch_stats_of(host).requested_bytes;
    {
        LOCH_AUTO(tensor) tensor = tensor_of(LOCH_SHAPE(1000, 1000));
        assert_int_equal(live(host), count + 1);
    }
    assert_int_equal(live(host), count);
    assert_int_equal(loch_stats_of(host).requested_bytes, bytes);
}
ROW(002_50, "Memory leak detected: N allocations leaked")
{
    LOCH_AUTO(census) before = NULL;
    LOCH_AUTO(census) after = NULL;
    CHECK_OK(loch_census_create(host, &before));
    void *leaked = take(host, 4321);
    CHECK_OK(loch_census_create(host, &after));
    size_t bytes = 0;
    CHECK_OK(loch_census_walk(after, before, counts, &bytes));
    assert_int_equal(bytes, 4321);
    give(host, leaked);
}
ROW(002_51, "Memory leak: N bytes leaked")
{
    LOCH_AUTO(census) after = NULL;
    void *leaked = take(host, 4321);
    char text[500];
    CHECK_OK(loch_census_create(host, &after));
    CHECK_OK(loch_census_print(after, NULL, LOCH_FORMAT_JSON, text, sizeof text, NULL));
    assert_non_null(strstr(text, "4321"));
    give(host, leaked);
}
ROW(002_52, "MemoryProfiler::start()")
{
    LOCH_AUTO(profile) profile = NULL;
    CHECK_OK(loch_profile_begin(host, "start", &profile));
    loch_profile_report report = LOCH_SIZED(loch_profile_report);
    CHECK_OK(loch_profile_read(profile, &report));
    assert_int_equal(report.delta_bytes, 0);
}
static loch_profile_report profiled(char *text, size_t bytes)
{
    LOCH_AUTO(profile) profile = NULL;
    loch_profile_report report = LOCH_SIZED(loch_profile_report);
    CHECK_OK(loch_profile_begin(host, "forward", &profile));
    void *kept = take(host, 3 * MIB);
    give(host, take(host, 2 * MIB));
    CHECK_OK(loch_profile_read(profile, &report));
    CHECK_OK(loch_profile_print(&report, LOCH_FORMAT_TEXT, text, bytes, NULL));
    give(host, kept);
    return report;
}
ROW(002_53, "MemoryProfiler::report(label): [label]")
{
    char text[500];
    profiled(text, sizeof text);
    assert_non_null(strstr(text, "forward"));
}
ROW(002_54, "report: Current")
{
    char text[500];
    assert_int_equal(profiled(text, sizeof text).requested_bytes, 3 * MIB);
}
ROW(002_55, "report: Delta")
{
    char text[500];
    assert_int_equal(profiled(text, sizeof text).delta_bytes, 3 * MIB);
}
ROW(002_56, "report: Peak")
{
    char text[500];
    assert_int_equal(profiled(text, sizeof text).peak_bytes, 5 * MIB);
}
ROW(002_57, "report: Active allocations")
{
    char text[500];
    assert_int_equal(profiled(text, sizeof text).blocks, 1);
}

/* --- the future --- */

ROW(002_58, "CUDAAllocator::allocate: cudaMalloc and tracking")
{
    LOCH_AUTO(allocator) direct = NULL;
    CHECK_OK(loch_direct_create(gpu, NULL, NULL, &direct));
    void *block = take(direct, 1000);
    assert_int_equal(loch_stats_of(direct).requested_bytes, 1000);
    give(direct, block);
}
ROW(002_59, "CUDAAllocator::deallocate: tracking and cudaFree")
{
    LOCH_AUTO(allocator) direct = NULL;
    CHECK_OK(loch_direct_create(gpu, NULL, NULL, &direct));
    const size_t before = held();
    give(direct, take(direct, MIB));
    assert_int_equal(held(), before);
    assert_int_equal(loch_stats_of(direct).frees, 1);
}
ROW(002_60, "BufferPool::acquire(size): from the pool, or a new one")
{
    LOCH_AUTO(buffer_pool) pool = NULL;
    CHECK_OK(loch_buffer_pool_create(memory, NULL, &pool));
    loch_buffer *one, *two;
    CHECK_OK(loch_buffer_pool_acquire(pool, 4096, stream, &one));
    CHECK_OK(loch_buffer_pool_acquire(pool, 4096, stream, &two));
    assert_ptr_not_equal(one, two);
    assert_int_equal(loch_stats_of(memory).allocs, 2);
    CHECK_OK(loch_buffer_pool_release(pool, one, stream));
    CHECK_OK(loch_buffer_pool_release(pool, two, stream));
}
ROW(002_61, "BufferPool::release(buffer): back into the pool")
{
    LOCH_AUTO(buffer_pool) pool = NULL;
    CHECK_OK(loch_buffer_pool_create(memory, NULL, &pool));
    loch_buffer *one, *again;
    CHECK_OK(loch_buffer_pool_acquire(pool, 4096, stream, &one));
    const void *address = loch_buffer_get_address(one);
    CHECK_OK(loch_buffer_pool_release(pool, one, stream));
    assert_int_equal(live(memory), 1);
    CHECK_OK(loch_buffer_pool_acquire(pool, 4096, stream, &again));
    assert_ptr_equal(loch_buffer_get_address(again), address);
    CHECK_OK(loch_buffer_pool_release(pool, again, stream));
}
ROW(002_62, "best practice: tensors and buffers in place of new float[size]")
{
    LOCH_AUTO(buffer) buffer = floats(1000);
    assert_int_equal(loch_stats_of(host).requested_bytes, 4000);
}
ROW(002_63, "best practice: no bare pointers, RAII")
{
    LOCH_WITH (buffer, buffer, loch_buffer_create(host, 100, NULL, &buffer))
        assert_int_equal(live(host), 1);
    assert_int_equal(live(host), 0);
}
ROW(002_64, "best practice: watch the peak")
{
    give(host, take(host, 100));
    CHECK_OK(loch_allocator_reset_stats(host));
    assert_int_equal(loch_stats_of(host).peak_requested_bytes, 0);
}
ROW(002_65, "best practice: release large memory early")
{
    LOCH_AUTO(buffer) large = buffer_of(memory, 8 * MIB, 0);
    loch_buffer_clear(&large);
    size_t released;
    CHECK_OK(loch_allocator_trim(memory, 0, &released));
    assert_true(released >= 8 * MIB);
}
ROW(002_66, "a planner of memory: buffers that live at different times share bytes")
{
    const loch_plan_buffer buffers[] = {{.bytes = 100, .first = 0, .last = 2}, {.bytes = 100, .first = 2, .last = 4}};
    const loch_plan_problem problem = LOCH_SIZED(loch_plan_problem, .buffers = buffers, .count = 2);
    LOCH_AUTO(plan) plan = NULL;
    CHECK_OK(loch_plan_create(&problem, NULL, &plan));
    loch_plan_info info = LOCH_SIZED(loch_plan_info);
    CHECK_OK(loch_plan_get_info(plan, &info));
    assert_int_equal(info.height, 100);
}

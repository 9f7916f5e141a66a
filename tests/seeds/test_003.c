/* SPDX-License-Identifier: MIT */
/* Text 003: the files, classes and methods of an engine: allocators that compact and freeze, contexts, guards, streams,
 * tensors, threads. */
#include "seeds.h"

typedef struct rig {
    loch_engine *engine;
    loch_context *context;
} rig;

static rig rig_open(void)
{
    static const loch_timeline_options timed = {.size = sizeof timed, .level = 3};
    const loch_engine_device seats[] = {
        LOCH_SIZED(loch_engine_device, .name = "sim:64MiB,id=1,backed", .limit_bytes = 32 * MIB),
        LOCH_SIZED(loch_engine_device, .name = "sim:64MiB,id=2,backed", .limit_bytes = 16 * MIB, .workers = 2)};
    rig it;
    CHECK_OK(
        loch_engine_open(LOCH_OPTIONS(engine, .devices = seats, .devices_count = 2, .timeline = &timed), &it.engine));
    CHECK_OK(loch_context_open(it.engine, NULL, &it.context));
    return it;
}
static void rig_close(rig *it)
{
    CHECK_OK(loch_context_close(it->context));
    CHECK_OK(loch_engine_close(it->engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}
static loch_allocator *pool_of(size_t limit)
{
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(gpu, "pool", LOCH_OPTIONS(pool, .limit_bytes = limit), &pool));
    return pool;
}
static loch_buffer *movable(loch_allocator *pool, size_t bytes, char byte)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(pool, bytes, LOCH_REQUEST(.flags = LOCH_ALLOC_MOVABLE), &buffer));
    CHECK_OK(loch_buffer_fill(buffer, &byte, 1, NULL));
    return buffer;
}
static void expect_pinned(loch_buffer *buffer, size_t bytes, char byte)
{
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
    expect_bytes(address, bytes, byte);
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
}

/* --- tensor files --- */

ROW(003_01, "tensor_impl: the implementation is hidden, the tensor is a handle that is counted")
{
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), NULL, &tensor));
    loch_tensor_release(loch_tensor_retain(tensor));
    assert_int_equal(loch_tensor_get_elements(tensor), 6);
}
ROW(003_02, "tensor_print: prints a tensor")
{
    const float numbers[] = {1, 2, 3, 4};
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(2, 2), numbers, NULL, &tensor));
    char text[200];
    CHECK_OK(loch_tensor_print(tensor, NULL, text, sizeof text, NULL));
    assert_non_null(strstr(text, "[3. 4.]"));
}
ROW(003_03, "Tensor: constructor")
{
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_tensor_create(LOCH_F16, LOCH_SHAPE(2, 3), LOCH_OPTIONS(tensor, .device = gpu), &tensor));
    assert_ptr_equal(loch_tensor_get_device(tensor), gpu);
    assert_int_equal(loch_tensor_get_bytes(tensor), 12);
}
ROW(003_04, "Tensor: destructor")
{
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_F16, LOCH_SHAPE(2, 3), LOCH_OPTIONS(tensor, .device = gpu), &tensor));
    loch_tensor_release(tensor);
    assert_int_equal(live(memory), 0);
}
ROW(003_05, "Tensor: copy constructor")
{
    const float numbers[] = {1, 2};
    float seen[2];
    LOCH_AUTO(tensor) tensor = NULL;
    LOCH_AUTO(tensor) copy = NULL;
    CHECK_OK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(2), numbers, LOCH_OPTIONS(tensor, .device = gpu), &tensor));
    CHECK_OK(loch_tensor_clone(tensor, NULL, &copy));
    loch_tensor_clear(&tensor);
    CHECK_OK(loch_tensor_read(copy, seen, sizeof seen, NULL));
    assert_true(seen[1] == 2);
}
ROW(003_06, "Tensor: assignment")
{
    const float numbers[] = {1, 2};
    float seen[2];
    LOCH_AUTO(tensor) from = NULL;
    LOCH_AUTO(tensor) to = NULL;
    CHECK_OK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(2), numbers, NULL, &from));
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2), LOCH_OPTIONS(tensor, .device = gpu), &to));
    CHECK_OK(loch_tensor_copy(to, from, NULL));
    CHECK_OK(loch_tensor_read(to, seen, sizeof seen, NULL));
    assert_true(seen[0] == 1);
}

/* --- classes --- */

ROW(003_07, "MemoryAllocator, an allocator of its own")
{
    LOCH_AUTO(allocator) pool = pool_of(0);
    give(pool, take(pool, 1000));
}
ROW(003_08, "DirectMemoryAllocator")
{
    LOCH_AUTO(allocator) direct = NULL;
    CHECK_OK(loch_direct_create(gpu, NULL, NULL, &direct));
    give(direct, take(direct, 1000));
}
ROW(003_09, "Context")
{
    rig it = rig_open();
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_context_create_tensor(it.context, LOCH_F32, LOCH_SHAPE(4), "t", 0, &tensor));
    loch_tensor_clear(&tensor);
    rig_close(&it);
}
static loch_status sees(const loch_span_record *record, void *user)
{
    *(int *)user += !strcmp(record->name, "attention");
    return LOCH_OK;
}
ROW(003_10, "EventScope: times the work of a block")
{
    rig it = rig_open();
    int seen = 0;
    {
        LOCH_SPAN(loch_engine_get_timeline(it.engine), "attention", .level = 2, .flops = 1e9);
    }
    CHECK_OK(loch_timeline_walk(loch_engine_get_timeline(it.engine), sees, &seen));
    assert_int_equal(seen, 1);
    rig_close(&it);
}
ROW(003_11, "GCStopper: nothing moves in a block")
{
    rig it = rig_open();
    loch_allocator *pool = loch_context_get_allocator(it.context);
    {
        LOCH_GUARD_CHECK(still, it.context);
        CHECK_FAILS(loch_pool_compact(pool, NULL, NULL), MOVING_FORBIDDEN);
    }
    CHECK_OK(loch_pool_compact(pool, NULL, NULL));
    rig_close(&it);
}
ROW(003_12, "ContextImpl: the state of a context belongs to one thread")
{
    rig it = rig_open();
    assert_int_equal(loch_context_get_seat(it.context).number, 0);
    CHECK_OK(loch_context_set_seat(it.context, LOCH_SEAT(1)));
    assert_int_equal(loch_context_get_seat(it.context).number, 1);
    rig_close(&it);
}
ROW(003_13, "EventRecord: what a span recorded")
{
    rig it = rig_open();
    {
        LOCH_SPAN(loch_engine_get_timeline(it.engine), "a", .level = 1);
    }
    size_t kept;
    loch_timeline_count(loch_engine_get_timeline(it.engine), &kept, NULL);
    assert_int_equal(kept, 1);
    rig_close(&it);
}
ROW(003_14, "DataType")
{
    assert_string_equal(loch_dtype_name(LOCH_BF16), "bf16");
    assert_int_equal(loch_dtype_bytes(LOCH_BF16), 2);
}
ROW(003_15, "DTypeDeducer: the type of a value or of a name")
{
    assert_int_equal(loch_dtype_find("f32"), LOCH_F32);
    const float one = 1;
    float stored;
    CHECK_OK(loch_scalar_store(loch_scalar_of(one), LOCH_F32, &stored));
    assert_true(stored == 1);
}
ROW(003_16, "DeviceConfiguration: device and limit of each seat")
{
    rig it = rig_open();
    loch_engine_info info = LOCH_SIZED(loch_engine_info);
    CHECK_OK(loch_engine_get_info(it.engine, LOCH_SEAT(1), &info));
    assert_int_equal(info.limit_bytes, 16 * MIB);
    rig_close(&it);
}
ROW(003_17, "DeviceHandles: the handles of a device, made when they are needed")
{
    rig it = rig_open();
    loch_stream *own, *again;
    CHECK_OK(loch_context_require_stream(it.context, &own));
    CHECK_OK(loch_context_require_stream(it.context, &again));
    assert_ptr_equal(own, again);
    rig_close(&it);
}
ROW(003_18, "EngineImpl: all devices of an engine")
{
    rig it = rig_open();
    assert_int_equal(loch_engine_count(it.engine), 2);
    assert_ptr_not_equal(loch_engine_get_device(it.engine, LOCH_SEAT(0)),
                         loch_engine_get_device(it.engine, LOCH_SEAT(1)));
    rig_close(&it);
}
ROW(003_19, "Engine: all of it or nothing")
{
    const loch_engine_device seats[] = {LOCH_SIZED(loch_engine_device, .name = "sim:64MiB,id=1"),
                                        LOCH_SIZED(loch_engine_device, .name = "no such device")};
    loch_engine *engine = TEST_UNTOUCHED;
    assert_int_not_equal(loch_engine_open(LOCH_OPTIONS(engine, .devices = seats, .devices_count = 2), &engine),
                         LOCH_OK);
    assert_null(engine);
}
ROW(003_20, "WithDevice: another device in a block")
{
    rig it = rig_open();
    {
        LOCH_GUARD_CHECK(seat, it.context, LOCH_SEAT(1), LOCH_SEAT_PLAIN);
        assert_int_equal(loch_context_get_seat(it.context).number, 1);
    }
    assert_int_equal(loch_context_get_seat(it.context).number, 0);
    rig_close(&it);
}
ROW(003_21, "ScopeDevice: and the device is locked")
{
    rig it = rig_open();
    {
        LOCH_GUARD_CHECK(seat, it.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED);
        CHECK_OK(loch_engine_lock(it.engine, LOCH_SEAT(0)));
        CHECK_OK(loch_engine_unlock(it.engine, LOCH_SEAT(0)));
    }
    CHECK_OK(loch_engine_lock(it.engine, LOCH_SEAT(1)));
    CHECK_OK(loch_engine_unlock(it.engine, LOCH_SEAT(1)));
    rig_close(&it);
}
ROW(003_22, "WithDebug: a level of debugging in a block")
{
    rig it = rig_open();
    {
        LOCH_GUARD_CHECK(debug, it.context, 3);
        assert_int_equal(loch_context_get_debug(it.context), 3);
    }
    assert_int_equal(loch_context_get_debug(it.context), 0);
    rig_close(&it);
}
ROW(003_23, "MemoryGuard: memory that is freed at the end of a block")
{
    {
        LOCH_AUTO(buffer) guarded = buffer_of(memory, 1000, 0);
        assert_int_equal(live(memory), 1);
    }
    assert_int_equal(live(memory), 0);
}
ROW(003_24, "MemoryArrayGuard: several at once")
{
    LOCH_AUTO(session) session = NULL;
    CHECK_OK(loch_session_begin(memory, "array", &session));
    for (int i = 0; i < 10; i++)
        take(loch_session_get_allocator(session), 100);
    assert_int_equal(live(memory), 10);
    loch_session_clear(&session);
    assert_int_equal(live(memory), 0);
}
ROW(003_25, "Memory_: a shared pointer to memory")
{
    loch_buffer *one = buffer_of(memory, 100, 0), *two = loch_buffer_retain(one);
    loch_buffer_release(one);
    assert_int_equal(live(memory), 1);
    loch_buffer_release(two);
}
static void deleted(void *address, size_t bytes, void *user)
{
    assert_non_null(address);
    *(size_t *)user += bytes;
}
ROW(003_26, "MemoryDeleter: called at the end of the memory")
{
    size_t bytes = 0;
    loch_buffer *buffer = buffer_of(memory, 100, 0);
    CHECK_OK(loch_buffer_add_deleter(buffer, deleted, &bytes));
    loch_buffer_release(loch_buffer_retain(buffer));
    assert_int_equal(bytes, 0);
    loch_buffer_release(buffer);
    assert_int_equal(bytes, 100);
}
ROW(003_27, "Stream_: a shared pointer to a stream")
{
    loch_stream *one = sim_stream(gpu, LOCH_STREAM_INDEPENDENT), *two = loch_stream_retain(one);
    loch_stream_release(one);
    CHECK_OK(loch_stream_sync(two));
    loch_stream_release(two);
}
ROW(003_28, "StreamDeleter: the last owner ends the stream, also one that came from a pool")
{
    LOCH_AUTO(stream_pool) pool = NULL;
    CHECK_OK(loch_stream_pool_create(gpu, NULL, &pool));
    loch_stream *one, *two, *owner;
    CHECK_OK(loch_stream_pool_acquire(pool, &one));
    owner = loch_stream_retain(one);
    CHECK_OK(loch_stream_pool_release(pool, one));
    CHECK_OK(loch_stream_pool_acquire(pool, &two));
    assert_ptr_not_equal(two, owner);
    CHECK_OK(loch_stream_sync(owner));
    loch_stream_release(owner);
    CHECK_OK(loch_stream_pool_release(pool, two));
}
ROW(003_29, "Tensor")
{
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_tensor_create(LOCH_I64, LOCH_SHAPE(3, 1, 2), NULL, &tensor));
    assert_int_equal(loch_tensor_get_dimensions(tensor), 3);
    assert_int_equal(loch_tensor_get_size(tensor, -1), 2);
}
ROW(003_30, "TensorImpl: several tensors on one memory")
{
    LOCH_AUTO(tensor) tensor = NULL;
    LOCH_AUTO(tensor) part = NULL;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(10), LOCH_OPTIONS(tensor, .device = gpu), &tensor));
    CHECK_OK(loch_tensor_index(tensor, 0, 3, &part));
    assert_int_equal(live(memory), 1);
}
static loch_status task(void *user)
{
    ++*(int *)user;
    return LOCH_OK;
}
ROW(003_31, "ThreadPool")
{
    LOCH_AUTO(workers) workers = NULL;
    int runs = 0;
    CHECK_OK(loch_workers_open(LOCH_OPTIONS(workers, .threads = 1), &workers));
    for (int i = 0; i < 5; i++)
        CHECK_OK(loch_workers_run(workers, task, &runs, NULL));
    CHECK_OK(loch_workers_wait(workers, NULL));
    assert_int_equal(runs, 5);
}

/* --- layers --- */

ROW(003_32, "Engine above Context above Tensor: each in the order of the layers")
{
    rig it = rig_open();
    CHECK_FAILS(loch_engine_close(it.engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL), BUSY);
    rig_close(&it);
}
ROW(003_33, "Tensor above Memory above MemoryAllocator")
{
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(10), LOCH_OPTIONS(tensor, .allocator = memory), &tensor));
    assert_ptr_equal(loch_buffer_get_allocator(loch_tensor_get_buffer(tensor)), memory);
}
ROW(003_34, "GPUInfo: memory of a device, total and in use")
{
    rig it = rig_open();
    loch_engine_info info = LOCH_SIZED(loch_engine_info);
    CHECK_OK(loch_engine_get_info(it.engine, LOCH_SEAT(0), &info));
    assert_int_equal(info.total_bytes, 64 * MIB);
    assert_int_equal(info.used_bytes, 0);
    rig_close(&it);
}
ROW(003_35, "EngineException: every failure has a status and a sentence")
{
    void *none;
    CHECK_FAILS(loch_alloc(NULL, 10, &none), INVALID);
    assert_int_equal(loch_error_get()->status, LOCH_E_INVALID);
    assert_true(strlen(loch_error_get()->sentence) > 5);
}
ROW(003_36, "ncclComm_t: of the devices of an engine, or a clear refusal")
{
    rig it = rig_open();
    loch_nccl *nccl;
    CHECK_FAILS(loch_engine_require_nccl(it.engine, &nccl), UNSUPPORTED);
    rig_close(&it);
}
ROW(003_37, "cublasHandle_t: of the current device, or a clear refusal")
{
    rig it = rig_open();
    loch_cublas *cublas;
    CHECK_FAILS(loch_context_require_cublas(it.context, &cublas), UNSUPPORTED);
    rig_close(&it);
}
ROW(003_38, "cudaEvent_t")
{
    LOCH_AUTO(event) event = sim_event(gpu);
    CHECK_OK(loch_event_record(event, stream));
    CHECK_OK(loch_event_sync(event));
}
ROW(003_39, "cudaStream_t: priorities and order")
{
    LOCH_AUTO(stream) other = NULL;
    CHECK_OK(loch_stream_create(gpu, LOCH_OPTIONS(stream, .order = LOCH_STREAM_WITH_DEFAULT), &other));
    assert_ptr_equal(loch_stream_get_device(other), gpu);
}
ROW(003_40, "cudaDeviceProp")
{
    loch_device_properties properties = LOCH_SIZED(loch_device_properties);
    CHECK_OK(loch_device_get_properties(gpu, &properties));
    assert_int_equal(properties.total_bytes, 256 * MIB);
    assert_int_equal(properties.granule_bytes, 64 * KIB);
}

/* --- methods of the allocators --- */

ROW(003_41, "new_mem(pos, ptr, size): a block at a place of the pool")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *first = take(pool, MIB);
    give(pool, first);
    CHECK_OK(loch_allocator_trim(pool, SIZE_MAX, NULL));
    void *again = ask(pool, LOCH_REQUEST(.bytes = MIB, .address = first));
    assert_ptr_equal(again, first);
    void *none;
    CHECK_FAILS(loch_allocator_alloc(pool, LOCH_REQUEST(.bytes = MIB, .address = first), &none), BUSY);
    give(pool, again);
}
ROW(003_42, "new_mem: the block is in the list of blocks")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *block = take(pool, 1000);
    assert_ptr_equal(find(pool, block).address, block);
    give(pool, block);
}
/* Memory in one segment that cannot be mapped elsewhere: only a move makes room. */
static loch_allocator *plain_pool(void)
{
    LOCH_AUTO(device) plain = sim_open("sim:64MiB,virtual=off,backed");
    loch_allocator *pool;
    CHECK_OK(
        loch_pool_create(plain, "plain", LOCH_OPTIONS(pool, .limit_bytes = 8 * MIB, .handle_bytes = 8 * MIB), &pool));
    return pool;
}
/* Fills a pool with movable buffers and drops every second one. */
static size_t scatter(loch_allocator *pool, loch_buffer **buffers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buffers[i] = movable(pool, MIB, (char)('a' + i));
    for (size_t i = 0; i < count; i += 2)
        loch_buffer_clear(&buffers[i]);
    return count / 2;
}
ROW(003_43, "memory_move(dst, src, n): the contents move and the block has a new address")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    loch_compact_report report = LOCH_SIZED(loch_compact_report);
    scatter(pool, buffers, 8);
    CHECK_OK(loch_pool_compact(pool, NULL, &report));
    uint64_t moves = 0;
    for (int i = 1; i < 8; i += 2) {
        moves += loch_buffer_get_generation(buffers[i]);
        expect_pinned(buffers[i], MIB, (char)('a' + i));
        loch_buffer_release(buffers[i]);
    }
    assert_true(moves > 0);
}
ROW(003_44, "memory_move frees nothing: the block stays the same block")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    const size_t left = scatter(pool, buffers, 8);
    const uint64_t id = loch_buffer_get_id(buffers[1]), frees = loch_stats_of(pool).frees;
    CHECK_OK(loch_pool_compact(pool, NULL, NULL));
    assert_int_equal(live(pool), left);
    assert_int_equal(loch_stats_of(pool).frees, frees);
    assert_int_equal(loch_buffer_get_id(buffers[1]), id);
    for (int i = 1; i < 8; i += 2)
        loch_buffer_release(buffers[i]);
}
ROW(003_45, "defragmentation(): afterwards the free memory is in one piece")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    scatter(pool, buffers, 8);
    CHECK_OK(loch_pool_compact(pool, LOCH_OPTIONS(compact, .contiguous_bytes = 4 * MIB), NULL));
    void *large = take(pool, 4 * MIB);
    give(pool, large);
    for (int i = 1; i < 8; i += 2)
        loch_buffer_release(buffers[i]);
}
ROW(003_46, "defragmentation moves each block towards the head of the pool")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    scatter(pool, buffers, 8);
    CHECK_OK(loch_allocator_trim(pool, SIZE_MAX, NULL)); /* out of the thread's cache */
    assert_int_equal(figures(pool).largest_free_bytes, MIB);
    CHECK_OK(loch_pool_compact(pool, NULL, NULL));
    assert_int_equal(figures(pool).largest_free_bytes, 4 * MIB);
    for (int i = 1; i < 8; i += 2)
        loch_buffer_release(buffers[i]);
}
ROW(003_47, "defragmentation leaves blocks alone whose address somebody has")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    void *address, *again;
    scatter(pool, buffers, 8);
    CHECK_OK(loch_buffer_pin(buffers[7], NULL, &address));
    CHECK_OK(loch_pool_compact(pool, NULL, NULL));
    CHECK_OK(loch_buffer_pin(buffers[7], NULL, &again));
    assert_ptr_equal(again, address);
    for (int i = 0; i < 2; i++)
        CHECK_OK(loch_buffer_unpin(buffers[7], NULL));
    for (int i = 1; i < 8; i += 2)
        loch_buffer_release(buffers[i]);
}
ROW(003_48, "MemoryAllocator(dev, virtual_dev, limit, stream): takes a large piece of memory first")
{
    LOCH_AUTO(allocator) pool = NULL;
    const size_t before = held();
    CHECK_OK(
        loch_pool_create(gpu, "all", LOCH_OPTIONS(pool, .limit_bytes = 32 * MIB, .initial_bytes = 32 * MIB), &pool));
    assert_int_equal(held(), before + 32 * MIB);
    void *block = take(pool, 31 * MIB);
    assert_int_equal(held(), before + 32 * MIB);
    give(pool, block);
}
ROW(003_49, "memory_limit: the most that the pool takes")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *block = take(pool, 8 * MIB), *none;
    CHECK_FAILS(loch_alloc(pool, 64 * KIB, &none), LIMIT);
    give(pool, block);
}
ROW(003_50, "a limit that the device does not have fails in the constructor")
{
    LOCH_AUTO(allocator) none = NULL;
    const size_t most = 512 * MIB;
    CHECK_FAILS(loch_pool_create(gpu, NULL, LOCH_OPTIONS(pool, .limit_bytes = most, .initial_bytes = most), &none),
                DEVICE_MEMORY);
}
ROW(003_51, "virtual_dev_id: several pools on one device")
{
    LOCH_AUTO(allocator) one = pool_of(8 * MIB);
    LOCH_AUTO(allocator) two = pool_of(8 * MIB);
    void *here = take(one, 8 * MIB), *there = take(two, 8 * MIB);
    CHECK_FAILS(loch_free(one, there), FOREIGN);
    give(one, here);
    give(two, there);
}
ROW(003_52, "stream: the stream of the allocator orders its memory")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *block = ask(pool, LOCH_REQUEST(.bytes = 1000, .stream = stream));
    assert_int_equal(find(pool, block).stream_id, loch_stream_get_id(stream));
    give(pool, block);
}
static loch_allocator *child_of(loch_allocator *parent, size_t bytes)
{
    loch_allocator *child;
    CHECK_OK(loch_pool_create_child(
        parent, "child", LOCH_OPTIONS(child, .kind = LOCH_CHILD_RANGE, .limit_bytes = bytes, .stream = stream),
        &child));
    return child;
}
ROW(003_53, "MemoryAllocator(parent, child_size, stream): memory of the parent for a child")
{
    LOCH_AUTO(allocator) parent = pool_of(8 * MIB);
    LOCH_AUTO(allocator) child = child_of(parent, 4 * MIB);
    const size_t before = held();
    void *block = ask(child, LOCH_REQUEST(.bytes = MIB, .stream = stream));
    assert_int_equal(held(), before);
    assert_ptr_equal(loch_pool_get_parent(child), parent);
    CHECK_OK(loch_allocator_free_on(child, block, stream));
}
ROW(003_54, "child_size is the limit of the child")
{
    LOCH_AUTO(allocator) parent = pool_of(8 * MIB);
    LOCH_AUTO(allocator) child = child_of(parent, 4 * MIB);
    void *none;
    CHECK_FAILS_SET(loch_allocator_alloc(child, LOCH_REQUEST(.bytes = 5 * MIB, .stream = stream), &none),
                    TEST_SET(LIMIT) | TEST_SET(FRAGMENTED));
}
ROW(003_55, "a child that does not fit its parent is refused")
{
    LOCH_AUTO(allocator) parent = pool_of(8 * MIB);
    LOCH_AUTO(allocator) none = NULL;
    CHECK_FAILS(loch_pool_create_child(parent, NULL,
                                       LOCH_OPTIONS(child, .kind = LOCH_CHILD_RANGE, .limit_bytes = 16 * MIB), &none),
                LIMIT);
}
ROW(003_56, "~MemoryAllocator() of a child: the parent has its memory again")
{
    LOCH_AUTO(allocator) parent = pool_of(8 * MIB);
    loch_allocator *child = child_of(parent, 6 * MIB);
    loch_allocator_release(child);
    CHECK_OK(loch_stream_sync(stream));
    give(parent, take(parent, 8 * MIB));
}
ROW(003_57, "~MemoryAllocator() of a parent: the device has the memory again")
{
    const size_t before = held();
    loch_allocator *pool = pool_of(8 * MIB);
    give(pool, take(pool, 8 * MIB));
    loch_allocator_release(pool);
    assert_int_equal(held(), before);
}
ROW(003_58, "parent and child may end in any order")
{
    loch_allocator *parent = pool_of(8 * MIB), *child = child_of(parent, 4 * MIB);
    void *block = ask(child, LOCH_REQUEST(.bytes = 1000, .stream = stream));
    loch_allocator_release(parent);
    CHECK_OK(loch_allocator_free_on(child, block, stream));
    loch_allocator_release(child);
}
ROW(003_59, "freeze_model_memory(): the blocks of the model are packed together")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    loch_freeze_report report = LOCH_SIZED(loch_freeze_report);
    const size_t left = scatter(pool, buffers, 8);
    CHECK_OK(loch_pool_freeze(pool, NULL, &report));
    assert_int_equal(report.blocks, left);
    assert_int_equal(report.bytes, left * MIB);
    for (int i = 1; i < 8; i += 2) {
        expect_pinned(buffers[i], MIB, (char)('a' + i));
        loch_buffer_release(buffers[i]);
    }
}
ROW(003_60, "freeze_model_memory(): frozen blocks do not move any more")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    scatter(pool, buffers, 8);
    CHECK_OK(loch_pool_freeze(pool, NULL, NULL));
    const uint64_t generation = loch_buffer_get_generation(buffers[7]);
    loch_buffer_clear(&buffers[1]);
    CHECK_OK(loch_pool_compact(pool, NULL, NULL));
    assert_int_equal(loch_buffer_get_generation(buffers[7]), generation);
    for (int i = 3; i < 8; i += 2)
        loch_buffer_release(buffers[i]);
}
ROW(003_61, "freeze_model_memory() again: later blocks are frozen too, the list of frozen blocks grows")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    loch_freeze_report report = LOCH_SIZED(loch_freeze_report);
    LOCH_AUTO(buffer) one = movable(pool, MIB, 1);
    CHECK_OK(loch_pool_freeze(pool, NULL, NULL));
    LOCH_AUTO(buffer) two = movable(pool, MIB, 2);
    CHECK_OK(loch_pool_freeze(pool, NULL, &report));
    assert_int_equal(report.blocks, 1);
    size_t bytes;
    CHECK_OK(loch_pool_unfreeze(pool, 0, &bytes));
    assert_int_equal(bytes, 2 * MIB);
}
ROW(003_62, "alloc(num_bytes, round_up_bytes): rounded up")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *block = ask(pool, LOCH_REQUEST(.bytes = 5000, .round_bytes = 1024));
    assert_int_equal(find(pool, block).requested_bytes, 5000);
    assert_int_equal(find(pool, block).allocated_bytes % 1024, 0);
    give(pool, block);
}
ROW(003_63, "round_up_bytes for the tensors of a context")
{
    rig it = rig_open();
    LOCH_AUTO(context) rounding = NULL;
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_context_open(it.engine, LOCH_OPTIONS(context, .round_bytes = 4096), &rounding));
    CHECK_OK(loch_context_create_tensor(rounding, LOCH_F32, LOCH_SHAPE(10), NULL, 0, &tensor));
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    assert_int_equal(find(loch_context_get_allocator(rounding), address).allocated_bytes % 4096, 0);
    loch_tensor_clear(&tensor);
    loch_context_clear(&rounding);
    rig_close(&it);
}
ROW(003_64, "alloc: memory from the pool, without a call of the driver")
{
    LOCH_AUTO(allocator) pool = NULL;
    CHECK_OK(loch_pool_create(gpu, "all", LOCH_OPTIONS(pool, .initial_bytes = 8 * MIB), &pool));
    const uint64_t made = figures(pool).handles_created;
    give(pool, take(pool, 4 * MIB));
    assert_int_equal(figures(pool).handles_created, made);
}
ROW(003_65, "alloc compacts if the memory is in pieces")
{
    LOCH_AUTO(allocator) pool = plain_pool();
    loch_buffer *buffers[8];
    scatter(pool, buffers, 8);
    void *large = take(pool, 4 * MIB);
    give(pool, large);
    for (int i = 1; i < 8; i += 2) {
        expect_pinned(buffers[i], MIB, (char)('a' + i));
        loch_buffer_release(buffers[i]);
    }
}
ROW(003_66, "free(ptr, size)")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *block = take(pool, 5000);
    CHECK_OK(loch_allocator_free_sized(pool, block, 5000));
    assert_int_equal(live(pool), 0);
}
ROW(003_67, "free(ptr, size) with another size is refused")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *block = take(pool, 5000);
    CHECK_FAILS(loch_allocator_free_sized(pool, block, 4999), INVALID);
    give(pool, block);
}
ROW(003_68, "free: the block leaves the list, and neighbours that are free become one")
{
    LOCH_AUTO(allocator) pool = pool_of(8 * MIB);
    void *one = take(pool, 4 * MIB), *two = take(pool, 4 * MIB);
    give(pool, one);
    give(pool, two);
    give(pool, take(pool, 8 * MIB));
}
static loch_allocator *deferring(size_t limit)
{
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(
        gpu, "direct", LOCH_OPTIONS(direct, .limit_bytes = limit, .when = LOCH_DIRECT_FREE_DEFERRED), &direct));
    return direct;
}
ROW(003_69, "DirectMemoryAllocator(dev, virtual_dev, limit, stream): takes nothing at first")
{
    const size_t before = held();
    LOCH_AUTO(allocator) direct = deferring(8 * MIB);
    assert_int_equal(held(), before);
    void *none;
    CHECK_FAILS(loch_alloc(direct, 9 * MIB, &none), LIMIT);
}
ROW(003_70, "DirectMemoryAllocator::alloc: directly, without compacting")
{
    LOCH_AUTO(allocator) direct = deferring(0);
    void *block = take(direct, MIB);
    CHECK_FAILS(loch_pool_compact(direct, NULL, NULL), INVALID);
    give(direct, block);
}
ROW(003_71, "DirectMemoryAllocator::alloc with round_up_bytes")
{
    LOCH_AUTO(allocator) direct = deferring(0);
    void *block = ask(direct, LOCH_REQUEST(.bytes = 5000, .round_bytes = 8192));
    assert_true(find(direct, block).allocated_bytes >= 8192);
    give(direct, block);
}
ROW(003_72, "DirectMemoryAllocator::free: directly, in the list of frees")
{
    LOCH_AUTO(allocator) direct = deferring(0);
    const size_t before = held();
    give(direct, take(direct, MIB));
    assert_true(held() > before);
    assert_int_equal(live(direct), 0);
}
ROW(003_73, "free_session(): frees all blocks of the list")
{
    LOCH_AUTO(allocator) direct = deferring(0);
    const size_t before = held();
    for (int i = 0; i < 3; i++)
        give(direct, take(direct, MIB));
    size_t released;
    CHECK_OK(loch_direct_free_deferred(direct, &released));
    assert_int_equal(released, 3 * MIB);
    assert_int_equal(held(), before);
}

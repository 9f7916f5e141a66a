/* SPDX-License-Identifier: MIT */
/* Text 000: an allocator of devices with one interface (allocate, release, memcpy, memset_zero), for CPU and GPU. */
#include "seeds.h"

ROW(000_01, "the interfaces of different devices have the same parameters")
{
    loch_allocator *both[] = {host, memory};
    for (int i = 0; i < 2; i++)
        give(both[i], take(both[i], 1000));
}
ROW(000_02, "allocated resources are managed in one place")
{
    void *block = take(memory, 1000);
    assert_int_equal(live(memory), 1);
    give(memory, block);
    assert_int_equal(live(memory), 0);
}
ROW(000_03, "people forget to release a bare pointer: the forgotten block is listed")
{
    void *forgotten = take(memory, 1000);
    LOCH_AUTO(census) census = NULL;
    CHECK_OK(loch_census_create(memory, &census));
    char text[500];
    CHECK_OK(loch_census_print(census, NULL, LOCH_FORMAT_TEXT, text, sizeof text, NULL));
    assert_non_null(strstr(text, "1000"));
    give(memory, forgotten);
}
ROW(000_04, "a smart pointer counts the users")
{
    loch_buffer *buffer = buffer_of(memory, 100, 0);
    assert_int_equal(loch_buffer_get_references(loch_buffer_retain(buffer)), 2);
    loch_buffer_release(buffer);
    assert_int_equal(live(memory), 1);
    loch_buffer_release(buffer);
}
ROW(000_05, "without users the resource is released by itself")
{
    {
        LOCH_AUTO(buffer) buffer = buffer_of(memory, 100, 0);
        assert_int_equal(live(memory), 1);
    }
    assert_int_equal(live(memory), 0);
}
static loch_status mine_alloc(void *self, const loch_request *request, void **out)
{
    ++*(int *)self;
    return (*out = malloc(request->bytes)) ? LOCH_OK : LOCH_E_DEVICE_MEMORY;
}
static loch_status mine_free(void *self, void *address, size_t bytes, loch_stream *on)
{
    (void)bytes, (void)on;
    --*(int *)self;
    free(address);
    return LOCH_OK;
}
ROW(000_06, "the allocator is an abstract base class that devices derive from")
{
    const loch_allocator_ops ops =
        LOCH_SIZED(loch_allocator_ops, .kind = "mine", .alloc = mine_alloc, .free = mine_free);
    int out = 0;
    LOCH_AUTO(allocator) own = NULL;
    CHECK_OK(loch_allocator_create(cpu, "mine", &ops, &out, &own));
    void *block = take(own, 10);
    assert_int_equal(out, 1);
    give(own, block);
    assert_int_equal(out, 0);
}
ROW(000_07, "allocate(byte_size): as many bytes as asked for")
{
    char *block = take(host, 12345);
    memset(block, 1, 12345);
    assert_int_equal(find(host, block).requested_bytes, 12345);
    give(host, block);
}
ROW(000_08, "release(ptr): gives back what was allocated")
{
    void *block = take(memory, 1000);
    give(memory, block);
    CHECK_FAILS_SET(loch_free(memory, block), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
}
ROW(000_09, "device_type(): the kind of device of an allocator")
{
    assert_ptr_equal(loch_allocator_get_device(host), cpu);
    assert_string_equal(loch_device_get_name(loch_allocator_get_device(host)), "cpu");
    loch_device_properties properties = LOCH_SIZED(loch_device_properties);
    CHECK_OK(loch_device_get_properties(gpu, &properties));
    assert_string_equal(properties.driver, "sim");
}
ROW(000_10, "device_type_ is unknown in the base class: no allocator has no device")
{
    assert_null(loch_allocator_get_device(NULL));
    LOCH_AUTO(allocator) none = NULL;
    CHECK_FAILS(loch_pool_create(NULL, NULL, NULL, &none), INVALID);
}
static void copies(void *to, const void *from, loch_direction direction, loch_direction wrong)
{
    CHECK_OK(loch_fill(to, 256, "a", 1));
    CHECK_OK(loch_fill((void *)(uintptr_t)from, 256, "b", 1));
    CHECK_FAILS(loch_copy_with(to, from, 256, LOCH_OPTIONS(copy, .direction = wrong)), INVALID);
    expect_bytes(to, 256, 'a');
    CHECK_OK(loch_copy_with(to, from, 256, LOCH_OPTIONS(copy, .direction = direction)));
    expect_bytes(to, 256, 'b');
}
ROW(000_11, "memcpy with kind CPU to CPU")
{
    char to[256] = "", from[256] = "";
    copies(to, from, LOCH_HOST_TO_HOST, LOCH_HOST_TO_DEVICE);
}
ROW(000_12, "memcpy with kind CPU to CUDA")
{
    char from[256] = "";
    void *to = take(memory, 256);
    copies(to, from, LOCH_HOST_TO_DEVICE, LOCH_DEVICE_TO_HOST);
    give(memory, to);
}
ROW(000_13, "memcpy with kind CUDA to CPU")
{
    char to[256] = "";
    void *from = take(memory, 256);
    copies(to, from, LOCH_DEVICE_TO_HOST, LOCH_HOST_TO_DEVICE);
    give(memory, from);
}
ROW(000_14, "memcpy with kind CUDA to CUDA")
{
    void *to = take(memory, 256), *from = take(memory, 256);
    copies(to, from, LOCH_DEVICE_TO_DEVICE, LOCH_HOST_TO_HOST);
    give(memory, to);
    give(memory, from);
}
ROW(000_15, "memcpy(src, dest, n, kind, stream): on a stream")
{
    void *to = take(memory, 4096), *pinned;
    CHECK_OK(loch_raw_alloc(gpu, LOCH_MEMORY_PINNED, 4096, 0, &pinned));
    memset(pinned, 'p', 4096);
    CHECK_OK(loch_copy_on(to, pinned, 4096, stream));
    CHECK_OK(loch_stream_sync(stream));
    expect_bytes(to, 4096, 'p');
    CHECK_OK(loch_raw_free(pinned));
    give(memory, to);
}
ROW(000_16, "memcpy(..., need_sync): waits for the end of the copy")
{
    char back[64] = "";
    void *block = take(memory, 64);
    CHECK_OK(loch_fill(block, 64, "s", 1));
    CHECK_OK(loch_copy_with(back, block, 64, LOCH_OPTIONS(copy, .stream = stream, .wait = LOCH_WAIT_END)));
    CHECK_OK(loch_stream_query(stream));
    assert_int_equal(back[63], 's');
    give(memory, block);
}
ROW(000_17, "memcpy without a stream: the default, and the kind CPU to CPU")
{
    char to[] = "....", from[] = "text";
    CHECK_OK(loch_copy(to, from, 5));
    assert_string_equal(to, "text");
}
ROW(000_18, "memset_zero(ptr, n, stream)")
{
    void *block = take(memory, 1000);
    CHECK_OK(loch_fill(block, 1000, "x", 1));
    CHECK_OK(loch_fill_on(block, 1000, "", 1, stream));
    CHECK_OK(loch_stream_sync(stream));
    expect_bytes(block, 1000, 0);
    give(memory, block);
}
ROW(000_19, "memset_zero(..., need_sync): in one call")
{
    void *block = take(memory, 1000);
    CHECK_OK(loch_fill_with(block, 1000, "", 1, LOCH_OPTIONS(copy, .stream = stream, .wait = LOCH_WAIT_END)));
    CHECK_OK(loch_stream_query(stream));
    expect_bytes(block, 1000, 0);
    give(memory, block);
}
ROW(000_20, "CPUDeviceAllocator: memory that the host reads and writes, from malloc or a pool")
{
    LOCH_AUTO(allocator) direct = NULL;
    CHECK_OK(loch_direct_create(cpu, NULL, NULL, &direct));
    char *block = take(direct, 10);
    block[9] = 1;
    give(direct, block);
}
ROW(000_21, "CUDADeviceAllocator: memory from a driver call, cudaMalloc")
{
    LOCH_AUTO(allocator) direct = NULL;
    CHECK_OK(loch_direct_create(gpu, NULL, NULL, &direct));
    const size_t before = held();
    void *block = take(direct, MIB);
    assert_true(held() >= before + MIB);
    give(direct, block);
    assert_int_equal(held(), before);
}
ROW(000_22, "zero bytes give nullptr")
{
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc(host, 0, &block));
    assert_null(block);
    CHECK_OK(loch_alloc(memory, 0, &block));
    assert_null(block);
    give(memory, NULL);
}
ROW(000_23, "CHECK_EQ(err, cudaSuccess): a failed call of the driver is told, and does not end the program")
{
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(memory, (size_t)1 << 40, &block), DEVICE_MEMORY);
    assert_null(block);
    assert_true(strlen(loch_error_get()->sentence) > 10);
}

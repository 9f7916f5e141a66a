/* SPDX-License-Identifier: MIT */
/* Text 001: one allocator of a device for all, which keeps large and small blocks; and a buffer that ends by itself. */
#include "seeds.h"

static loch_allocator *two_lists(size_t idle_bytes)
{
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(gpu, "lists",
                              LOCH_OPTIONS(pool, .preset = LOCH_POOL_WHOLE_BLOCKS, .idle_bytes = idle_bytes), &pool));
    return pool;
}

/* --- the factory --- */

ROW(001_01, "get_instance(): one allocator for all")
{
    LOCH_AUTO(allocator) again = NULL;
    CHECK_OK(loch_device_acquire_default(gpu, &again));
    assert_ptr_equal(again, memory);
}
ROW(001_02, "get_instance() makes the allocator at the first call, and a shared_ptr counts it")
{
    LOCH_AUTO(device) other = sim_open("sim:64MiB,id=7");
    LOCH_AUTO(allocator) first = NULL;
    CHECK_OK(loch_device_acquire_default(other, &first));
    loch_allocator_release(loch_allocator_retain(first));
    give(first, take(first, 100));
}
static void *acquires(void *out)
{
    CHECK_OK(loch_device_acquire_default(gpu, out));
    return NULL;
}
ROW(001_03, "the instance is the only one, from all threads too")
{
    pthread_t threads[4];
    loch_allocator *got[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, acquires, &got[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_ptr_equal(got[i], memory);
        loch_allocator_release(got[i]);
    }
}
ROW(001_04, "the end of the allocator gives its memory back: nothing leaks because nobody freed by hand")
{
    const size_t before = held();
    {
        LOCH_AUTO(allocator) pool = two_lists(0);
        give(pool, take(pool, 4 * MIB));
        assert_true(held() > before);
    }
    assert_int_equal(held(), before);
}

/* --- the pool --- */

ROW(001_05, "allocate(byte_size), release(ptr)")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    give(pool, take(pool, 100));
    give(pool, take(pool, 3 * MIB));
}
ROW(001_06, "maps by device: several GPUs")
{
    LOCH_AUTO(device) second = sim_open("sim:64MiB,id=1");
    LOCH_AUTO(allocator) there = NULL;
    CHECK_OK(loch_device_acquire_default(second, &there));
    assert_ptr_not_equal(there, memory);
    void *here = take(memory, 100), *other = take(there, 100);
    CHECK_FAILS(loch_free(memory, other), FOREIGN);
    give(memory, here);
    give(there, other);
}
ROW(001_07, "no_busy_cnt_: how much of the kept memory is free")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *block = take(pool, 4 * MIB);
    const size_t busy = figures(pool).free_bytes + figures(pool).thread_bytes;
    give(pool, block);
    assert_true(figures(pool).free_bytes + figures(pool).thread_bytes >= busy + 4 * MIB);
}
ROW(001_08, "big_buffers_map_: a large freed block serves a request that is smaller by less than 1 MiB")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *block = take(pool, 8 * MIB);
    give(pool, block);
    void *again = take(pool, 8 * MIB - 100 * KIB);
    assert_ptr_equal(again, block);
    give(pool, again);
}
ROW(001_09, "a large block does not serve a request that is smaller by more: no waste")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *block = take(pool, 8 * MIB);
    give(pool, block);
    void *other = take(pool, 4 * MIB);
    assert_ptr_not_equal(other, block);
    give(pool, other);
}
ROW(001_10, "cuda_buffers_map_: small blocks are kept apart")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *small = take(pool, 512);
    give(pool, small);
    void *again = take(pool, 512);
    assert_ptr_equal(again, small);
    give(pool, again);
}
ROW(001_11, "fewer calls of malloc and free: reuse needs no call of the driver")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    give(pool, take(pool, 4 * MIB));
    const uint64_t made = figures(pool).handles_created;
    for (int i = 0; i < 100; i++)
        give(pool, take(pool, 4 * MIB));
    assert_int_equal(figures(pool).handles_created, made);
}
ROW(001_12, "large and small blocks apart: fewer fragments")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *large = take(pool, 8 * MIB), *small = take(pool, 100);
    give(pool, large);
    void *again = take(pool, 8 * MIB); /* the small block has not cut into it */
    assert_ptr_equal(again, large);
    give(pool, again);
    give(pool, small);
}
ROW(001_13, "2.1.1: whether a request is large or small decides where its block comes from")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    char *small = take(pool, 1000), *large = take(pool, 2 * MIB);
    assert_true((uintptr_t)(small < large ? large - small : small - large) >= 1000);
    assert_true(find(pool, small).allocated_bytes < 2000);
    assert_true(find(pool, large).allocated_bytes >= 2 * MIB);
    give(pool, small);
    give(pool, large);
}
ROW(001_14, "2.1.2: of the free blocks the one with the least waste is chosen")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *tight = take(pool, 4 * MIB), *between = take(pool, 2 * MIB), *wide = take(pool, 4 * MIB + 600 * KIB);
    give(pool, wide);
    give(pool, tight);
    void *again = take(pool, 4 * MIB - 100 * KIB);
    assert_ptr_equal(again, tight);
    give(pool, again);
    give(pool, between);
}
ROW(001_15, "2.1.3: if all is in use, new memory comes from the device")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *one = take(pool, 4 * MIB);
    const size_t before = held();
    void *two = take(pool, 4 * MIB);
    assert_true(held() > before);
    give(pool, one);
    give(pool, two);
}
ROW(001_16, "2.2: too much free memory is given back to the device")
{
    LOCH_AUTO(allocator) pool = two_lists(8 * MIB);
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = take(pool, 4 * MIB);
    for (int i = 0; i < 8; i++)
        give(pool, blocks[i]);
    assert_true(figures(pool).free_bytes <= 8 * MIB);
}
ROW(001_17, "then the memory of ptr is released: busy = false, and it stays in the pool")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *block = take(pool, 4 * MIB);
    const size_t before = held();
    give(pool, block);
    assert_int_equal(held(), before);
}
ROW(001_18, "release finds the buffer of ptr by a search in all maps")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    CHECK_OK(loch_address_free(take(pool, 100)));
    CHECK_OK(loch_address_free(take(pool, 4 * MIB)));
    CHECK_OK(loch_address_free(take(memory, 100)));
    assert_int_equal(live(pool) + live(memory), 0);
}
ROW(001_19, "it returns after busy = false: nothing is freed twice")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *block = take(pool, 4 * MIB);
    give(pool, block);
    CHECK_FAILS(loch_free(pool, block), DOUBLE_FREE);
}
ROW(001_20, "a ptr of no map goes to cudaFree: here the caller is told that it is foreign")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    int mine;
    CHECK_FAILS(loch_free(pool, &mine), FOREIGN);
    CHECK_FAILS(loch_address_free(&mine), FOREIGN);
}
ROW(001_21, "a failed release says so: CHECK(state == cudaSuccess)")
{
    int mine;
    CHECK_FAILS(loch_free(memory, &mine), FOREIGN);
    assert_non_null(strstr(loch_error_get()->sentence, "has no block"));
}
ROW(001_22, "one allocator for all, so that a block cannot go to another pool")
{
    LOCH_AUTO(allocator) pool = two_lists(0);
    void *block = take(memory, 100);
    CHECK_FAILS(loch_free(pool, block), FOREIGN);
    give(memory, block);
}

/* --- the buffer --- */

ROW(001_23, "a buffer calls the allocator itself when its scope is left")
{
    {
        LOCH_AUTO(buffer) buffer = NULL;
        CHECK_OK(loch_buffer_create(memory, 100, NULL, &buffer));
    }
    assert_int_equal(live(memory), 0);
}
ROW(001_24, "enable_shared_from_this: all owners share one count, so the memory is freed once")
{
    loch_buffer *first = buffer_of(memory, 100, 0), *second = loch_buffer_retain(first);
    assert_ptr_equal(first, second);
    loch_buffer_release(first);
    assert_int_equal(live(memory), 1);
    loch_buffer_release(second);
    assert_int_equal(live(memory), 0);
}
ROW(001_25, "two shared_ptr on one raw pointer free twice: two owners of one block are refused")
{
    void *block = take(memory, 100);
    loch_buffer *first, *second = TEST_UNTOUCHED;
    CHECK_OK(loch_buffer_adopt(memory, block, &first));
    loch_buffer_release(first);
    CHECK_FAILS_SET(loch_buffer_adopt(memory, block, &second), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
    assert_null(second);
}
ROW(001_26, "shared_from_this(): a reference from the object itself")
{
    LOCH_AUTO(buffer) one = buffer_of(memory, 100, 0);
    LOCH_AUTO(buffer) two = loch_buffer_retain(one);
    assert_int_equal(loch_buffer_get_references(two), 2);
}
ROW(001_27, "NoCopyable: a copy of the handle is not a copy of the memory")
{
    LOCH_AUTO(buffer) one = buffer_of(memory, 100, 0);
    const loch_buffer *same = one;
    assert_ptr_equal(loch_buffer_get_address(same), loch_buffer_get_address(one));
    assert_int_equal(live(memory), 1);
}
ROW(001_28, "byte_size_ = 0: a buffer without memory")
{
    LOCH_AUTO(buffer) none = NULL;
    CHECK_OK(loch_buffer_create(memory, 0, NULL, &none));
    assert_null(loch_buffer_get_address(none));
    assert_int_equal(loch_buffer_get_bytes(none), 0);
}
ROW(001_29, "Buffer(byte_size, allocator)")
{
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_OK(loch_buffer_create(memory, 777, NULL, &buffer));
    assert_int_equal(loch_buffer_get_bytes(buffer), 777);
    assert_ptr_equal(loch_buffer_get_allocator(buffer), memory);
}
ROW(001_30, "Buffer(byte_size) with allocator = nullptr")
{
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_OK(loch_buffer_create_for_device(NULL, 777, NULL, &buffer));
    assert_int_equal(loch_buffer_is_on_host(buffer), 1);
}
ROW(001_31, "Buffer(byte_size, allocator, ptr): the buffer owns a block that there was")
{
    void *block = take(memory, 100);
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_adopt(memory, block, &buffer));
    assert_ptr_equal(loch_buffer_get_address(buffer), block);
    loch_buffer_release(buffer);
    assert_int_equal(live(memory), 0);
}
ROW(001_32, "Buffer(..., use_external = true): memory of somebody else")
{
    char outside[100] = "mine";
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_wrap(outside, sizeof outside, NULL, &buffer));
    assert_ptr_equal(loch_buffer_get_address(buffer), outside);
    loch_buffer_release(buffer);
    assert_string_equal(outside, "mine");
}
ROW(001_33, "allocate(): the buffer gets memory later")
{
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_OK(loch_buffer_create(memory, 0, NULL, &buffer));
    CHECK_OK(loch_buffer_resize(buffer, 1000, LOCH_CONTENTS_DROP, NULL));
    assert_non_null(loch_buffer_get_address(buffer));
}
ROW(001_34, "allocate() returns whether it worked, and the buffer is as before if not")
{
    LOCH_AUTO(buffer) buffer = buffer_of(memory, 100, 'k');
    CHECK_FAILS(loch_buffer_resize(buffer, (size_t)1 << 40, LOCH_CONTENTS_DROP, NULL), DEVICE_MEMORY);
    assert_int_equal(loch_buffer_get_bytes(buffer), 100);
    expect_bytes(loch_buffer_get_address(buffer), 100, 'k');
}
ROW(001_35, "ptr(), const ptr()")
{
    LOCH_AUTO(buffer) buffer = buffer_of(host, 100, 'c');
    const char *bytes = loch_buffer_get_address(buffer);
    assert_int_equal(bytes[99], 'c');
}
ROW(001_36, "byte_size()")
{
    LOCH_AUTO(buffer) buffer = buffer_of(host, 100, 0);
    assert_int_equal(loch_buffer_get_bytes(buffer), 100);
}
ROW(001_37, "allocator()")
{
    LOCH_AUTO(buffer) buffer = buffer_of(host, 100, 0);
    assert_ptr_equal(loch_buffer_get_allocator(buffer), host);
}
ROW(001_38, "device_type()")
{
    LOCH_AUTO(buffer) buffer = buffer_of(memory, 100, 0);
    assert_ptr_equal(loch_buffer_get_device(buffer), gpu);
    assert_int_equal(loch_buffer_get_kind(buffer), LOCH_MEMORY_DEVICE);
}
ROW(001_39, "set_device_type(device_type): the device follows from the memory, and a wrong one is refused")
{
    LOCH_AUTO(buffer) owner = buffer_of(memory, 100, 0);
    LOCH_AUTO(buffer) wrong = NULL;
    CHECK_FAILS(loch_buffer_wrap(loch_buffer_get_address(owner), 100,
                                 &LOCH_SIZED(loch_external, .device = cpu, .owner = owner), &wrong),
                INVALID);
}
ROW(001_40, "get_shared_from_this()")
{
    LOCH_AUTO(buffer) one = buffer_of(memory, 100, 0);
    loch_buffer *two = loch_buffer_retain(one);
    loch_buffer_release(two);
    assert_int_equal(loch_buffer_get_references(one), 1);
}
ROW(001_41, "is_external()")
{
    char outside[10];
    LOCH_AUTO(buffer) external = NULL;
    LOCH_AUTO(buffer) own = buffer_of(memory, 10, 0);
    CHECK_OK(loch_buffer_wrap(outside, sizeof outside, NULL, &external));
    assert_null(loch_buffer_get_allocator(external));
    assert_non_null(loch_buffer_get_allocator(own));
}
ROW(001_42, "~Buffer(): releases through the allocator if it has memory")
{
    LOCH_AUTO(buffer) buffer = buffer_of(memory, 100, 0);
    loch_buffer_clear(&buffer);
    assert_null(buffer);
    assert_int_equal(live(memory), 0);
}
ROW(001_43, "~Buffer() leaves external memory alone: one member alone destroys it")
{
    loch_buffer *owner = buffer_of(memory, 100, 'o'), *user;
    CHECK_OK(loch_buffer_wrap(loch_buffer_get_address(owner), 100, NULL, &user));
    loch_buffer_release(user);
    assert_int_equal(live(memory), 1);
    expect_bytes(loch_buffer_get_address(owner), 100, 'o');
    loch_buffer_release(owner);
}
ROW(001_44, "a buffer with use_external may outlive its memory: it can keep the owner alive")
{
    loch_buffer *owner = buffer_of(memory, 100, 'o'), *user;
    CHECK_OK(loch_buffer_wrap(loch_buffer_get_address(owner), 100, &LOCH_SIZED(loch_external, .owner = owner), &user));
    loch_buffer_release(owner);
    expect_bytes(loch_buffer_get_address(user), 100, 'o');
    loch_buffer_release(user);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    assert_int_equal(live(memory), 0);
}
static void check_copy(loch_allocator *to_memory, size_t to_bytes, loch_allocator *from_memory, size_t from_bytes)
{
    LOCH_AUTO(buffer) to = buffer_of(to_memory, to_bytes, 't');
    LOCH_AUTO(buffer) from = buffer_of(from_memory, from_bytes, 'f');
    const size_t both = to_bytes < from_bytes ? to_bytes : from_bytes;
    CHECK_OK(loch_buffer_copy(to, from, LOCH_OPTIONS(buffer_copy, .fit = LOCH_FIT_CLIP)));
    expect_bytes(loch_buffer_get_address(to), both, 'f');
    if (to_bytes > both) expect_bytes((char *)loch_buffer_get_address(to) + both, to_bytes - both, 't');
}
ROW(001_45, "copy_from(CPU) on the CPU")
{
    check_copy(host, 100, host, 100);
}
ROW(001_46, "copy_from(CUDA) on the CPU")
{
    check_copy(host, 100, memory, 100);
}
ROW(001_47, "copy_from(CPU) on CUDA")
{
    check_copy(memory, 100, host, 100);
}
ROW(001_48, "copy_from(CUDA) on CUDA")
{
    check_copy(memory, 100, memory, 100);
}
ROW(001_49, "copy_from with a larger source: the size of the target")
{
    check_copy(memory, 100, host, 200);
}
ROW(001_50, "copy_from with a smaller source: the size of the source")
{
    check_copy(memory, 200, host, 100);
}
ROW(001_51, "CHECK(buffer != nullptr)")
{
    LOCH_AUTO(buffer) buffer = buffer_of(memory, 10, 0);
    CHECK_FAILS(loch_buffer_copy(buffer, NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_copy(NULL, buffer, NULL), INVALID);
}
ROW(001_52, "CHECK(allocator_ != nullptr): a copy to external memory works as well")
{
    char outside[10] = "";
    LOCH_AUTO(buffer) to = NULL;
    LOCH_AUTO(buffer) from = buffer_of(memory, 10, 'e');
    CHECK_OK(loch_buffer_wrap(outside, sizeof outside, NULL, &to));
    CHECK_OK(loch_buffer_copy(to, from, NULL));
    assert_int_equal(outside[9], 'e');
}
ROW(001_53, "the device of a buffer is known (CHECK(device != kDeviceUnknown)), so the kind of the copy follows")
{
    LOCH_AUTO(buffer) to = buffer_of(host, 10, 0);
    LOCH_AUTO(buffer) from = buffer_of(memory, 10, 'd');
    CHECK_OK(loch_buffer_copy(to, from, NULL));
    expect_bytes(loch_buffer_get_address(to), 10, 'd');
}
ROW(001_54, "4: one allocator manages the space of all buffers")
{
    LOCH_AUTO(buffer) one = buffer_of(memory, 1000, 0);
    LOCH_AUTO(buffer) two = buffer_of(memory, 2000, 0);
    assert_int_equal(loch_stats_of(memory).requested_bytes, 3000);
}
ROW(001_55, "4: buffers that end by themselves do not leak")
{
    for (int i = 0; i < 100; i++) {
        LOCH_AUTO(buffer) buffer = buffer_of(memory, 1000, 0);
        if (i % 3 == 0) continue;
    }
    assert_int_equal(live(memory), 0);
    assert_int_equal(loch_stats_of(memory).peak_blocks, 1);
}

/* SPDX-License-Identifier: MIT */
/* Memory of simulated devices: exact capacity, addresses, aliases, what CUDA refuses, copies and their staging,
 * stream-ordered and shared memory. The driver's own slots are called where loch/ would refuse first. */
#include "sim_fixture.h"
#include <unistd.h>

#define GRANULE (64 * TEST_KIB)
#define BACKED "sim:64MiB,granule=64KiB,backed,clock=stepped,lag=1000"

static void capacity_is_exact(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8MiB,granule=1MiB");
    loch_memory_info info = {.size = sizeof info};
    void *small = sim_raw(device, 1), *large = sim_raw(device, 2 * TEST_MIB + 1), *rest, *none = TEST_UNTOUCHED;
    assert_int_equal(sim_stats(device).physical_bytes, 512 + 3 * TEST_MIB);
    CHECK_OK(loch_device_calculate_memory(device, &info));
    assert_int_equal(info.total_bytes, 8 * TEST_MIB);
    assert_int_equal(info.free_bytes, 5 * TEST_MIB - 512);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 5 * TEST_MIB, 0, &none), DEVICE_MEMORY);
    assert_null(none);
    assert_non_null(strstr(loch_error_get()->sentence, "5 MiB do not fit"));
    assert_non_null(strstr(loch_error_get()->sentence, "has 8 MiB"));
    loch_handle *handle;
    CHECK_OK(loch_handle_create(device, 4 * TEST_MIB, NULL, &handle));
    rest = sim_raw(device, TEST_MIB - 512);
    assert_int_equal(sim_stats(device).physical_bytes, 8 * TEST_MIB);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 1, 0, &none), DEVICE_MEMORY);
    void *pinned = sim_pinned(device, TEST_MIB); /* the host's */
    assert_int_equal(sim_stats(device).pinned_bytes, TEST_MIB);
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_raw_free(small));
    CHECK_OK(loch_raw_free(large));
    CHECK_OK(loch_raw_free(rest));
    loch_handle_destroy(handle);
    const loch_sim_stats stats = sim_stats(device);
    assert_int_equal(stats.physical_bytes, 0);
    assert_int_equal(stats.pinned_bytes, 0);
    assert_int_equal(stats.physical_peak_bytes, 8 * TEST_MIB);
    loch_device_release(device);
}

static void raw_blocks_are_aligned_as_cuda_aligns_them(void **state)
{
    (void)state;
    static const char *const names[] = {"sim:1GiB", "sim:1GiB,unbacked", BACKED};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open(names[i]);
        void *small, *large, *none;
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 512, &small));
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 2 * TEST_MIB, 2 * TEST_MIB, &large));
        assert_int_equal((uintptr_t)small % 512, 0);
        assert_int_equal((uintptr_t)large % (2 * TEST_MIB), 0);
        CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 1024, &none), UNSUPPORTED);
        CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 2 * TEST_MIB, 4 * TEST_MIB, &none), UNSUPPORTED);
        CHECK_OK(loch_raw_free(small));
        CHECK_OK(loch_raw_free(large));
        loch_device_release(device);
    }
}

static void unbacked_addresses_are_nobody_elses(void **state)
{
    (void)state;
    loch_device *a = sim_open("sim:1GiB,unbacked,id=1"), *b = sim_open("sim:1GiB,unbacked,id=2");
    char *in_a = sim_raw(a, TEST_MIB), *in_b = sim_raw(b, TEST_MIB);
    assert_true((uintptr_t)in_a >= (uintptr_t)1 << 48 && (uintptr_t)in_b >= (uintptr_t)1 << 48);
    assert_true(in_a + TEST_GIB < in_b || in_b + TEST_GIB < in_a);
    CHECK_OK(loch_raw_free(in_a));
    assert_ptr_equal(sim_raw(a, TEST_MIB), in_a); /* found again */
    CHECK_OK(loch_raw_free(in_a));
    CHECK_OK(loch_raw_free(in_b));
    loch_device_release(a);
    a = sim_open("sim:1GiB,unbacked,id=3"); /* the window came back */
    assert_ptr_equal(sim_raw(a, 1), in_a);
    CHECK_OK(loch_raw_free(in_a));
    loch_device_release(a);
    loch_device_release(b);
}

static void address_space_is_roomy_and_ends(void **state)
{
    (void)state;
    enum { MOST = 80 };
    loch_device *device = sim_open("sim:1GiB,unbacked");
    void *reserved[MOST];
    size_t count = 0;
    for (int round = 0; round < 2; round++) { /* all of it can be had again */
        count = 0;
        while (count < MOST && loch_virtual_reserve(device, 1024 * TEST_GIB, 0, &reserved[count]) == LOCH_OK)
            count++;
        assert_in_range(count, 4, MOST - 1);
        assert_int_equal(loch_error_get()->status, LOCH_E_DEVICE_MEMORY);
        assert_int_equal(sim_stats(device).reserved_bytes, count * 1024 * TEST_GIB);
        for (size_t i = 0; i < count; i += 2)
            CHECK_OK(loch_virtual_unreserve(reserved[i]));
        for (size_t i = 1; i < count; i += 2)
            CHECK_OK(loch_virtual_unreserve(reserved[i]));
    }
    void *all;
    CHECK_OK(loch_virtual_reserve(device, count * 1024 * TEST_GIB, 0, &all));
    CHECK_OK(loch_virtual_unreserve(all));
    CHECK_OK(loch_virtual_reserve(device, 2 * TEST_MIB, 1024 * TEST_GIB, &all));
    assert_int_equal((uintptr_t)all % (1024 * TEST_GIB), 0);
    CHECK_OK(loch_virtual_unreserve(all));
    loch_device_release(device);
}

/* Blocks and reservations of all sizes come and go; none overlap, and at the end everything is one piece again. */
static void addresses_never_overlap(void **state)
{
    (void)state;
    enum { SLOTS = 200, ROUNDS = 4000 };
    static struct {
        char *address;
        size_t bytes;
    } blocks[SLOTS];
    test_random random = {test_seed(11)};
    loch_device *device = sim_open("sim:1GiB,unbacked,check=off");
    for (int i = 0; i < ROUNDS; i++) {
        const size_t at = test_random_below(&random, SLOTS);
        if (blocks[at].address) {
            CHECK_OK(loch_raw_free(blocks[at].address));
            blocks[at].address = NULL;
            continue;
        }
        const size_t bytes = 1 + test_random_below(&random, i % 3 ? 4096 : 4 * TEST_MIB);
        blocks[at].address = sim_raw(device, bytes);
        blocks[at].bytes = bytes;
        for (size_t j = 0; j < SLOTS; j++)
            if (j != at && blocks[j].address)
                assert_true(blocks[j].address + blocks[j].bytes <= blocks[at].address ||
                            blocks[at].address + bytes <= blocks[j].address);
    }
    for (size_t i = 0; i < SLOTS; i++)
        CHECK_OK(loch_raw_free(blocks[i].address));
    void *all;
    CHECK_OK(loch_virtual_reserve(device, (size_t)1 << 46, 0, &all));
    CHECK_OK(loch_virtual_unreserve(all));
    memset(blocks, 0, sizeof blocks);
    loch_device_release(device);
}

static void a_handle_at_two_addresses_has_one_memory(void **state)
{
    (void)state;
    loch_device *device = sim_open(BACKED);
    char *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 4 * GRANULE, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, GRANULE, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(addresses + 2 * GRANULE, handle, NULL, 0));
    assert_int_equal(sim_stats(device).mappings, 2);
    assert_int_equal(sim_stats(device).physical_bytes, GRANULE);
    strcpy(addresses, "seen twice");
    assert_string_equal(addresses + 2 * GRANULE, "seen twice");
    loch_handle_destroy(handle); /* stays until the last mapping goes */
    CHECK_OK(loch_virtual_unmap(addresses));
    assert_string_equal(addresses + 2 * GRANULE, "seen twice");
    assert_int_equal(sim_stats(device).handles, 0);
    assert_int_equal(sim_stats(device).physical_bytes, GRANULE);
    CHECK_OK(loch_virtual_unmap(addresses + 2 * GRANULE));
    assert_int_equal(sim_stats(device).physical_bytes, 0);
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_device_release(device);
}

static void the_driver_refuses_what_cuda_refuses(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,alias=off");
    void *self, *raw;
    char *address;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    const size_t granule = 2 * TEST_MIB;
    const loch_handle_options options = {.size = sizeof options},
                              fabric = {.size = sizeof fabric, .share = LOCH_SHARE_FABRIC};
    loch_driver_handle handle, other;
    int fd;
    CHECK_OK(driver->reserve(self, 8 * granule, 0, (void **)&address));
    CHECK_FAILS(driver->handle_create(self, granule, &fabric, &handle), UNSUPPORTED);
    CHECK_OK(driver->handle_create(self, 2 * granule, &options, &handle));
    CHECK_OK(driver->handle_create(self, 2 * granule, &options, &other));
    CHECK_FAILS(driver->map(self, address, granule, handle, NULL, 0), INVALID); /* part of a handle */
    CHECK_FAILS(driver->map(self, address + 512, 2 * granule, handle, NULL, 0), INVALID);
    CHECK_FAILS(driver->map(self, address + 7 * granule, 2 * granule, handle, NULL, 0), OUT_OF_RANGE);
    CHECK_OK(driver->map(self, address, 2 * granule, handle, NULL, 0));
    CHECK_FAILS(driver->map(self, address + granule, 2 * granule, other, NULL, 0), EXISTS);
    CHECK_FAILS(driver->map(self, address + 2 * granule, 2 * granule, handle, NULL, 0), BUSY); /* alias=off */
    CHECK_FAILS(driver->unmap(self, address, granule, handle), INVALID);
    CHECK_FAILS(driver->unmap(self, address + granule, granule, handle), INVALID);
    CHECK_FAILS(driver->unmap(self, address, 2 * granule, other), INVALID);
    CHECK_FAILS(driver->handle_export(self, handle, LOCH_SHARE_FD, &fd), INVALID);
    CHECK_FAILS(driver->unreserve(self, address, 8 * granule), BUSY);
    CHECK_FAILS(driver->unreserve(self, address, 4 * granule), INVALID);
    CHECK_FAILS(driver->raw_free(self, address, 2 * granule), INVALID); /* a mapping is no block */
    CHECK_OK(driver->raw_alloc(self, 1000, 0, &raw));
    CHECK_FAILS(driver->raw_free(self, raw, 999), INVALID);
    CHECK_FAILS(driver->raw_free(self, (char *)raw + 512, 488), INVALID);
    CHECK_FAILS(driver->pinned_free(self, raw, 1000), INVALID);
    CHECK_OK(driver->raw_free(self, raw, 1000));
    CHECK_OK(driver->unmap(self, address, 2 * granule, handle));
    CHECK_OK(driver->handle_release(self, handle, 2 * granule));
    CHECK_OK(driver->handle_release(self, other, 2 * granule));
    CHECK_OK(driver->unreserve(self, address, 8 * granule));
    loch_device_release(device);
}

static void kernels_use_mapped_memory_to_the_byte(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,clock=stepped");
    loch_stream *stream = loch_stream_get_default(device);
    const size_t granule = 2 * TEST_MIB;
    char *raw = sim_raw(device, 1000), *addresses;
    loch_handle *handles[2];
    CHECK_OK(sim_writes(stream, raw, 1000));
    CHECK_FAILS(sim_writes(stream, raw, 1001), OUT_OF_RANGE);
    CHECK_FAILS(sim_writes(stream, raw - 1, 1), OUT_OF_RANGE);
    CHECK_FAILS(sim_writes(stream, raw, SIZE_MAX), OUT_OF_RANGE);
    CHECK_OK(loch_virtual_reserve(device, 3 * granule, 0, (void **)&addresses));
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(loch_handle_create(device, granule, NULL, &handles[i]));
        CHECK_OK(loch_virtual_map(addresses + i * granule, handles[i], NULL, 0));
    }
    CHECK_OK(sim_writes(stream, addresses + 1, 2 * granule - 1)); /* over both handles */
    CHECK_FAILS(sim_reads(stream, addresses + 1, 2 * granule), OUT_OF_RANGE);
    assert_int_equal(sim_stats(device).pending, 2);
    CHECK_OK(loch_device_sync(device));
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(loch_virtual_unmap(addresses + i * granule));
        loch_handle_destroy(handles[i]);
    }
    CHECK_OK(loch_virtual_unreserve(addresses));
    CHECK_OK(loch_raw_free(raw));
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_device_release(device);
}

static void pageable_memory_is_staged_and_pinned_memory_is_not(void **state)
{
    (void)state;
    loch_device *device = sim_open(BACKED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    char *block = sim_raw(device, 16), *pinned = sim_pinned(device, 16), pageable[16] = "first", out[16] = "";
    memset(block, 0, 16);
    CHECK_OK(loch_copy_on(block, pageable, 16, stream));
    strcpy(pageable, "changed"); /* too late: it was taken when queued */
    assert_string_equal(block, "");
    CHECK_OK(loch_stream_sync(stream));
    assert_string_equal(block, "first");

    strcpy(pinned, "second");
    CHECK_OK(loch_copy_on(block, pinned, 16, stream));
    strcpy(pinned, "third"); /* in time: page-locked memory is read when the copy runs */
    CHECK_OK(loch_stream_sync(stream));
    assert_string_equal(block, "third");

    CHECK_OK(loch_copy_on(pinned, block, 16, stream));
    strcpy(pinned, "?");
    assert_string_equal(pinned, "?"); /* not there before its time */
    CHECK_OK(loch_stream_sync(stream));
    assert_string_equal(pinned, "third");

    const uint64_t before = sim_now(device);
    CHECK_OK(loch_copy_on(out, block, 16, stream)); /* pageable: waits */
    assert_string_equal(out, "third");
    assert_int_equal(sim_now(device), before + SIM_LAG);

    CHECK_OK(loch_raw_register(device, out, sizeof out));
    strcpy(out, "?");
    CHECK_OK(loch_copy_on(out, block, 16, stream)); /* page-locked now */
    assert_string_equal(out, "?");
    CHECK_OK(loch_stream_sync(stream));
    assert_string_equal(out, "third");
    CHECK_OK(loch_raw_unregister(out));
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(pinned));
    loch_stream_close(stream);
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_device_release(device);
}

static void fills_of_every_width(void **state)
{
    (void)state;
    loch_device *device = sim_open(BACKED);
    unsigned char *block = sim_raw(device, 12);
    const uint8_t one = 0x11;
    const uint16_t two = 0x2233;
    const uint32_t four = 0x44556677;
    CHECK_OK(loch_fill(block, 12, &four, 4));
    assert_memory_equal(block + 8, &four, 4);
    CHECK_OK(loch_fill(block + 2, 6, &two, 2));
    assert_memory_equal(block + 6, &two, 2);
    assert_memory_equal(block, &four, 2);
    CHECK_OK(loch_fill(block + 5, 1, &one, 1));
    assert_int_equal(block[5], 0x11);
    assert_memory_equal(block + 6, &two, 2);
    CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
}

static void memory_that_goes_under_queued_work_is_found(void **state)
{
    (void)state;
    loch_device *device = sim_open(BACKED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_sim_violation found;
    char *from = sim_raw(device, 64), *to = sim_raw(device, 64), *addresses;
    memset(from, 1, 64);
    memset(to, 2, 64);
    CHECK_OK(loch_copy_on(to, from, 64, stream));
    CHECK_OK(loch_raw_free(from));
    assert_int_equal(sim_violations(device, &found), 1);
    assert_int_equal(found.kind, LOCH_SIM_GONE_IN_USE);
    assert_ptr_equal(found.address, from);
    assert_int_equal(found.bytes, 64);
    assert_int_equal(found.stream, 0);
    assert_int_equal(found.other_stream, sim_number(stream));
    assert_true(strlen(found.text) > 20);
    CHECK_OK(loch_stream_sync(stream));
    assert_int_equal(to[0], 2); /* the copy did nothing */

    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 2 * GRANULE, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, GRANULE, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(addresses + GRANULE, handle, NULL, 0));
    CHECK_OK(sim_writes(stream, addresses, 8));
    CHECK_OK(loch_virtual_unmap(addresses + GRANULE)); /* the other address: fine */
    assert_int_equal(sim_violations(device, NULL), 1);
    CHECK_OK(loch_virtual_unmap(addresses));
    assert_int_equal(sim_violations(device, NULL), 2);
    CHECK_OK(loch_stream_sync(stream));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    CHECK_OK(loch_sim_clear_violations(device));
    assert_int_equal(sim_violations(device, NULL), 0);
    CHECK_OK(loch_raw_free(to));
    loch_stream_close(stream);
    loch_device_release(device);
}

static void ordered_memory_follows_its_stream(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:4MiB,clock=stepped,lag=1000");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    void *self, *native = loch_stream_get_native(stream), *first, *second, *none;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    CHECK_OK(driver->ordered_alloc(self, 2 * TEST_MIB, native, &first));
    CHECK_OK(driver->ordered_alloc(self, 2 * TEST_MIB, native, &second));
    CHECK_FAILS(driver->ordered_alloc(self, 512, native, &none), DEVICE_MEMORY);
    CHECK_FAILS(driver->raw_free(self, first, 2 * TEST_MIB), INVALID);
    CHECK_OK(sim_writes(stream, first, TEST_MIB));
    CHECK_OK(driver->ordered_free(self, first, 2 * TEST_MIB, native));
    CHECK_FAILS(driver->ordered_free(self, first, 2 * TEST_MIB, native), DOUBLE_FREE);
    assert_int_equal(sim_stats(device).physical_bytes, 4 * TEST_MIB); /* the stream is not there yet */
    CHECK_OK(driver->raw_alloc(self, 2 * TEST_MIB, 0, &first));       /* waits for it */
    assert_int_equal(sim_now(device), SIM_LAG);
    CHECK_OK(driver->raw_free(self, first, 2 * TEST_MIB));
    CHECK_OK(driver->ordered_free(self, second, 2 * TEST_MIB, native));
    assert_int_equal(sim_stats(device).physical_bytes, 0);
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_stream_close(stream);
    loch_device_release(device);
}

static void handles_shared_by_descriptor_have_one_memory(void **state)
{
    (void)state;
    loch_device *a = sim_open(BACKED ",id=1"), *b = sim_open(BACKED ",id=2");
    const loch_handle_options options = {.size = sizeof options, .share = LOCH_SHARE_FD};
    loch_handle *handle, *imported, *none;
    char *in_a, *in_b;
    int fd = -1, copy, other = dup(0);
    CHECK_OK(loch_handle_create(a, GRANULE, &options, &handle));
    CHECK_OK(loch_handle_export(handle, LOCH_SHARE_FD, sizeof fd, &fd));
    copy = dup(fd);
    CHECK_FAILS(loch_handle_import(b, LOCH_SHARE_FD, &copy, 2 * GRANULE, &none), INVALID);
    CHECK_FAILS(loch_handle_import(b, LOCH_SHARE_FD, &other, GRANULE, &none), INVALID);
    CHECK_OK(loch_handle_import(b, LOCH_SHARE_FD, &copy, GRANULE, &imported));
    close(fd);
    close(copy);
    close(other);
    CHECK_OK(loch_virtual_reserve(a, GRANULE, 0, (void **)&in_a));
    CHECK_OK(loch_virtual_reserve(b, GRANULE, 0, (void **)&in_b));
    CHECK_OK(loch_virtual_map(in_a, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(in_b, imported, NULL, 0));
    strcpy(in_a, "shared");
    assert_string_equal(in_b, "shared");
    assert_int_equal(sim_stats(b).physical_bytes, 0); /* it is a's */
    CHECK_OK(loch_virtual_unmap(in_a));
    CHECK_OK(loch_virtual_unreserve(in_a));
    loch_handle_destroy(handle);
    loch_device_release(a); /* the memory lives on in b */
    assert_string_equal(in_b, "shared");
    CHECK_OK(loch_virtual_unmap(in_b));
    CHECK_OK(loch_virtual_unreserve(in_b));
    loch_handle_destroy(imported);
    loch_device_release(b);
}

static void peers_need_access_and_copies_do_not(void **state)
{
    (void)state;
    loch_device *a = sim_open(BACKED ",id=1"), *b = sim_open(BACKED ",id=2");
    char *in_a = sim_raw(a, 64), *in_b = sim_raw(b, 64), *mapped;
    loch_stream *stream = loch_stream_get_default(b);
    loch_handle *handle;
    strcpy(in_a, "over there");
    CHECK_OK(loch_copy(in_b, in_a, 64)); /* needs no access */
    assert_string_equal(in_b, "over there");
    CHECK_FAILS(sim_reads(stream, in_a, 64), OUT_OF_RANGE);
    CHECK_OK(loch_device_enable_peer(b, a));
    CHECK_OK(loch_device_enable_peer(b, a));
    CHECK_OK(sim_reads(stream, in_a, 64));
    CHECK_OK(loch_virtual_reserve(a, 2 * GRANULE, 0, (void **)&mapped));
    CHECK_OK(loch_handle_create(a, GRANULE, NULL, &handle));
    CHECK_OK(loch_virtual_map(mapped, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(mapped + GRANULE, handle, &b, 1));
    CHECK_FAILS(sim_reads(stream, mapped, 64), OUT_OF_RANGE); /* mapped memory is opened by its map alone */
    CHECK_OK(sim_reads(stream, mapped + GRANULE, 64));
    CHECK_OK(loch_device_sync(b));
    CHECK_OK(loch_virtual_unmap(mapped));
    CHECK_OK(loch_virtual_unmap(mapped + GRANULE));
    CHECK_OK(loch_virtual_unreserve(mapped));
    loch_handle_destroy(handle);
    CHECK_OK(loch_raw_free(in_a));
    CHECK_OK(loch_raw_free(in_b));
    loch_device_release(a);
    loch_device_release(b);
}

static void the_driver_knows_addresses_to_the_last_byte(void **state)
{
    (void)state;
    loch_device *device = sim_open(BACKED);
    void *self;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    char *raw = sim_raw(device, 1000), *pinned = sim_pinned(device, 1000);
    loch_address_info info = {.size = sizeof info};
    CHECK_OK(driver->address_query(self, raw + 999, &info));
    assert_int_equal(info.kind, LOCH_MEMORY_DEVICE);
    assert_ptr_equal(info.base, raw);
    assert_int_equal(info.bytes, 1000);
    CHECK_STATUS(driver->address_query(self, raw + 1000, &info), LOCH_E_NOT_FOUND);
    CHECK_OK(driver->address_query(self, pinned, &info));
    assert_int_equal(info.kind, LOCH_MEMORY_PINNED);
    CHECK_STATUS(driver->address_query(self, &info, &info), LOCH_E_NOT_FOUND);
    CHECK_OK(loch_raw_free(raw));
    CHECK_OK(loch_raw_free(pinned));
    loch_device_release(device);
}

/* Contents of unbacked memory are never handed out; writes to it are work like any other. */
static void reading_unbacked_memory_is_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8MiB,unbacked"), *backed = sim_open("sim:8MiB,id=1");
    char *block = sim_raw(device, 4096), *other = sim_raw(device, 4096), *real = sim_raw(backed, 4096);
    char *pinned = sim_pinned(device, 4096), host[4096];
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    memset(host, 7, sizeof host);
    memset(pinned, 7, 4096);
    CHECK_OK(loch_copy(block, host, sizeof host));
    CHECK_OK(loch_copy(block, pinned, 4096));
    CHECK_OK(loch_copy(other, block, 4096));
    CHECK_OK(loch_fill(block, 4096, "\5", 1));
    CHECK_OK(loch_copy(real, host, sizeof host));
    CHECK_OK(loch_copy(block, real, 4096)); /* from a device with contents into one without */
    CHECK_FAILS(loch_copy(host, block, sizeof host), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "without \"unbacked\""));
    CHECK_FAILS(loch_copy(pinned, block, 4096), UNSUPPORTED);
    CHECK_FAILS(loch_copy_on(pinned, block, 4096, stream), UNSUPPORTED);
    CHECK_FAILS(loch_copy(real, block, 4096), UNSUPPORTED);
    const loch_pitched shape = {.row_bytes = 16,
                                .rows = 4,
                                .planes = 1,
                                .to_row_pitch = 32,
                                .from_row_pitch = 16,
                                .to_plane_pitch = 128,
                                .from_plane_pitch = 64};
    void *self;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    CHECK_FAILS(driver->copy_pitched(self, LOCH_DEVICE_TO_HOST, host, block, &shape, NULL, NULL), UNSUPPORTED);
    CHECK_OK(driver->copy_pitched(self, LOCH_HOST_TO_DEVICE, block, host, &shape, NULL, NULL));
    for (size_t i = 0; i < sizeof host; i++)
        if (host[i] != 7 || pinned[i] != 7) fail_msg("byte %zu was written", i);
    loch_stream_close(stream);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(other));
    CHECK_OK(loch_raw_free(real));
    CHECK_OK(loch_raw_free(pinned));
    loch_device_release(device);
    loch_device_release(backed);
}

/* Counts the mappings of the process, and the bytes of simulated memory that the host has given pages. */
static size_t count_contents(size_t *mappings)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[400];
    size_t bytes = 0, kib;
    bool is_ours = false;
    assert_non_null(file);
    *mappings = 0;
    while (fgets(line, sizeof line, file)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' ')) { /* the first line of a mapping */
            is_ours = strstr(line, "memfd:loch-sim") != NULL;
            *mappings += is_ours;
        } else if (is_ours && sscanf(line, "Rss: %zu kB", &kib) == 1) {
            bytes += 1024 * kib;
        }
    }
    fclose(file);
    return bytes;
}

/* The default: contents cost nothing before they are used, at any size, and then as much as was used. */
static void contents_are_made_by_their_first_use(void **state)
{
    (void)state;
    if (TEST_HAS_FEW_ADDRESSES) skip();
    enum { HANDLES = 4096 };
    static loch_handle *handles[HANDLES];
    loch_device *device = sim_open("sim:16TiB,granule=64KiB");
    char *addresses, host[100] = "";
    size_t mappings;
    CHECK_OK(loch_virtual_reserve(device, 2 * HANDLES * (size_t)GRANULE, 0, (void **)&addresses));
    for (size_t i = 0; i < HANDLES; i++) {
        CHECK_OK(loch_handle_create(device, GRANULE, NULL, &handles[i]));
        CHECK_OK(loch_virtual_map(addresses + i * GRANULE, handles[i], NULL, 0));
    }
    char *huge = sim_raw(device, 8192 * TEST_GIB);
    assert_int_equal(count_contents(&mappings), 0);
    assert_int_equal(mappings, 0);
    CHECK_OK(loch_copy(addresses + 2 * GRANULE - 4, "one object and the next", 24));
    CHECK_OK(loch_copy(huge + 5000 * TEST_GIB, "far away", 9));
    assert_true(count_contents(&mappings) <= 16 * TEST_KIB);
    assert_true(mappings >= 2 && mappings <= 3);
    CHECK_OK(loch_copy(host, addresses + 2 * GRANULE - 4, 24));
    assert_string_equal(host, "one object and the next");
    CHECK_OK(loch_copy(host, huge + 5000 * TEST_GIB, 9));
    assert_string_equal(host, "far away");
    CHECK_OK(loch_copy(host, huge + 4000 * TEST_GIB, 9)); /* never written: zeros */
    assert_string_equal(host, "");
    CHECK_OK(loch_virtual_map(addresses + HANDLES * (size_t)GRANULE, handles[2], NULL, 0)); /* a second address */
    CHECK_OK(loch_copy(host, addresses + HANDLES * (size_t)GRANULE, 20));
    assert_string_equal(host, "object and the next");
    for (size_t i = 0; i < HANDLES; i++) {
        CHECK_OK(loch_virtual_unmap(addresses + i * GRANULE));
        if (i == 2) CHECK_OK(loch_virtual_unmap(addresses + HANDLES * (size_t)GRANULE));
        loch_handle_destroy(handles[i]);
    }
    CHECK_OK(loch_raw_free(huge));
    assert_int_equal(count_contents(&mappings), 0);
    assert_int_equal(mappings, 0);
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_device_release(device);
}

/* More than the host has is a status, and nothing was queued or written. What fits goes on. */
static void a_host_without_memory_is_a_status(void **state)
{
    (void)state;
    loch_device *cpu, *device = sim_open("sim:16TiB");
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_OK(loch_device_calculate_memory(cpu, &info));
    const size_t bytes = 2 * info.total_bytes;
    char *block = sim_raw(device, bytes), host[8] = "";
    size_t mappings;
    CHECK_FAILS(loch_fill(block, bytes, "x", 1), HOST_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "unbacked"));
    assert_int_equal(sim_stats(device).pending, 0);
    assert_int_equal(count_contents(&mappings), 0);
    CHECK_OK(loch_copy(block + bytes - 8, "the end", 8));
    CHECK_OK(loch_copy(host, block + bytes - 8, 8));
    assert_string_equal(host, "the end");
    CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
    loch_device_release(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(capacity_is_exact),
        SIM_TEST(reading_unbacked_memory_is_refused),
        SIM_TEST(contents_are_made_by_their_first_use),
        SIM_TEST(a_host_without_memory_is_a_status),
        SIM_TEST(raw_blocks_are_aligned_as_cuda_aligns_them),
        SIM_TEST(unbacked_addresses_are_nobody_elses),
        SIM_TEST(address_space_is_roomy_and_ends),
        SIM_TEST(addresses_never_overlap),
        SIM_TEST(a_handle_at_two_addresses_has_one_memory),
        SIM_TEST(the_driver_refuses_what_cuda_refuses),
        SIM_TEST(kernels_use_mapped_memory_to_the_byte),
        SIM_TEST(pageable_memory_is_staged_and_pinned_memory_is_not),
        SIM_TEST(fills_of_every_width),
        SIM_TEST(memory_that_goes_under_queued_work_is_found),
        SIM_TEST(ordered_memory_follows_its_stream),
        SIM_TEST(handles_shared_by_descriptor_have_one_memory),
        SIM_TEST(peers_need_access_and_copies_do_not),
        SIM_TEST(the_driver_knows_addresses_to_the_last_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

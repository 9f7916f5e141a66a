/* SPDX-License-Identifier: MIT */
/* Contract of device.h: names, counted ownership, properties, enumeration, call counters. */
#include "base/clock.h"
#include "bed.h"

/* --- names --- */

static void open_refused(const char *name, unsigned set, const char *named)
{
    loch_device *device = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_device_open(name, &device), set);
    assert_null(device);
    if (!strstr(loch_error_get()->sentence, named))
        fail_msg("\"%s\" does not name %s", loch_error_get()->sentence, named);
}

static void names_that_cannot_be_read_are_refused(void **state)
{
    (void)state;
    char long_name[LOCH_DEVICE_NAME_MAX + 40];
    memset(long_name, 'x', sizeof long_name);
    memcpy(long_name, "cpu:", 4);
    long_name[sizeof long_name - 1] = '\0';

    open_refused(NULL, TEST_SET(INVALID), "");
    open_refused("", TEST_SET(INVALID), "");
    open_refused(":", TEST_SET(INVALID), "");
    open_refused(":1", TEST_SET(INVALID), "");
    open_refused("cpu:banana", TEST_SET(INVALID), "banana");
    open_refused("cpu:numa", TEST_SET(INVALID), "numa");
    open_refused("cpu:numa-1", TEST_SET(INVALID), "numa");
    open_refused(long_name, TEST_SET(INVALID), "");
    open_refused("sim", TEST_SET(INVALID), "");
    open_refused("sim:", TEST_SET(INVALID), "");
    open_refused("sim:0", TEST_SET(INVALID), "");
    open_refused("sim:banana", TEST_SET(INVALID), "banana");
    open_refused("sim:1GiB,banana", TEST_SET(INVALID), "banana");
    open_refused("sim:1GiB,granule=3", TEST_SET(INVALID), "granule");
    open_refused("sim:1GiB,seed=banana", TEST_SET(INVALID), "banana");
    open_refused("sim:99999999999999999999GiB", TEST_SET(INVALID) | TEST_SET(OVERFLOW), "");
    CHECK_FAILS(loch_device_open("cpu", NULL), INVALID);
}

static void names_that_nothing_has_are_not_found(void **state)
{
    test_bed *bed = *state;
    bool has_cuda = strcmp(bed->properties.driver, "cuda") == 0;
    open_refused("nosuchdriver", TEST_SET(NOT_FOUND), "nosuchdriver");
    open_refused("nosuchdriver:1", TEST_SET(NOT_FOUND), "nosuchdriver");
    open_refused("cpu:numa99999", TEST_SET(NOT_FOUND), "99999");
    open_refused("cuda:99999", TEST_SET(NOT_FOUND), "cuda");
    /* without CUDA the driver is missing before its argument is read */
    open_refused("cuda:banana", TEST_SET(INVALID) | (has_cuda ? 0u : TEST_SET(NOT_FOUND)), "cuda");
}

/* --- ownership --- */

static void one_name_is_one_device(void **state)
{
    test_bed *bed = *state;
    loch_device *again = NULL;
    CHECK_OK(loch_device_open(bed->name, &again));
    assert_ptr_equal(again, bed->device);
    assert_string_equal(loch_device_get_name(again), bed->name);
    assert_ptr_equal(loch_device_retain(again), again);
    loch_device_release(again);
    loch_device_release(again);
    assert_string_equal(loch_device_get_name(bed->device), bed->name);
    assert_null(loch_device_retain(NULL));
    loch_device_release(NULL);

    loch_device *other = test_bed_open_other(bed, false);
    assert_ptr_not_equal(other, bed->device);
    loch_device_release(other);
}

static void cuda_without_number_is_the_first(void **state)
{
    test_bed *bed = *state;
    if (strcmp(bed->name, "cuda:0") != 0) return;
    loch_device *plain = NULL;
    CHECK_OK(loch_device_open("cuda", &plain));
    assert_ptr_equal(plain, bed->device);
    loch_device_release(plain);
}

static void a_closed_device_opens_again(void **state)
{
    test_bed *bed = *state;
    for (int i = 0; i < 3; i++) {
        loch_device_release(bed->device);
        bed->device = NULL;
        CHECK_OK(loch_device_open(bed->name, &bed->device));
        CHECK_OK(loch_device_sync(bed->device));
    }
}

/* Each object is the last to hold its device, and the device still works for it. */
static void objects_outlive_the_device(void **state)
{
    test_bed *bed = *state;
    char host[4096];
    loch_stream *stream = NULL;
    loch_event *event = NULL;
    loch_address_info info = {.size = sizeof info};

    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    loch_device_release(bed->device);
    assert_string_equal(loch_device_get_name(loch_stream_get_device(stream)), bed->name);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_event_create(loch_stream_get_device(stream), LOCH_EVENT_PLAIN, &event));
    loch_stream_close(stream);
    CHECK_OK(loch_event_record(event, NULL));
    CHECK_OK(loch_event_sync(event));

    CHECK_OK(loch_device_open(bed->name, &bed->device));
    loch_event_destroy(event);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, sizeof host);
    loch_device_release(bed->device);
    test_bed_put(bed, block, sizeof host, 1);
    test_bed_expect(bed, block, sizeof host, 1);
    CHECK_OK(loch_address_query(block, &info));
    assert_string_equal(loch_device_get_name(info.device), bed->name);

    CHECK_OK(loch_device_open(bed->name, &bed->device));
    assert_ptr_equal(bed->device, info.device);
    CHECK_OK(loch_raw_free(block));
}

static void virtual_memory_outlives_the_device(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    char *addresses = test_bed_reserve(bed, 1);
    loch_device_release(bed->device);
    bed->device = NULL;
    loch_device *again = NULL;
    CHECK_OK(loch_device_open(bed->name, &again));
    bed->device = again;
    loch_handle *handle = test_bed_handle(bed, 1);
    loch_device_release(bed->device);
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    test_bed_put(bed, addresses, 4096, 2);
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unreserve(addresses));
    /* now the handle alone keeps the device */
    assert_int_equal(loch_handle_get_bytes(handle), bed->properties.granule_bytes);
    CHECK_OK(loch_device_open(bed->name, &again));
    bed->device = again;
    addresses = test_bed_reserve(bed, 1);
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    test_bed_expect(bed, addresses, 4096, 2);
    loch_handle_destroy(handle);
    loch_device_release(bed->device);
    /* and now the mapping, whose handle is destroyed */
    test_bed_expect(bed, addresses, 4096, 2);
    CHECK_OK(loch_device_open(bed->name, &bed->device));
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unreserve(addresses));
}

/* --- properties --- */

static bool is_power_of_two(size_t value)
{
    return value && !(value & (value - 1));
}

static void properties_make_sense(void **state)
{
    test_bed *bed = *state;
    const loch_device_properties *p = &bed->properties;
    size_t length = strlen(p->driver);
    assert_true(length > 0 && strncmp(bed->name, p->driver, length) == 0);
    assert_true(bed->name[length] == '\0' || bed->name[length] == ':');
    assert_true(p->model[0]);
    assert_non_null(memchr(p->model, 0, sizeof p->model));
    assert_true(p->total_bytes > 0);
    assert_true(is_power_of_two(p->alignment_bytes));
    assert_true(p->index >= 0);
    assert_true(p->numa_node >= -1);
    if (test_bed_can(bed, LOCH_CAN_VIRTUAL)) {
        assert_true(is_power_of_two(p->granule_bytes));
    } else {
        assert_int_equal(p->granule_bytes, 0);
        assert_int_equal(p->capabilities & (LOCH_CAN_ALIAS | LOCH_CAN_REMAP), 0);
    }
    if (strcmp(p->driver, "cpu") == 0) {
        assert_true(test_bed_can(bed, LOCH_CAN_HOST_ACCESS | LOCH_CAN_VIRTUAL));
#ifndef LOCHI_NO_DONTUNMAP /* builds for an emulator have it not (cmake/arm64.cmake) */
        assert_true(test_bed_can(bed, LOCH_CAN_REMAP));
#endif
        assert_true(p->multiprocessors > 0);
    }
    if (strstr(bed->name, "virtual=off")) assert_false(test_bed_can(bed, LOCH_CAN_VIRTUAL));
    if (strncmp(bed->name, "sim:1GiB", 8) == 0) {
        assert_int_equal(p->total_bytes, TEST_GIB);
        assert_int_equal(p->granule_bytes, 2 * TEST_MIB);
    }
}

/* A program that was compiled against an older header has a smaller structure. */
static void properties_keep_to_their_size(void **state)
{
    test_bed *bed = *state;
    loch_device_properties small, full;
    size_t sizes[] = {offsetof(loch_device_properties, capabilities), offsetof(loch_device_properties, granule_bytes),
                      offsetof(loch_device_properties, driver_version)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(&small, 0xab, sizeof small);
        small.size = sizes[i];
        CHECK_OK(loch_device_get_properties(bed->device, &small));
        assert_int_equal(small.size, sizes[i]);
        assert_string_equal(small.driver, bed->properties.driver);
        for (size_t k = sizes[i]; k < sizeof small; k++)
            assert_int_equal(((unsigned char *)&small)[k], 0xab);
    }
    memset(&full, 0xab, sizeof full);
    full.size = 0;
    CHECK_FAILS(loch_device_get_properties(bed->device, &full), INVALID);
    CHECK_FAILS(loch_device_get_properties(bed->device, NULL), INVALID);
    CHECK_FAILS(loch_device_get_properties(NULL, &full), INVALID);

    /* and one compiled against a newer header a larger one */
    struct {
        loch_device_properties properties;
        char newer[64];
    } large = {.properties.size = sizeof large};
    CHECK_OK(loch_device_get_properties(bed->device, &large.properties));
    assert_int_equal(large.properties.total_bytes, bed->properties.total_bytes);
}

static void can_asks_for_all_of_a_set(void **state)
{
    test_bed *bed = *state;
    uint32_t capabilities = bed->properties.capabilities;
    assert_true(loch_device_can(bed->device, 0));
    assert_true(loch_device_can(bed->device, capabilities));
    for (uint32_t bit = 1; bit && bit <= LOCH_CAN_NUMA; bit <<= 1) {
        assert_int_equal(!!loch_device_can(bed->device, bit), !!(capabilities & bit));
        if (!(capabilities & bit)) assert_false(loch_device_can(bed->device, capabilities | bit));
    }
}

static void memory_is_counted(void **state)
{
    test_bed *bed = *state;
    loch_memory_info before = {.size = sizeof before}, during = {.size = sizeof during}, after = {.size = sizeof after};
    CHECK_OK(loch_device_calculate_memory(bed->device, &before));
    assert_int_equal(before.total_bytes, bed->properties.total_bytes);
    assert_true(before.free_bytes <= before.total_bytes);
    assert_true(before.free_bytes > 0);
    CHECK_FAILS(loch_device_calculate_memory(NULL, &before), INVALID);
    CHECK_FAILS(loch_device_calculate_memory(bed->device, NULL), INVALID);
    if (!bed->is_sim) return;
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 64 * TEST_MIB);
    CHECK_OK(loch_device_calculate_memory(bed->device, &during));
    assert_true(during.free_bytes <= before.free_bytes - 64 * TEST_MIB);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_device_calculate_memory(bed->device, &after));
    assert_int_equal(after.free_bytes, before.free_bytes);
}

/* --- enumeration --- */

typedef struct seen {
    size_t count, limit;
    char names[64][LOCH_DEVICE_NAME_MAX];
} seen;

static loch_status see(const char *name, void *user)
{
    seen *all = user;
    if (all->count < 64) snprintf(all->names[all->count], LOCH_DEVICE_NAME_MAX, "%s", name);
    all->count++;
    return all->limit && all->count >= all->limit ? LOCH_E_CANCELLED : LOCH_OK;
}

static loch_status open_seen(const char *name, void *user)
{
    loch_device *device = NULL;
    loch_status status = loch_device_open(name, &device);
    *(size_t *)user += status == LOCH_OK;
    loch_device_release(device);
    return status;
}

static void enumeration_lists_what_opens(void **state)
{
    test_bed *bed = *state;
    static seen all;
    memset(&all, 0, sizeof all);
    CHECK_OK(loch_device_walk(see, &all));
    assert_true(all.count >= 1 && all.count <= 64);
    assert_string_equal(all.names[0], "cpu");
    bool found = false;
    for (size_t i = 0; i < all.count; i++) {
        assert_true(strncmp(all.names[i], "sim", 3) != 0);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(all.names[i], all.names[k]);
        found = found || strcmp(all.names[i], bed->name) == 0;
    }
    if (strcmp(bed->name, "cpu") == 0 || strncmp(bed->name, "cuda:", 5) == 0) assert_true(found);

    size_t opened = 0;
    CHECK_OK(loch_device_walk(open_seen, &opened));
    assert_int_equal(opened, all.count);

    memset(&all, 0, sizeof all);
    all.limit = 1;
    CHECK_STATUS(loch_device_walk(see, &all), LOCH_E_CANCELLED);
    assert_int_equal(all.count, 1);
    CHECK_FAILS(loch_device_walk(NULL, NULL), INVALID);
}

/* --- driver and call counters --- */

static void device_knows_its_driver(void **state)
{
    test_bed *bed = *state;
    void *self = TEST_UNTOUCHED;
    const loch_driver *driver = loch_device_get_driver(bed->device, &self);
    assert_non_null(driver);
    assert_string_equal(driver->name, bed->properties.driver);
    assert_ptr_equal(driver, loch_driver_find(bed->properties.driver));
    assert_ptr_not_equal(self, TEST_UNTOUCHED);
    assert_non_null(loch_device_get_driver(bed->device, NULL));
}

static void calls_are_counted_by_name(void **state)
{
    test_bed *bed = *state;
    loch_call_count calls[LOCH_CALL_COUNT + 1];
    size_t count = 0;

    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
    CHECK_OK(test_device_calls(bed->device, NULL, 0, &count));
    assert_int_equal(count, LOCH_CALL_COUNT);
    memset(calls, 0xab, sizeof calls);
    CHECK_OK(test_device_calls(bed->device, calls, 3, &count));
    assert_int_equal(count, LOCH_CALL_COUNT);
    assert_int_equal(((unsigned char *)&calls[3])[0], 0xab);
    CHECK_OK(test_device_calls(bed->device, calls, LOCH_CALL_COUNT, &count));
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++) {
        assert_string_equal(calls[i].name, loch_driver_call_name((loch_driver_call)i));
        assert_int_equal(calls[i].count, 0);
        assert_int_equal(calls[i].ns, 0);
    }
    assert_null(loch_driver_call_name(LOCH_CALL_COUNT));
    assert_string_equal(loch_driver_call_name(LOCH_CALL_map), "map");
    CHECK_FAILS(test_device_calls(NULL, calls, 1, &count), INVALID);

    void *blocks[2];
    for (int i = 0; i < 2; i++)
        blocks[i] = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    for (int i = 0; i < 2; i++)
        CHECK_OK(loch_raw_free(blocks[i]));
    assert_int_equal(test_call_count(bed->device, "raw_alloc"), 2);
    assert_int_equal(test_call_count(bed->device, "raw_free"), 2);
    assert_int_equal(test_call_count(bed->device, "fill"), 0);
    uint64_t ns = test_call_ns(bed->device, "raw_alloc");
    assert_true(bed->is_sim ? ns > 0 : ns == 0);
    assert_int_equal(test_call_real_ns(bed->device, "raw_alloc"), 0); /* not measured */

    if (test_bed_can(bed, LOCH_CAN_VIRTUAL)) {
        char *addresses = test_bed_reserve(bed, 2);
        loch_handle *first = test_bed_map(bed, addresses, 1);
        loch_handle *second = test_bed_map(bed, addresses + bed->properties.granule_bytes, 1);
        CHECK_OK(loch_virtual_unmap(addresses));
        CHECK_OK(loch_virtual_unmap(addresses + bed->properties.granule_bytes));
        CHECK_OK(loch_virtual_unreserve(addresses));
        loch_handle_destroy(first);
        loch_handle_destroy(second);
        assert_int_equal(test_call_count(bed->device, "reserve"), 1);
        assert_int_equal(test_call_count(bed->device, "handle_create"), 2);
        assert_int_equal(test_call_count(bed->device, "map"), 2);
        assert_int_equal(test_call_count(bed->device, "access"), 2);
        assert_int_equal(test_call_count(bed->device, "unmap"), 2);
        assert_int_equal(test_call_count(bed->device, "handle_release"), 2);
        assert_int_equal(test_call_count(bed->device, "unreserve"), 1);
    }
    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
    assert_int_equal(test_call_count(bed->device, "raw_alloc"), 0);
    assert_int_equal(test_call_ns(bed->device, "raw_alloc"), 0);
}

static uint64_t clock_of_thousands(void *user)
{
    return *(uint64_t *)user += 1000;
}

static void calls_are_measured(void **state)
{
    test_bed *bed = *state;
    uint64_t time = 0;
    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_ON));
    lochi_clock_set(clock_of_thousands, &time);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    CHECK_OK(loch_raw_free(block));
    lochi_clock_set(NULL, NULL);
    assert_true(test_call_ns(bed->device, "raw_alloc") >= 1000);
    assert_true(test_call_ns(bed->device, "raw_free") >= 1000);
    const uint64_t real_ns = test_call_real_ns(bed->device, "raw_alloc");
    assert_true(real_ns >= 1000 && real_ns % 1000 == 0); /* by the clock above, on every device */
    if (!bed->is_sim) assert_int_equal(test_call_ns(bed->device, "raw_alloc"), real_ns);
    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
    assert_int_equal(test_call_real_ns(bed->device, "raw_alloc"), 0);
    CHECK_FAILS(loch_device_measure_calls(NULL, LOCH_MEASURE_ON), INVALID);
}

/* --- sync and peers --- */

static void sync_of_an_idle_device_returns_at_once(void **state)
{
    test_bed *bed = *state;
    CHECK_OK(loch_device_sync(bed->device));
    CHECK_FAILS(loch_device_sync(NULL), INVALID);
}

static void peers_of_another_kind_are_not_connected(void **state)
{
    test_bed *bed = *state;
    loch_device *other = test_bed_open_other(bed, false);
    CHECK_FAILS(loch_device_enable_peer(bed->device, other), UNSUPPORTED);
    CHECK_FAILS(loch_device_enable_peer(other, bed->device), UNSUPPORTED);
    CHECK_FAILS(loch_device_enable_peer(bed->device, NULL), INVALID);
    CHECK_FAILS(loch_device_enable_peer(NULL, bed->device), INVALID);
    loch_device_release(other);
}

static void peers_of_one_kind_connect_where_they_can(void **state)
{
    test_bed *bed = *state;
    loch_device *other = test_bed_open_other(bed, true);
    if (!other) return;
    if (test_bed_can(bed, LOCH_CAN_PEER) && loch_device_can(other, LOCH_CAN_PEER)) {
        loch_status status = loch_device_enable_peer(bed->device, other);
        if (status != LOCH_E_UNSUPPORTED) {
            CHECK_OK(status);
            CHECK_OK(loch_device_enable_peer(bed->device, other));
        }
    } else {
        CHECK_FAILS(loch_device_enable_peer(bed->device, other), UNSUPPORTED);
    }
    loch_device_release(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_cannot_be_read_are_refused),
        cmocka_unit_test(names_that_nothing_has_are_not_found),
        cmocka_unit_test(one_name_is_one_device),
        cmocka_unit_test(cuda_without_number_is_the_first),
        cmocka_unit_test(a_closed_device_opens_again),
        cmocka_unit_test(objects_outlive_the_device),
        cmocka_unit_test(virtual_memory_outlives_the_device),
        cmocka_unit_test(properties_make_sense),
        cmocka_unit_test(properties_keep_to_their_size),
        cmocka_unit_test(can_asks_for_all_of_a_set),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(enumeration_lists_what_opens),
        cmocka_unit_test(device_knows_its_driver),
        cmocka_unit_test(calls_are_counted_by_name),
        cmocka_unit_test(calls_are_measured),
        cmocka_unit_test(sync_of_an_idle_device_returns_at_once),
        cmocka_unit_test(peers_of_another_kind_are_not_connected),
        cmocka_unit_test(peers_of_one_kind_connect_where_they_can),
    };
    return TEST_BED_RUN(tests);
}

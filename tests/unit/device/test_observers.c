/* SPDX-License-Identifier: MIT */
/* Observers of driver memory: which ranges they receive, and in which order. */
#include "device/virtual.h"
#include "observer_fixture.h"

/* --- a record of the calls of observers --- */

typedef struct page {
    char visitor; /* which one heard it */
    loch_range_event event;
    loch_range range;
} page;

static page diary[64];

static size_t diary_length;

static void write_down(loch_range_event event, const loch_range *range, void *user)
{
    assert_true(diary_length < sizeof diary / sizeof *diary);
    diary[diary_length++] = (page){*(const char *)user, event, *range};
}

/* Compares the diary with "a+b+" (visitor and event) and one range for all its pages, and empties it. */
static void expect_diary(const char *expected, loch_device *device, loch_memory_kind kind, const void *address,
                         size_t bytes)
{
    char text[160] = "";
    for (size_t i = 0; i < diary_length; i++)
        snprintf(text + 2 * i, 3, "%c%c", diary[i].visitor, diary[i].event == LOCH_RANGE_TAKEN ? '+' : '-');
    assert_string_equal(text, expected);
    for (size_t i = 0; i < diary_length; i++) {
        assert_ptr_equal(diary[i].range.device, device);
        assert_int_equal(diary[i].range.kind, kind);
        assert_ptr_equal(diary[i].range.address, address);
        assert_int_equal(diary[i].range.bytes, bytes);
    }
    diary_length = 0;
}

static void raw_blocks_in_order_and_in_reverse(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    void *block, *elsewhere;
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    CHECK_OK(loch_observer_add(NULL, write_down, "b"));
    CHECK_OK(loch_observer_add(device, write_down, "c"));
    CHECK_OK(loch_observer_add(other, write_down, "o"));
    const loch_memory_kind kinds[] = {LOCH_MEMORY_DEVICE, LOCH_MEMORY_PINNED, LOCH_MEMORY_MANAGED};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(loch_raw_alloc(device, kinds[i], 1000, 0, &block));
        expect_diary("a+b+c+", device, kinds[i], block, 1000);
        CHECK_FAILS(loch_raw_free((char *)block + 1), INTERIOR);
        assert_int_equal(diary_length, 0);
        CHECK_OK(loch_raw_free(block));
        expect_diary("c-b-a-", device, kinds[i], block, 1000);
        CHECK_FAILS(loch_raw_free(block), FOREIGN);
        assert_int_equal(diary_length, 0);
    }
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, 50, 0, &elsewhere));
    expect_diary("b+o+", other, LOCH_MEMORY_DEVICE, elsewhere, 50);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_GIB, 0, &block), DEVICE_MEMORY);
    assert_int_equal(diary_length, 0);
    CHECK_OK(loch_observer_remove(NULL, write_down, "b"));
    CHECK_OK(loch_raw_free(elsewhere));
    expect_diary("o-", other, LOCH_MEMORY_DEVICE, elsewhere, 50);
    CHECK_OK(loch_observer_remove(device, write_down, "c"));
    CHECK_OK(loch_observer_remove(other, write_down, "o"));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 1000, 0, &block));
    CHECK_OK(loch_raw_free(block));
    assert_int_equal(diary_length, 0);
    loch_device_release(device);
    loch_device_release(other);
}

static void registered_memory_is_the_callers(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    static char mine[4096];
    CHECK_OK(loch_observer_add(NULL, write_down, "a"));
    CHECK_OK(loch_raw_register(device, mine, sizeof mine));
    CHECK_OK(loch_raw_unregister(mine));
    assert_int_equal(diary_length, 0);
    CHECK_OK(loch_observer_remove(NULL, write_down, "a"));
    loch_device_release(device);
}

static void visitors_hear_of_mappings(void **state)
{
    (void)state;
    const char *names[] = {DEVICE, "cpu"};
    for (int i = 0; i < 2; i++) {
        loch_device *device = sim_open(names[i]);
        loch_device_properties properties = {.size = sizeof properties};
        CHECK_OK(loch_device_get_properties(device, &properties));
        const size_t granule = properties.granule_bytes;
        char *addresses;
        loch_handle *handle;
        CHECK_OK(loch_observer_add(device, write_down, "a"));
        CHECK_OK(loch_observer_add(device, write_down, "b"));
        CHECK_OK(loch_virtual_reserve(device, 8 * granule, 0, (void **)&addresses));
        CHECK_OK(loch_handle_create(device, 2 * granule, NULL, &handle));
        assert_int_equal(diary_length, 0); /* neither addresses nor handles can be used yet */
        CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
        expect_diary("a+b+", device, LOCH_MEMORY_DEVICE, addresses, 2 * granule);
        CHECK_FAILS(loch_virtual_map(addresses + granule, handle, NULL, 0), EXISTS);
        assert_int_equal(diary_length, 0);
        if (loch_device_can(device, LOCH_CAN_REMAP)) {
            CHECK_OK(lochi_virtual_remap(addresses, addresses + 4 * granule));
            assert_int_equal(diary_length, 4);
            assert_ptr_equal(diary[0].range.address, addresses);
            assert_ptr_equal(diary[3].range.address, addresses + 4 * granule);
            diary[2].range = diary[3].range = diary[0].range;
            expect_diary("b-a-a+b+", device, LOCH_MEMORY_DEVICE, addresses, 2 * granule);
            CHECK_FAILS(lochi_virtual_remap(addresses + 4 * granule, addresses + 5 * granule), EXISTS);
            assert_int_equal(diary_length, 0);
            CHECK_OK(lochi_virtual_remap(addresses + 4 * granule, addresses));
            diary_length = 0;
        }
        CHECK_FAILS(loch_virtual_unmap(addresses + granule), INTERIOR);
        CHECK_OK(loch_virtual_unmap(addresses));
        expect_diary("b-a-", device, LOCH_MEMORY_DEVICE, addresses, 2 * granule);
        CHECK_FAILS(loch_virtual_unmap(addresses), NOT_FOUND);
        loch_handle_destroy(handle);
        CHECK_OK(loch_virtual_unreserve(addresses));
        assert_int_equal(diary_length, 0);
        CHECK_OK(loch_observer_remove(device, write_down, "a"));
        CHECK_OK(loch_observer_remove(device, write_down, "b"));
        loch_device_release(device);
    }
}

/* A range is usable when it is taken, and still when it goes. */
static void use(loch_range_event event, const loch_range *range, void *user)
{
    char byte = 0;
    loch_address_info info = {.size = sizeof info};
    CHECK_OK(loch_address_query(range->address, &info));
    assert_ptr_equal(info.base, range->address);
    assert_int_equal(info.bytes, range->bytes);
    if (event == LOCH_RANGE_TAKEN) CHECK_OK(loch_fill(range->address, range->bytes, "v", 1));
    CHECK_OK(loch_copy(&byte, range->address, 1));
    assert_int_equal(byte, 'v');
    CHECK_FAILS(loch_raw_free((char *)range->address + 1), INTERIOR);
    ++*(int *)user;
}

static void second_free(loch_range_event event, const loch_range *range, void *user)
{
    if (event == LOCH_RANGE_GOING) CHECK_FAILS(loch_raw_free(range->address), FOREIGN);
    ++*(int *)user;
}

static void memory_is_usable_while_a_visitor_hears_of_it(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    int calls = 0, others = 0;
    void *block;
    CHECK_OK(loch_observer_add(device, use, &calls));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    CHECK_OK(loch_observer_remove(device, use, &calls));
    CHECK_OK(loch_observer_add(device, second_free, &others)); /* a second free meanwhile does not reach the driver */
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_observer_remove(device, second_free, &others));
    assert_int_equal(calls, 1);
    assert_int_equal(others, 2);
    loch_device_release(device);
}

static void newcomers_hear_of_what_is_there(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE), *other = sim_open(DEVICE ",id=1");
    void *blocks[40], *elsewhere;
    for (int i = 0; i < 40; i++)
        CHECK_OK(loch_raw_alloc(device, i % 2 ? LOCH_MEMORY_PINNED : LOCH_MEMORY_DEVICE, 100, 0, &blocks[i]));
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, 100, 0, &elsewhere));
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    assert_int_equal(diary_length, 40);
    for (int i = 0; i < 40; i++) {
        int found = 0;
        for (int k = 0; k < 40; k++)
            found += diary[k].range.address == blocks[i] && diary[k].event == LOCH_RANGE_TAKEN;
        assert_int_equal(found, 1);
    }
    diary_length = 0;
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    CHECK_OK(loch_observer_add(NULL, write_down, "a"));
    assert_int_equal(diary_length, 41);
    diary_length = 0;
    CHECK_OK(loch_observer_remove(NULL, write_down, "a"));
    for (int i = 0; i < 40; i++)
        CHECK_OK(loch_raw_free(blocks[i]));
    CHECK_OK(loch_raw_free(elsewhere));
    loch_device_release(device);
    loch_device_release(other);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    CHECK_FAILS(loch_observer_add(device, NULL, NULL), INVALID);
    CHECK_FAILS(loch_observer_remove(device, write_down, "a"), NOT_FOUND);
    CHECK_OK(loch_observer_add(device, write_down, diary));
    CHECK_FAILS(loch_observer_add(device, write_down, diary), EXISTS);
    CHECK_OK(loch_observer_add(NULL, write_down, diary)); /* for all devices: another one */
    CHECK_FAILS(loch_observer_remove(device, write_down, "b"), NOT_FOUND);
    CHECK_OK(loch_observer_remove(device, write_down, diary));
    CHECK_FAILS(loch_observer_remove(device, write_down, diary), NOT_FOUND);
    CHECK_OK(loch_observer_remove(NULL, write_down, diary));
    loch_device_release(device);
}

/* Two mappings of one handle name one memory; raw blocks and other handles do not. */
static void mappings_of_one_handle_name_one_memory(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE ",id=3");
    char *addresses, *block;
    loch_handle *handle, *other;
    CHECK_OK(loch_virtual_reserve(device, 8 * GRANULE, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, GRANULE, NULL, &handle));
    CHECK_OK(loch_handle_create(device, GRANULE, NULL, &other));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    diary_length = 0;
    CHECK_OK(loch_observer_add(device, write_down, "a")); /* finds the first mapping there */
    CHECK_OK(loch_virtual_map(addresses + 2 * GRANULE, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(addresses + 4 * GRANULE, other, NULL, 0));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, GRANULE, 0, (void **)&block));
    assert_int_equal(diary_length, 4);
    assert_non_null(diary[0].range.memory);
    assert_ptr_equal(diary[1].range.memory, diary[0].range.memory);
    assert_ptr_not_equal(diary[2].range.memory, diary[0].range.memory);
    assert_null(diary[3].range.memory);
    CHECK_OK(loch_virtual_unmap(addresses));
    assert_ptr_equal(diary[4].range.memory, diary[0].range.memory);
    CHECK_OK(loch_virtual_unmap(addresses + 2 * GRANULE));
    CHECK_OK(loch_virtual_unmap(addresses + 4 * GRANULE));
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    loch_handle_destroy(handle);
    loch_handle_destroy(other);
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_device_release(device);
    diary_length = 0;
}

/* Memory that a driver could not give is not told of. */
static void memory_that_a_driver_could_not_give_is_not_told_of(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE ",id=2");
    char *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 4 * GRANULE, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, GRANULE, NULL, &handle));
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    const loch_sim_fault fault = {.size = sizeof fault, .call = "map", .mode = LOCH_SIM_FAULT_ONCE};
    CHECK_OK(loch_sim_set_fault(device, &fault));
    CHECK_FAILS(loch_virtual_map(addresses, handle, NULL, 0), DRIVER);
    assert_int_equal(diary_length, 0);
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    expect_diary("a+", device, LOCH_MEMORY_DEVICE, addresses, GRANULE);
    CHECK_OK(loch_virtual_unmap(addresses));
    diary_length = 0;
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    loch_device_release(device);
}

static void fail_something(loch_range_event event, const loch_range *range, void *user)
{
    (void)event, (void)range, (void)user;
    CHECK_FAILS(loch_tag_create("", &(loch_tag){0}), INVALID);
}

/* A range that the driver refuses to take back was not freed: observers receive it again. */
static void what_a_driver_refuses_to_take_back_is_told_of_again(void **state)
{
    (void)state;
    loch_device *device = sim_open("stubborn");
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(device, &properties));
    const size_t granule = properties.granule_bytes;
    char *block, *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 4 * granule, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, (void **)&block));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_observer_add(device, write_down, "a"));
    CHECK_OK(loch_observer_add(device, fail_something, NULL)); /* the record stays the library's */
    diary_length = 0;
    is_stubborn = true;
    CHECK_FAILS(loch_raw_free(block), DRIVER);
    expect_diary("a-a+", device, LOCH_MEMORY_DEVICE, block, 100);
    CHECK_FAILS(loch_virtual_unmap(addresses), DRIVER);
    expect_diary("a-a+", device, LOCH_MEMORY_DEVICE, addresses, granule);
    is_stubborn = false;
    CHECK_FAILS(loch_virtual_unreserve(addresses), BUSY);
    CHECK_OK(loch_raw_free(block));
    expect_diary("a-", device, LOCH_MEMORY_DEVICE, block, 100);
    CHECK_OK(loch_virtual_unmap(addresses));
    expect_diary("a-", device, LOCH_MEMORY_DEVICE, addresses, granule);
    CHECK_OK(loch_observer_remove(device, fail_something, NULL));
    CHECK_OK(loch_observer_remove(device, write_down, "a"));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_device_release(device);
}

/* --- without host memory --- */

static void ignore(loch_range_event event, const loch_range *range, void *user)
{
    (void)event, (void)range, (void)user;
}

static loch_status scarce(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    void *block = NULL;
    loch_status status = loch_device_open(DEVICE, &device);
    if (status == LOCH_OK) status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block);
    if (status == LOCH_OK) status = loch_observer_add(device, ignore, NULL);
    const loch_error first = *loch_error_get();
    loch_status ended = status == LOCH_OK ? loch_observer_remove(device, ignore, NULL) : LOCH_OK;
    if (loch_raw_free(block) != LOCH_OK) ended = LOCH_E_CORRUPT;
    loch_device_release(device);
    if (ended != LOCH_OK) return ended;
    return status == LOCH_OK ? status : loch_error_set(first.status, NULL, 0, "%s", first.sentence);
}

static void visitors_survive_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(scarce, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(raw_blocks_in_order_and_in_reverse),
        SIM_TEST(registered_memory_is_the_callers),
        SIM_TEST(visitors_hear_of_mappings),
        SIM_TEST(memory_is_usable_while_a_visitor_hears_of_it),
        SIM_TEST(newcomers_hear_of_what_is_there),
        SIM_TEST(wrong_calls_are_refused),
        SIM_TEST(mappings_of_one_handle_name_one_memory),
        SIM_TEST(memory_that_a_driver_could_not_give_is_not_told_of),
        SIM_TEST(what_a_driver_refuses_to_take_back_is_told_of_again),
        SIM_TEST(visitors_survive_failing_host_memory),
    };
    return cmocka_run_group_tests_name("visitors", tests, install, NULL);
}

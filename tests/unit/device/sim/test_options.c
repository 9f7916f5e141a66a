/* SPDX-License-Identifier: MIT */
/* How simulated devices are opened: options, refusals, properties. */
#include "sim_fixture.h"

static void words_that_cannot_be_read_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "sim",
        "sim:",
        "sim:0",
        "sim:lots",
        "sim:,backed",
        "sim:-1GiB",
        "sim:1000TiB",
        "sim:1GiB,",
        "sim:1GiB,bucked",
        "sim:1GiB,granule=",
        "sim:1GiB,granule=3MiB",
        "sim:1GiB,granule=512",
        "sim:1GiB,granule=4GiB",
        "sim:1GiB,clock=fast",
        "sim:1GiB,seed=x",
        "sim:1GiB,lag=-1",
        "sim:1GiB,lag=2us",
        "sim:1GiB,event_lag=",
        "sim:1GiB,event_lag=-5",
        "sim:1GiB,check=maybe",
        "sim:1GiB,virtual=",
        "sim:1GiB,async=2",
        "sim:1GiB,id=99999999999",
        "sim:1GiB,costs=",
        "sim:1GiB,Backed",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        loch_device *device = TEST_UNTOUCHED;
        CHECK_FAILS(loch_device_open(names[i], &device), INVALID);
        assert_null(device);
        assert_string_equal(loch_error_get()->driver, "sim");
    }
}

static void properties_are_those_of_the_options(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:80GiB,id=3");
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(device, &properties));
    assert_string_equal(properties.driver, "sim");
    assert_int_equal(properties.index, 3);
    assert_int_equal(properties.total_bytes, 80 * TEST_GIB);
    assert_int_equal(properties.granule_bytes, 2 * TEST_MIB);
    assert_int_equal(properties.alignment_bytes, 512);
    assert_int_equal(properties.capabilities, LOCH_CAN_PINNED | LOCH_CAN_REGISTER | LOCH_CAN_MANAGED |
                                                  LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS | LOCH_CAN_ORDERED |
                                                  LOCH_CAN_ASYNC | LOCH_CAN_TIMING | LOCH_CAN_CAPTURE | LOCH_CAN_PEER |
                                                  LOCH_CAN_RDMA | LOCH_CAN_SHARE_FD);
    loch_device_release(device);
}

static void a_switch_takes_capabilities_away(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t missing;
    } cases[] = {
        {"sim:1GiB,virtual=off", LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS | LOCH_CAN_RDMA | LOCH_CAN_SHARE_FD},
        {"sim:1GiB,alias=off", LOCH_CAN_ALIAS},
        {"sim:1GiB,async=off", LOCH_CAN_ASYNC | LOCH_CAN_ORDERED | LOCH_CAN_CAPTURE},
        {"sim:1GiB,capture=off", LOCH_CAN_CAPTURE},
        {"sim:1GiB,virtual=on", 0},
    };
    loch_device *whole = sim_open("sim:1GiB");
    loch_device_properties all = {.size = sizeof all}, some = {.size = sizeof some};
    CHECK_OK(loch_device_get_properties(whole, &all));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loch_device *device = sim_open(cases[i].name);
        CHECK_OK(loch_device_get_properties(device, &some));
        assert_int_equal(some.capabilities, all.capabilities & ~cases[i].missing);
        assert_int_equal(some.granule_bytes, cases[i].missing & LOCH_CAN_VIRTUAL ? 0 : 2 * TEST_MIB);
        loch_device_release(device);
    }
    loch_device_release(whole);
}

/* The driver itself refuses what an option switched off, for every caller. */
static void slots_of_what_was_switched_off_refuse(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,virtual=off,async=off");
    void *self, *address;
    loch_driver_handle handle;
    const loch_handle_options options = {.size = sizeof options};
    const loch_driver *driver = loch_device_get_driver(device, &self);
    CHECK_FAILS(driver->reserve(self, 2 * TEST_MIB, 0, &address), UNSUPPORTED);
    CHECK_FAILS(driver->handle_create(self, 2 * TEST_MIB, &options, &handle), UNSUPPORTED);
    CHECK_FAILS(driver->ordered_alloc(self, 512, NULL, &address), UNSUPPORTED);
    CHECK_FAILS(loch_sim_capture_begin(loch_stream_get_default(device)), UNSUPPORTED);
    loch_device_release(device);
}

static void other_devices_are_not_simulated(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    uint64_t number;
    loch_sim_stats stats = {.size = sizeof stats};
    loch_stream *stream = loch_stream_get_default(device);
    CHECK_FAILS(loch_sim_get_time(device, &number), INVALID);
    CHECK_FAILS(loch_sim_get_time(NULL, &number), INVALID);
    CHECK_FAILS(loch_sim_advance(device, 1), INVALID);
    CHECK_FAILS(loch_sim_get_stats(device, &stats), INVALID);
    CHECK_FAILS(loch_sim_lose(device), INVALID);
    CHECK_FAILS(loch_sim_set_fault(device, NULL), INVALID);
    CHECK_FAILS(loch_sim_step(stream, 1), INVALID);
    CHECK_FAILS(loch_sim_step(NULL, 1), INVALID);
    CHECK_FAILS(loch_sim_get_stream_number(stream, &number), INVALID);
    CHECK_FAILS(loch_sim_capture_begin(stream), INVALID);
    CHECK_FAILS(sim_busy(stream, 5), INVALID);
    loch_device_release(device);
}

static void structs_without_a_size_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    loch_sim_stats stats = {.size = 0};
    const loch_sim_kernel kernel = {.size = 0}, ranges = {.size = sizeof ranges, .reads_count = 1};
    const loch_sim_fault fault = {.size = 0}, unknown = {.size = sizeof unknown, .call = "malloc"};
    CHECK_FAILS(loch_sim_get_stats(device, &stats), INVALID);
    CHECK_FAILS(loch_sim_launch(loch_stream_get_default(device), &kernel), INVALID);
    CHECK_FAILS(loch_sim_launch(loch_stream_get_default(device), &ranges), INVALID);
    CHECK_FAILS(loch_sim_launch(loch_stream_get_default(device), NULL), INVALID);
    CHECK_FAILS(loch_sim_set_fault(device, &fault), INVALID);
    CHECK_FAILS(loch_sim_set_fault(device, &unknown), NOT_FOUND);
    loch_device_release(device);
}

/* A caller compiled against a shorter struct gets what it knows, and nothing behind it is written. */
static void a_shorter_struct_gets_what_it_knows(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    void *address = sim_raw(device, 512);
    loch_sim_stats stats;
    memset(&stats, 0x5a, sizeof stats);
    stats.size = offsetof(loch_sim_stats, physical_peak_bytes);
    CHECK_OK(loch_sim_get_stats(device, &stats));
    assert_int_equal(stats.physical_bytes, 512);
    assert_int_equal(stats.physical_peak_bytes, (size_t)0x5a5a5a5a5a5a5a5a);
    CHECK_OK(loch_raw_free(address));
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(words_that_cannot_be_read_are_refused), SIM_TEST(properties_are_those_of_the_options),
        SIM_TEST(a_switch_takes_capabilities_away),      SIM_TEST(slots_of_what_was_switched_off_refuse),
        SIM_TEST(other_devices_are_not_simulated),       SIM_TEST(structs_without_a_size_are_refused),
        SIM_TEST(a_shorter_struct_gets_what_it_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

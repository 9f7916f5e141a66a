/* SPDX-License-Identifier: MIT */
/* What simulated driver calls cost: the built-in curves, tables from files, and what is wrong in a file. */
#include "device/sim/cost.h"
#include "sim_fixture.h"
#include <unistd.h>

/* A file with this text; its name is good until the next call. */
static const char *file_with(const char *text)
{
    static char path[64];
    strcpy(path, "/tmp/loch-costs-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return path;
}

static void curves_are_straight_between_and_beyond_their_points(void **state)
{
    (void)state;
    lochi_sim_costs costs;
    lochi_sim_costs_default(&costs);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 512), 38600);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 2 * TEST_MIB), 38600);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 17 * TEST_MIB), 38800);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 32 * TEST_MIB), 39000);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 272 * TEST_MIB), 52000);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 512 * TEST_MIB), 65000);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 992 * TEST_MIB), 91000);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_handle_release, 512 * TEST_MIB), 148000);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_event_query, 0), 140);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_event_record, 0), 1300);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_remap, TEST_MIB), 0); /* no such call here */
}

static void a_curve_that_falls_ends_at_nothing(void **state)
{
    (void)state;
    lochi_sim_costs costs;
    lochi_sim_costs_default(&costs);
    const char *path = file_with("map 1MiB:100 2MiB:50\n");
    CHECK_OK(lochi_sim_costs_read(&costs, path));
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_map, 3 * TEST_MIB), 0);
    assert_int_equal(lochi_sim_cost(&costs, LOCH_CALL_map, TEST_GIB), 0);
    unlink(path);
}

static void a_curve_that_rises_stops_at_the_largest_number(void **state)
{
    (void)state;
    lochi_sim_costs costs;
    lochi_sim_costs_default(&costs);
    const char *path = file_with("raw_alloc 1:0 2:18446744073709551615\n");
    CHECK_OK(lochi_sim_costs_read(&costs, path));
    unlink(path);
    assert_true(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 1) == 0);
    assert_true(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 2) == UINT64_MAX);
    assert_true(lochi_sim_cost(&costs, LOCH_CALL_raw_alloc, 4096) == UINT64_MAX);
}

static void tables_from_files_replace_costs(void **state)
{
    (void)state;
    char name[128];
    const char *path = file_with("# a table\n"
                                 "\n"
                                 "raw_alloc 0:10 1000:110   # straight\n"
                                 "\traw_free\t7\r\n"
                                 "event_query 1KiB:5");
    snprintf(name, sizeof name, "sim:1GiB,costs=%s", path);
    loch_device *device = sim_open(name);
    void *address = sim_raw(device, 500);
    assert_int_equal(test_call_ns(device, "raw_alloc"), 60);
    CHECK_OK(loch_raw_free(address));
    assert_int_equal(test_call_ns(device, "raw_free"), 7);
    assert_int_equal(sim_stats(device).modelled_ns, 67);
    assert_int_equal(sim_stats(device).calls, 2);
    loch_device_release(device);

    CHECK_OK(loch_option_set("sim_costs", path)); /* the default for devices that name no file */
    device = sim_open("sim:1GiB");
    CHECK_OK(loch_option_set("sim_costs", NULL));
    address = sim_raw(device, 1000);
    assert_int_equal(test_call_ns(device, "raw_alloc"), 110);
    CHECK_OK(loch_raw_free(address));
    loch_device_release(device);
    unlink(path);
}

static void mistakes_in_files_are_told_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *place;
    } cases[] = {
        {"malloc 5\n", "line 1"},
        {"# fine\nmap\n", "line 2"},
        {"map five\n", "line 1"},
        {"map -5\n", "line 1"},
        {"map 2MiB:\n", "line 1"},
        {"map :5\n", "line 1"},
        {"map 2MiB:5:6\n", "line 1"},
        {"map 2MiB:5 1MiB:6\n", "line 1"},
        {"map 2MiB:5 2MiB:6\n", "line 1"},
        {"map 5 6\n", "line 1"},
        {"map 2MiB:5 6\n", "line 1"},
        {"fill 1\nfill 2\nmap 99999999999999999999\n", "line 3"},
        {"map 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1 13:1 14:1 15:1 16:1 17:1\n", "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = file_with(cases[i].text);
        char name[128];
        loch_device *device;
        snprintf(name, sizeof name, "sim:1GiB,costs=%s", path);
        CHECK_FAILS(loch_device_open(name, &device), INVALID);
        assert_non_null(strstr(loch_error_get()->sentence, path));
        assert_non_null(strstr(loch_error_get()->sentence, cases[i].place));
        unlink(path);
    }
    loch_device *device;
    CHECK_FAILS(loch_device_open("sim:1GiB,costs=/nowhere/at/all", &device), NOT_FOUND);
    CHECK_FAILS_SET(loch_device_open("sim:1GiB,costs=/", &device), TEST_SET(IO));
}

static void a_line_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char text[3000];
    memset(text, ' ', sizeof text);
    memcpy(text, "map", 3);
    text[sizeof text - 1] = '\0';
    const char *path = file_with(text);
    lochi_sim_costs costs;
    CHECK_FAILS(lochi_sim_costs_read(&costs, path), INVALID);
    unlink(path);
}

/* A map is one map and, for itself and each peer, one access. */
static void maps_open_for_everyone(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,id=1"), *peer = sim_open("sim:1GiB,id=2");
    void *address;
    loch_handle *handle;
    const size_t granule = 2 * TEST_MIB;
    CHECK_OK(loch_virtual_reserve(device, granule, 0, &address));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    CHECK_OK(loch_virtual_map(address, handle, &peer, 1));
    assert_int_equal(test_call_ns(device, "map"), 1600);
    assert_int_equal(test_call_ns(device, "access"), 2 * 24400);
    assert_int_equal(test_call_ns(device, "handle_create"), 7800);
    CHECK_OK(loch_virtual_unmap(address));
    assert_int_equal(test_call_ns(device, "unmap"), 14200);
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(address));
    assert_int_equal(sim_stats(device).calls, 8);
    loch_device_release(device);
    loch_device_release(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(curves_are_straight_between_and_beyond_their_points),
        SIM_TEST(a_curve_that_falls_ends_at_nothing),
        SIM_TEST(a_curve_that_rises_stops_at_the_largest_number),
        SIM_TEST(tables_from_files_replace_costs),
        SIM_TEST(mistakes_in_files_are_told_with_their_line),
        SIM_TEST(a_line_that_is_too_long_is_refused),
        SIM_TEST(maps_open_for_everyone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

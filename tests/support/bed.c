/* SPDX-License-Identifier: MIT */
/* The list of devices, the run over it, and the helpers of bed.h. */
#include "bed.h"

#include <loch/opencl.h>

#define BED_TESTS_MAX 96
#define BED_NAME_MAX 200

static const char bed_default_list[] = "cpu;sim:1GiB,backed;sim:64GiB;sim:1GiB,clock=stepped;sim:256MiB,virtual=off";

static test_bed bed_now;
static loch_host_usage bed_usage = {.size = sizeof bed_usage}; /* before the test that runs, like bed_stats */
static loch_sim_stats bed_stats;
static char bed_grown[BED_NAME_MAX]; /* the first test that left the bookkeeping larger, for the report */
static const char *bed_test_name;

static bool bed_sim_is_clean(const test_bed *bed)
{
    loch_sim_stats stats = {.size = sizeof stats};
    if (loch_sim_get_stats(bed->device, &stats) != LOCH_OK) {
        print_error("loch_sim_get_stats: %s\n", loch_error_get()->sentence);
        return false;
    }
    if (stats.violations) {
        loch_sim_violation violation = {0};
        size_t count = 0;
        if (test_sim_violations(bed->device, &violation, 1, &count) == LOCH_OK)
            print_error("the checker found %zu uses without order, the first: %s\n", count, violation.text);
        if (loch_sim_clear_violations(bed->device) != LOCH_OK) print_error("loch_sim_clear_violations failed\n");
        return false;
    }
    if (stats.physical_bytes > bed_stats.physical_bytes || stats.reserved_bytes > bed_stats.reserved_bytes ||
        stats.pinned_bytes > bed_stats.pinned_bytes || stats.handles > bed_stats.handles ||
        stats.mappings > bed_stats.mappings || stats.events > bed_stats.events) {
        print_error("left on the device: %zu physical, %zu reserved, %zu pinned bytes, %zu handles, %zu mappings, "
                    "%zu events\n",
                    stats.physical_bytes, stats.reserved_bytes, stats.pinned_bytes, stats.handles, stats.mappings,
                    stats.events);
        return false;
    }
    return true;
}

static int bed_before(void **state)
{
    bed_test_name = *state;
    *state = &bed_now;
    CHECK_OK(loch_host_get_usage(&bed_usage));
    bed_stats = (loch_sim_stats){.size = sizeof bed_stats};
    return bed_now.is_sim && loch_sim_get_stats(bed_now.device, &bed_stats) != LOCH_OK ? -1 : 0;
}

static int bed_after(void **state)
{
    const test_bed *bed = *state;
    loch_host_usage usage = {.size = sizeof usage};
    CHECK_OK(loch_host_get_usage(&usage));
    if (usage.blocks > bed_usage.blocks && !bed_grown[0]) snprintf(bed_grown, sizeof bed_grown, "%s", bed_test_name);
    return bed->is_sim && !bed_sim_is_clean(bed) ? -1 : 0;
}

static bool bed_is_required(const char *name)
{
    const bool is_opencl = strncmp(name, "opencl", 6) == 0;
    const char *require = getenv(is_opencl ? "LOCH_REQUIRE_OPENCL" : "LOCH_REQUIRE_GPU");
    return require && strcmp(require, "1") == 0 && (is_opencl || strncmp(name, "cuda", 4) == 0);
}

static bool bed_open(test_bed *bed, const char *name)
{
    *bed = (test_bed){.name = name};
    loch_status status = loch_device_open(name, &bed->device);
    if (status != LOCH_OK) {
        printf("device %s: %s: %s: %s\n", name, bed_is_required(name) ? "failed" : "skipped", loch_status_name(status),
               loch_error_get()->sentence);
        return false;
    }
    bed->properties.size = sizeof bed->properties;
    if (loch_device_get_properties(bed->device, &bed->properties) != LOCH_OK) {
        printf("device %s: no properties: %s\n", name, loch_error_get()->sentence);
        exit(1);
    }
    bed->is_sim = strcmp(bed->properties.driver, "sim") == 0;
    bed->has_data = !bed->is_sim || !strstr(name, ",unbacked");
    bed->is_stepped = bed->is_sim && strstr(name, "clock=stepped") != NULL;
    return true;
}

/* Runs the group on one device; adds to the failures; false when the device is not there. */
static bool bed_run_device(const char *name, const struct CMUnitTest *tests, size_t count, int *failures)
{
    static char names[BED_TESTS_MAX][BED_NAME_MAX];
    struct CMUnitTest group[BED_TESTS_MAX];
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};

    CHECK_OK(loch_host_get_usage(&before));
    if (!bed_open(&bed_now, name)) {
        *failures += bed_is_required(name);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", name, tests[i].name);
        group[i] = tests[i];
        group[i].name = names[i];
        group[i].initial_state = names[i];
        group[i].setup_func = bed_before;
        group[i].teardown_func = bed_after;
    }
    bed_grown[0] = '\0';
    *failures += _cmocka_run_group_tests(name, group, count, NULL, NULL);
    loch_device_release(bed_now.device);
    bed_now.device = NULL;
    CHECK_OK(loch_host_get_usage(&after));
    if (after.blocks != before.blocks || after.bytes != before.bytes) {
        printf("device %s: the bookkeeping holds %zu bytes in %zu pieces, before it were %zu in %zu; first grown by "
               "%s\n",
               name, after.bytes, after.blocks, before.bytes, before.blocks, bed_grown[0] ? bed_grown : "no test");
        *failures += 1;
    }
    return true;
}

static int bed_run_list(const char *devices, const struct CMUnitTest *tests, size_t count)
{
    static char list[4096];
    int failures = 0;
    size_t run = 0;

    if (count > BED_TESTS_MAX) {
        printf("a group has %zu tests, more than %d\n", count, BED_TESTS_MAX);
        return 1;
    }
    snprintf(list, sizeof list, "%s", devices);
    if (strstr(list, "opencl")) CHECK_OK(loch_opencl_register()); /* a driver from outside */
    char *rest = NULL;
    for (char *name = strtok_r(list, ";", &rest); name; name = strtok_r(NULL, ";", &rest))
        run += bed_run_device(name, tests, count, &failures);
    fflush(stdout);
    if (failures) return failures;
    if (run == 0) {
        printf("skipped: no device of the list could be opened\n");
        return TEST_SKIPPED;
    }
    return 0;
}

int test_bed_run(const struct CMUnitTest *tests, size_t count)
{
    const char *wanted = getenv("LOCH_TEST_DEVICES");
    return bed_run_list(wanted && *wanted ? wanted : bed_default_list, tests, count);
}

int test_bed_run_also(const char *devices, const struct CMUnitTest *tests, size_t count)
{
    const char *wanted = getenv("LOCH_TEST_DEVICES");
    return wanted && *wanted ? TEST_SKIPPED : bed_run_list(devices, tests, count);
}

bool test_bed_can(const test_bed *bed, uint32_t capabilities)
{
    return (bed->properties.capabilities & capabilities) == capabilities;
}

loch_device *test_bed_open_other(const test_bed *bed, bool same_driver)
{
    char name[LOCH_DEVICE_NAME_MAX];
    loch_device *other = NULL;
    bool has_numbers = strcmp(bed->properties.driver, "cuda") == 0 || strcmp(bed->properties.driver, "opencl") == 0;

    if (!same_driver)
        snprintf(name, sizeof name, "%s", bed->is_sim ? "cpu" : "sim:128MiB,id=9");
    else if (bed->is_sim)
        snprintf(name, sizeof name, "sim:128MiB,%s,id=9", bed->has_data ? "backed" : "unbacked");
    else if (has_numbers)
        snprintf(name, sizeof name, "%s:%d", bed->properties.driver, bed->properties.index + 1);
    else
        return NULL;
    loch_status status = loch_device_open(name, &other);
    if (status == LOCH_E_NOT_FOUND && has_numbers && same_driver) return NULL;
    CHECK_OK(status);
    return other;
}

void test_bed_put(const test_bed *bed, void *to, size_t bytes, uint64_t seed)
{
    (void)bed;
    char *host = malloc(bytes + 1);
    assert_non_null(host);
    test_pattern_write(host, bytes, seed);
    CHECK_OK(loch_copy(to, host, bytes));
    free(host);
}

void test_bed_expect(const test_bed *bed, const void *from, size_t bytes, uint64_t seed)
{
    char *host = malloc(bytes + 1);
    assert_non_null(host);
    memset(host, 0x5c, bytes + 1);
    CHECK_OK(loch_copy(host, from, bytes));
    size_t differs = bed->has_data ? test_pattern_differs(host, bytes, seed) : bytes;
    int behind = (unsigned char)host[bytes];
    free(host);
    if (differs != bytes) fail_msg("byte %zu of %zu differs", differs, bytes);
    assert_int_equal(behind, 0x5c);
}

void test_bed_expect_byte(const test_bed *bed, const void *from, size_t bytes, unsigned char value)
{
    unsigned char *host = malloc(bytes + 1);
    assert_non_null(host);
    memset(host, ~value, bytes + 1);
    CHECK_OK(loch_copy(host, from, bytes));
    size_t i = 0;
    while (bed->has_data && i < bytes && host[i] == value)
        i++;
    free(host);
    if (bed->has_data && i != bytes) fail_msg("byte %zu of %zu is not %u", i, bytes, value);
}

void *test_bed_alloc(const test_bed *bed, loch_memory_kind kind, size_t bytes)
{
    void *address = TEST_UNTOUCHED;
    CHECK_OK(loch_raw_alloc(bed->device, kind, bytes, 0, &address));
    assert_non_null(address);
    return address;
}

char *test_bed_reserve(const test_bed *bed, size_t granules)
{
    void *address = TEST_UNTOUCHED;
    CHECK_OK(loch_virtual_reserve(bed->device, granules * bed->properties.granule_bytes, 0, &address));
    assert_non_null(address);
    return address;
}

loch_handle *test_bed_handle(const test_bed *bed, size_t granules)
{
    loch_handle *handle = TEST_UNTOUCHED;
    CHECK_OK(loch_handle_create(bed->device, granules * bed->properties.granule_bytes, NULL, &handle));
    assert_non_null(handle);
    return handle;
}

loch_handle *test_bed_map(const test_bed *bed, void *address, size_t granules)
{
    loch_handle *handle = test_bed_handle(bed, granules);
    CHECK_OK(loch_virtual_map(address, handle, NULL, 0));
    return handle;
}

/* SPDX-License-Identifier: MIT */
/* Drivers from outside: a table with only the needed slots works, its empty slots get their defaults, and bad tables
 * and false claims are refused. Registration is for the life of the process, so every driver here has its own name. */
#include "test.h"

/* --- the smallest driver: memory of the process, work done at once --- */

typedef struct mini {
    char arguments[64];
} mini;

static int mini_opened, mini_closed;
static uint32_t mini_capabilities;
static size_t mini_granule;

static loch_status mini_open(const char *arguments, void **self)
{
    if (strcmp(arguments, "refuse") == 0)
        return loch_error_set(LOCH_E_DRIVER, "mini", 42, "mini refuses %s", arguments);
    mini *m = calloc(1, sizeof *m);
    if (!m) return loch_error_set(LOCH_E_HOST_MEMORY, "mini", 0, "no memory");
    snprintf(m->arguments, sizeof m->arguments, "%s", arguments);
    mini_opened++;
    *self = m;
    return LOCH_OK;
}

static void mini_close(void *self)
{
    mini_closed++;
    free(self);
}

static loch_status mini_get_properties(void *self, loch_device_properties *out)
{
    const mini *m = self;
    snprintf(out->model, sizeof out->model, "mini <%s>", m->arguments);
    out->capabilities = mini_capabilities;
    out->granule_bytes = mini_granule;
    out->total_bytes = TEST_GIB;
    out->alignment_bytes = 16;
    out->numa_node = -1;
    return LOCH_OK;
}

static loch_status mini_memory_info(void *self, loch_memory_info *out)
{
    (void)self;
    *out = (loch_memory_info){.total_bytes = TEST_GIB, .free_bytes = TEST_GIB / 2};
    return LOCH_OK;
}

static loch_status mini_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)self;
    if (posix_memalign(out, alignment < 16 ? 16 : alignment, bytes) == 0) return LOCH_OK;
    return loch_error_set(LOCH_E_DEVICE_MEMORY, "mini", 0, "no memory for %zu bytes", bytes);
}

static loch_status mini_raw_free(void *self, void *address, size_t bytes)
{
    (void)self;
    memset(address, 0xdd, bytes);
    free(address);
    return LOCH_OK;
}

static loch_status mini_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                             void *stream)
{
    (void)self, (void)direction, (void)peer, (void)stream;
    memmove(to, from, bytes);
    return LOCH_OK;
}

static loch_status mini_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    (void)self, (void)stream;
    for (size_t i = 0; i < bytes; i += pattern_bytes)
        memcpy((char *)to + i, &pattern, pattern_bytes);
    return LOCH_OK;
}

static const loch_driver mini_table = {
    .size = sizeof mini_table,
    .name = "mini",
    .summary = "the smallest driver",
    .open = mini_open,
    .close = mini_close,
    .get_properties = mini_get_properties,
    .memory_info = mini_memory_info,
    .raw_alloc = mini_raw_alloc,
    .raw_free = mini_raw_free,
    .copy = mini_copy,
    .fill = mini_fill,
};

static loch_device *open_mini(const char *name)
{
    loch_device *device = TEST_UNTOUCHED;
    CHECK_OK(loch_device_open(name, &device));
    assert_non_null(device);
    return device;
}

/* --- registration --- */

static void built_in_drivers_come_first(void **state)
{
    (void)state;
    const char *names[] = {"cpu", "cuda", "sim"};
    for (size_t i = 0; i < 3; i++) {
        const loch_driver *driver = loch_driver_find(names[i]);
        assert_non_null(driver);
        assert_string_equal(driver->name, names[i]);
        assert_true(driver->summary[0]);
    }
    assert_string_equal(test_driver_at(0)->name, "cpu");
    size_t count = 0;
    while (test_driver_at(count))
        count++;
    assert_int_equal(count, 3);
    CHECK_OK(loch_driver_register(&mini_table));
    assert_string_equal(test_driver_at(3)->name, "mini");
    assert_null(test_driver_at(4));
    assert_null(test_driver_at(SIZE_MAX));
    assert_null(loch_driver_find("nosuchdriver"));
    assert_null(loch_driver_find(""));
    assert_null(loch_driver_find(NULL));
}

static void slots_are_filled(void **state)
{
    (void)state;
    const loch_driver *driver = loch_driver_find("mini");
    assert_non_null(driver);
    assert_ptr_not_equal(driver, &mini_table);
    const size_t first = offsetof(loch_driver, enumerate);
    for (size_t at = first; at < sizeof *driver; at += sizeof(void (*)(void))) {
        void (*slot)(void);
        memcpy(&slot, (const char *)driver + at, sizeof slot);
        if (!slot) fail_msg("slot at byte %zu is empty", at);
    }
    assert_true(driver->raw_alloc == mini_raw_alloc && driver->fill == mini_fill);
}

static void names_are_checked(void **state)
{
    (void)state;
    const char *bad[] = {NULL, "", "has space", "a:b", "a,b", "sixteenletterss0", "naïve", "dash-ed", "a/b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        loch_driver table = mini_table;
        table.name = bad[i];
        CHECK_FAILS(loch_driver_register(&table), INVALID);
    }
    const char *taken[] = {"cpu", "cuda", "sim", "mini"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        loch_driver table = mini_table;
        table.name = taken[i];
        CHECK_FAILS(loch_driver_register(&table), EXISTS);
        assert_non_null(strstr(loch_error_get()->sentence, taken[i]));
    }
    CHECK_FAILS(loch_driver_register(NULL), INVALID);
    loch_driver table = mini_table;
    table.name = "fifteenletters0";
    CHECK_OK(loch_driver_register(&table));
    loch_device_release(open_mini("fifteenletters0:x"));
}

static void needed_slots_are_needed(void **state)
{
    (void)state;
    const size_t needed[] = {
        offsetof(loch_driver, open),        offsetof(loch_driver, close),     offsetof(loch_driver, get_properties),
        offsetof(loch_driver, memory_info), offsetof(loch_driver, raw_alloc), offsetof(loch_driver, raw_free),
        offsetof(loch_driver, copy),        offsetof(loch_driver, fill),
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        loch_driver table = mini_table;
        table.name = "lacking";
        memset((char *)&table + needed[i], 0, sizeof(void (*)(void)));
        CHECK_FAILS(loch_driver_register(&table), INVALID);
    }
    assert_null(loch_driver_find("lacking"));
}

static void poison(void)
{
    abort();
}

static loch_status mini_enter(void *self, void **before)
{
    (void)self;
    *before = NULL;
    return LOCH_OK;
}

/* One slot without the other would leave a thread with the wrong device. */
static void enter_and_leave_come_as_a_pair(void **state)
{
    (void)state;
    loch_driver table = mini_table;
    table.name = "half";
    table.enter = mini_enter;
    CHECK_FAILS(loch_driver_register(&table), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "leave"));
    assert_null(loch_driver_find("half"));
    const loch_driver *found = loch_driver_find("mini"); /* has neither: entering does nothing */
    void *before = TEST_UNTOUCHED;
    CHECK_OK(found->enter(NULL, &before));
    assert_null(before);
    CHECK_OK(found->leave(NULL, before));
}

/* A driver compiled against an older header has a shorter table; what lies behind it is not looked at. */
static void older_tables_are_shorter(void **state)
{
    (void)state;
    loch_driver table = mini_table;
    void (*slot)(void) = poison;
    const size_t enough = offsetof(loch_driver, fill) + sizeof table.fill;
    for (size_t at = enough; at < sizeof table; at += sizeof slot)
        memcpy((char *)&table + at, &slot, sizeof slot);
    table.name = "older";
    table.size = enough - 1;
    CHECK_FAILS(loch_driver_register(&table), INVALID);
    table.size = 0;
    CHECK_FAILS(loch_driver_register(&table), INVALID);
    table.size = enough;
    CHECK_OK(loch_driver_register(&table));

    loch_device *device = open_mini("older");
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_stream_sync(stream));
    loch_stream_close(stream);
    CHECK_OK(loch_device_sync(device));
    loch_device_release(device);

    /* and one compiled against a newer header a longer one */
    struct {
        loch_driver driver;
        void (*newer[4])(void);
    } longer = {.driver = mini_table, .newer = {poison, poison, poison, poison}};
    longer.driver.size = sizeof longer;
    longer.driver.name = "newer";
    CHECK_OK(loch_driver_register(&longer.driver));
    loch_device_release(open_mini("newer"));
}

/* --- opening --- */

static void arguments_are_what_is_behind_the_colon(void **state)
{
    (void)state;
    const struct {
        const char *name, *model;
    } cases[] = {{"mini", "mini <>"}, {"mini:0", "mini <0>"}, {"mini:a,b=c:d", "mini <a,b=c:d>"}};
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    mini_opened = mini_closed = 0;
    for (size_t i = 0; i < 3; i++) {
        loch_device *device = open_mini(cases[i].name), *again = open_mini(cases[i].name);
        loch_device_properties properties = {.size = sizeof properties};
        assert_ptr_equal(device, again);
        CHECK_OK(loch_device_get_properties(device, &properties));
        assert_string_equal(properties.model, cases[i].model);
        assert_string_equal(properties.driver, "mini");
        loch_device_release(again);
        assert_int_equal(mini_closed, (int)i);
        loch_device_release(device);
        assert_int_equal(mini_opened, (int)i + 1);
        assert_int_equal(mini_closed, (int)i + 1);
    }
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

static void the_drivers_refusal_is_passed_on(void **state)
{
    (void)state;
    loch_device *device = TEST_UNTOUCHED;
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    mini_opened = mini_closed = 0;
    CHECK_FAILS(loch_device_open("mini:refuse", &device), DRIVER);
    assert_null(device);
    assert_string_equal(loch_error_get()->driver, "mini");
    assert_int_equal(loch_error_get()->driver_code, 42);
    assert_string_equal(loch_error_get()->sentence, "mini refuses refuse");
    assert_int_equal(mini_closed, 0);
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

static loch_status visit_three(loch_device_visitor *visitor, void *user)
{
    const char *arguments[] = {"", "0", "east"};
    for (size_t i = 0; i < 3; i++) {
        loch_status status = visitor(arguments[i], user);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}

static loch_status collect(const char *name, void *user)
{
    char *text = user;
    if (strncmp(name, "listed", 6) != 0) return LOCH_OK;
    strcat(text, name);
    strcat(text, " ");
    return LOCH_OK;
}

static void enumeration_joins_driver_and_argument(void **state)
{
    (void)state;
    char text[256] = "";
    loch_driver table = mini_table;
    table.name = "listed";
    table.enumerate = visit_three;
    CHECK_OK(loch_driver_register(&table));
    CHECK_OK(loch_device_walk(collect, text));
    assert_string_equal(text, "listed listed:0 listed:east ");
    loch_device_release(open_mini("listed:east"));
}

/* --- defaults --- */

static void memory_of_the_smallest_driver(void **state)
{
    (void)state;
    loch_device *device = open_mini("mini");
    char host[1000], back[1000];
    void *block = NULL;
    loch_memory_info info = {.size = sizeof info};
    loch_address_info address = {.size = sizeof address};
    CHECK_OK(loch_device_calculate_memory(device, &info));
    assert_int_equal(info.free_bytes, TEST_GIB / 2);
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 1000, 256, &block));
    assert_int_equal((uintptr_t)block % 256, 0);
    test_pattern_write(host, 1000, 1);
    CHECK_OK(loch_copy(block, host, 1000));
    CHECK_OK(loch_copy((char *)block + 10, block, 900)); /* overlapping, on a driver that need not allow it */
    CHECK_OK(loch_copy(back, (char *)block + 10, 900));
    assert_memory_equal(back, host, 900);
    CHECK_OK(loch_fill(block, 1000, "abcd", 4));
    CHECK_OK(loch_copy(back, block, 1000));
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(back[i], "abcd"[i % 4]);
    CHECK_OK(loch_address_query((char *)block + 999, &address));
    assert_ptr_equal(address.device, device);
    assert_ptr_equal(address.base, block);
    CHECK_FAILS(loch_copy(back, (char *)block + 1, 1000), OUT_OF_RANGE);

    /* the block is the last to hold the device */
    mini_closed = 0;
    loch_device_release(device);
    assert_int_equal(mini_closed, 0);
    CHECK_OK(loch_raw_free(block));
    assert_int_equal(mini_closed, 1);
}

static void what_it_has_not_is_unsupported(void **state)
{
    (void)state;
    loch_device *device = open_mini("mini"), *peer = open_mini("mini:2");
    char buffer[4096];
    void *out = TEST_UNTOUCHED;
    loch_handle *handle = TEST_UNTOUCHED;
    loch_stream *stream = TEST_UNTOUCHED;
    int descriptor = 0;
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 100, 0, &out), UNSUPPORTED);
    assert_null(out);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_MANAGED, 100, 0, &out), UNSUPPORTED);
    CHECK_FAILS(loch_raw_register(device, buffer, sizeof buffer), UNSUPPORTED);
    CHECK_FAILS(loch_virtual_reserve(device, 2 * TEST_MIB, 0, &out), UNSUPPORTED);
    CHECK_FAILS(loch_handle_create(device, 2 * TEST_MIB, NULL, &handle), UNSUPPORTED);
    assert_null(handle);
    CHECK_FAILS(loch_handle_import(device, LOCH_SHARE_FD, &descriptor, 2 * TEST_MIB, &handle), UNSUPPORTED);
    CHECK_FAILS(loch_device_enable_peer(device, peer), UNSUPPORTED);
    CHECK_FAILS(loch_stream_wrap(device, &descriptor, &stream), UNSUPPORTED);
    assert_null(stream);
    loch_device_release(device);
    loch_device_release(peer);
}

static void write_one(void *user)
{
    *(int *)user = 1;
}

static void without_stream_slots_work_is_done_at_once(void **state)
{
    (void)state;
    loch_device *device = open_mini("mini"), *peer = open_mini("mini:2");
    loch_stream *stream = NULL, *thread = NULL;
    loch_event *event = NULL, *timed = TEST_UNTOUCHED;
    loch_capture_info capture = {.size = sizeof capture, .active = 5};
    int called = 0;
    void *block = NULL, *other = NULL;
    char back[100];

    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block));
    CHECK_OK(loch_raw_alloc(peer, LOCH_MEMORY_DEVICE, 100, 0, &other));
    CHECK_OK(loch_stream_call(stream, write_one, &called));
    assert_int_equal(called, 1);
    CHECK_OK(loch_fill_on(block, 100, "z", 1, stream));
    CHECK_OK(loch_event_record(event, stream));
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_event_sync(event));
    CHECK_OK(loch_stream_wait(loch_stream_get_default(peer), event));
    CHECK_OK(loch_copy_on(other, block, 100, stream));
    CHECK_OK(loch_copy(back, other, 100));
    for (int i = 0; i < 100; i++)
        assert_int_equal(back[i], 'z');
    CHECK_OK(loch_stream_query(stream));
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_stream_query_capture(stream, &capture));
    assert_int_equal(capture.active, 0);
    CHECK_OK(loch_stream_require_thread_default(device, &thread));
    assert_ptr_equal(thread, loch_stream_get_default(device));
    CHECK_FAILS(loch_event_create(device, LOCH_EVENT_TIMED, &timed), UNSUPPORTED); /* it does not claim to measure */
    assert_null(timed);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(other));
    loch_event_destroy(event);
    loch_stream_close(stream);
    loch_device_release(device);
    loch_device_release(peer);
}

/* --- false claims --- */

static void claims_without_slots_are_refused(void **state)
{
    (void)state;
    const uint32_t claims[] = {
        LOCH_CAN_PINNED,       LOCH_CAN_REGISTER, LOCH_CAN_MANAGED, LOCH_CAN_VIRTUAL, LOCH_CAN_VIRTUAL | LOCH_CAN_REMAP,
        LOCH_CAN_ORDERED,      LOCH_CAN_ASYNC,    LOCH_CAN_CAPTURE, LOCH_CAN_PEER,    LOCH_CAN_SHARE_FD,
        LOCH_CAN_SHARE_FABRIC, LOCH_CAN_ALIAS};
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    mini_granule = 2 * TEST_MIB;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        loch_device *device = TEST_UNTOUCHED;
        mini_capabilities = claims[i];
        mini_opened = mini_closed = 0;
        CHECK_FAILS_SET(loch_device_open("mini:claims", &device),
                        TEST_SET(DRIVER) | TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
        assert_null(device);
        assert_int_equal(mini_opened, 1);
        assert_int_equal(mini_closed, 1);
    }
    mini_capabilities = LOCH_CAN_HOST_ACCESS | LOCH_CAN_HUGE_PAGES;
    mini_granule = 0;
    loch_device_release(open_mini("mini:claims"));
    mini_capabilities = 0;
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

/* Half a group counts as missing. */
static void claims_with_half_the_slots_are_refused(void **state)
{
    (void)state;
    loch_driver table = mini_table;
    loch_device *device = TEST_UNTOUCHED;
    table.name = "half";
    table.pinned_alloc = mini_raw_alloc;
    loch_status status = loch_driver_register(&table);
    if (status == LOCH_OK) {
        mini_capabilities = LOCH_CAN_PINNED;
        CHECK_FAILS_SET(loch_device_open("half", &device),
                        TEST_SET(DRIVER) | TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
        assert_null(device);
    } else {
        assert_int_equal(status, LOCH_E_INVALID);
    }
    table.name = "whole";
    table.pinned_free = mini_raw_free;
    CHECK_OK(loch_driver_register(&table));
    mini_capabilities = LOCH_CAN_PINNED;
    device = open_mini("whole");
    mini_capabilities = 0;
    void *block = NULL;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 100, 0, &block));
    CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
}

static loch_status query_nothing(void *self, void *stream)
{
    (void)self, (void)stream;
    return LOCH_OK;
}

static void half_the_stream_slots_are_refused(void **state)
{
    (void)state;
    loch_driver table = mini_table;
    table.name = "halfstreams";
    table.stream_query = query_nothing;
    CHECK_FAILS(loch_driver_register(&table), INVALID);
    assert_null(loch_driver_find("halfstreams"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_drivers_come_first),
        cmocka_unit_test(slots_are_filled),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(needed_slots_are_needed),
        cmocka_unit_test(enter_and_leave_come_as_a_pair),
        cmocka_unit_test(older_tables_are_shorter),
        cmocka_unit_test(arguments_are_what_is_behind_the_colon),
        cmocka_unit_test(the_drivers_refusal_is_passed_on),
        cmocka_unit_test(enumeration_joins_driver_and_argument),
        cmocka_unit_test(memory_of_the_smallest_driver),
        cmocka_unit_test(what_it_has_not_is_unsupported),
        cmocka_unit_test(without_stream_slots_work_is_done_at_once),
        cmocka_unit_test(claims_without_slots_are_refused),
        cmocka_unit_test(claims_with_half_the_slots_are_refused),
        cmocka_unit_test(half_the_stream_slots_are_refused),
    };
    return cmocka_run_group_tests_name("drivers", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* The shapes that the public interface has everywhere: walks, prints, structs that say their size, and the short
 * forms. */
#include "sim_fixture.h"
#include <sys/wait.h>
#include <unistd.h>

/* --- walks --- */

static size_t visits;

static loch_status stop(void)
{
    visits++;
    return LOCH_E_CANCELLED;
}

static loch_status stop_at_option(const loch_option *option, void *user)
{
    assert_non_null(option->name);
    assert_ptr_equal(user, &visits);
    return stop();
}

static loch_status stop_at_driver(const loch_driver *driver, void *user)
{
    assert_string_equal(driver->name, "cpu");
    assert_ptr_equal(user, &visits);
    return stop();
}

static loch_status stop_at_tag(loch_tag tag, const char *name, void *user)
{
    assert_string_equal(loch_tag_name(tag), name);
    assert_ptr_equal(user, &visits);
    return stop();
}

static loch_status stop_at_call(const loch_call_count *count, void *user)
{
    assert_non_null(count->name);
    assert_ptr_equal(user, &visits);
    return stop();
}

static loch_status stop_at_violation(const loch_sim_violation *violation, void *user)
{
    assert_true(*violation->text);
    assert_ptr_equal(user, &visits);
    return stop();
}

static loch_status stop_at_record(const loch_tracking_record *record, void *user)
{
    assert_int_equal(record->bytes, 100);
    assert_ptr_equal(user, &visits);
    return stop();
}

static loch_status stop_at_block(const loch_block *block, void *user)
{
    assert_int_equal(block->size, sizeof *block);
    assert_ptr_equal(user, &visits);
    return stop();
}

static loch_status stop_at_sum(const loch_census_tag *sum, void *user)
{
    assert_int_equal(sum->blocks, 2);
    assert_ptr_equal(user, &visits);
    return stop();
}

#define EXPECT_STOPPED(call)                                                                                           \
    do {                                                                                                               \
        visits = 0;                                                                                                    \
        CHECK_STATUS(call, LOCH_E_CANCELLED);                                                                          \
        assert_int_equal(visits, 1);                                                                                   \
    } while (0)

static void a_visitor_ends_its_walk(void **state)
{
    (void)state;
    loch_tag tag;
    void *a, *b;
    loch_stream *other;
    loch_allocator *pool, *tracking;
    loch_census *census;
    const loch_tracking_options options = {.size = sizeof options, .records = 8};
    loch_device *device = sim_open("sim:1GiB");
    CHECK_OK(loch_tag_create("shapes", &tag));
    CHECK_OK(loch_stream_create(device, NULL, &other));
    CHECK_OK(loch_device_acquire_default(device, &pool));
    CHECK_OK(loch_tracking_create(pool, NULL, &options, &tracking));
    CHECK_OK(loch_alloc(tracking, 100, &a));
    CHECK_OK(loch_alloc(tracking, 100, &b));
    CHECK_OK(sim_writes(loch_stream_get_default(device), a, 16));
    CHECK_OK(sim_writes(other, a, 16)); /* without order between the two */
    CHECK_OK(loch_census_create(tracking, &census));

    EXPECT_STOPPED(loch_option_walk(stop_at_option, &visits));
    EXPECT_STOPPED(loch_driver_walk(stop_at_driver, &visits));
    EXPECT_STOPPED(loch_tag_walk(stop_at_tag, &visits));
    EXPECT_STOPPED(loch_device_walk_calls(device, stop_at_call, &visits));
    EXPECT_STOPPED(loch_sim_walk_violations(device, stop_at_violation, &visits));
    EXPECT_STOPPED(loch_tracking_walk(tracking, stop_at_record, &visits));
    EXPECT_STOPPED(loch_allocator_walk(pool, stop_at_block, &visits));
    EXPECT_STOPPED(loch_allocator_walk(tracking, stop_at_block, &visits));
    EXPECT_STOPPED(loch_census_walk(census, NULL, stop_at_block, &visits));
    EXPECT_STOPPED(loch_census_walk_tags(census, NULL, stop_at_sum, &visits));
    CHECK_FAILS(loch_option_walk(NULL, NULL), INVALID);
    CHECK_FAILS(loch_driver_walk(NULL, NULL), INVALID);
    CHECK_FAILS(loch_tag_walk(NULL, NULL), INVALID);
    CHECK_FAILS(loch_device_walk(NULL, NULL), INVALID);
    CHECK_FAILS(loch_device_walk_calls(device, NULL, NULL), INVALID);
    CHECK_FAILS(loch_device_walk_calls(NULL, stop_at_call, NULL), INVALID);
    CHECK_FAILS(loch_tracking_walk(pool, stop_at_record, NULL), INVALID);
    CHECK_FAILS(loch_census_walk(NULL, census, stop_at_block, NULL), INVALID);
    CHECK_FAILS(loch_census_walk_tags(census, NULL, NULL, NULL), INVALID);

    loch_census_destroy(census);
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_free(tracking, a));
    CHECK_OK(loch_free(tracking, b));
    loch_allocator_release(tracking);
    loch_allocator_release(pool);
    CHECK_OK(loch_device_set_allocator(device, NULL));
    loch_stream_close(other);
    loch_device_release(device);
}

static loch_status note_record(const loch_tracking_record *record, void *user)
{
    int64_t *last = user;
    assert_true(record->bytes > *last); /* in order, none twice */
    *last = record->bytes;
    visits++;
    return LOCH_OK;
}

/* The visitor itself overwrites what it has not seen yet. */
typedef struct overwriter {
    loch_allocator *tracking;
    void **blocks;
    size_t count;
    int64_t last;
} overwriter;

static loch_status overwrite(const loch_tracking_record *record, void *user)
{
    overwriter *o = user;
    for (int i = 0; i < 2; i++, o->count++)
        CHECK_OK(loch_alloc(o->tracking, 1000 + o->count, &o->blocks[o->count]));
    return note_record(record, &o->last);
}

static void records_that_are_overwritten_are_left_out(void **state)
{
    (void)state;
    void *blocks[32];
    loch_allocator *tracking, *direct;
    const loch_tracking_options options = {.size = sizeof options, .records = 4};
    loch_device *device = sim_open("sim:1GiB");
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_OK(loch_tracking_create(direct, NULL, &options, &tracking));
    overwriter o = {tracking, blocks, 0, 0};
    for (; o.count < 4; o.count++)
        CHECK_OK(loch_alloc(tracking, 1000 + o.count, &blocks[o.count]));
    visits = 0;
    CHECK_OK(loch_tracking_walk(tracking, overwrite, &o));
    assert_int_equal(visits, 2); /* each visit overwrites two: 1001 and 1003 are not seen */
    assert_int_equal(o.last, 1002);
    while (o.count)
        CHECK_OK(loch_free(tracking, blocks[--o.count]));
    loch_allocator_release(tracking);
    loch_allocator_release(direct);
    loch_device_release(device);
}

/* --- prints --- */

static void prints_refuse_what_cannot_be_printed(void **state)
{
    (void)state;
    char text[8] = "before";
    size_t length = 7;
    const loch_stats stats = {.size = sizeof stats};
    const loch_profile_report report = {.size = sizeof report};
    CHECK_FAILS(loch_stats_print(NULL, LOCH_FORMAT_TEXT, text, sizeof text, &length), INVALID);
    assert_string_equal(text, "");
    assert_int_equal(length, 0);
    CHECK_FAILS(loch_stats_print(&stats, (loch_format)2, text, sizeof text, &length), INVALID);
    CHECK_FAILS(loch_stats_print(&stats, LOCH_FORMAT_JSON, NULL, 1, &length), INVALID);
    CHECK_FAILS(loch_profile_print(NULL, LOCH_FORMAT_TEXT, text, sizeof text, NULL), INVALID);
    CHECK_FAILS(loch_profile_print(&report, (loch_format)-1, text, sizeof text, NULL), INVALID);
    CHECK_FAILS(loch_census_print(NULL, NULL, LOCH_FORMAT_TEXT, text, sizeof text, NULL), INVALID);
    CHECK_FAILS(loch_pool_print(NULL, text, sizeof text, NULL), INVALID);
    CHECK_OK(loch_stats_print(&stats, LOCH_FORMAT_TEXT, text, sizeof text, &length));
    assert_string_equal(text, "fragmen"); /* what fits, and the length of the whole */
    assert_int_equal(length, strlen("fragmentation: 0.000\n"));
    CHECK_OK(loch_stats_print(&stats, LOCH_FORMAT_TEXT, NULL, 0, NULL));
}

/* --- structs that say their size --- */

static void results_reach_as_far_as_the_caller_s_struct(void **state)
{
    (void)state;
    void *block;
    loch_device *device = sim_open("sim:1GiB");
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_OK(loch_alloc(direct, 100, &block));

    loch_block found = {.size = offsetof(loch_block, allocated_bytes), .allocated_bytes = 77};
    CHECK_OK(loch_allocator_find(direct, block, &found));
    assert_int_equal(found.requested_bytes, 100);
    assert_int_equal(found.allocated_bytes, 77); /* beyond what the caller has */
    assert_int_equal(found.size, offsetof(loch_block, allocated_bytes));
    found.size = 0;
    CHECK_FAILS(loch_allocator_find(direct, block, &found), INVALID);

    loch_memory_info memory = {.size = offsetof(loch_memory_info, free_bytes), .free_bytes = 77};
    CHECK_OK(loch_device_calculate_memory(device, &memory));
    assert_int_equal(memory.total_bytes, TEST_GIB);
    assert_int_equal(memory.free_bytes, 77);
    memory.size = sizeof memory.size - 1;
    CHECK_FAILS(loch_device_calculate_memory(device, &memory), INVALID);

    loch_capture_info capture = {.size = offsetof(loch_capture_info, id), .active = 77, .id = 77};
    CHECK_OK(loch_stream_query_capture(loch_stream_get_default(device), &capture));
    assert_true(capture.active == 0 && capture.id == 77);
    capture.size = 0;
    CHECK_FAILS(loch_stream_query_capture(loch_stream_get_default(device), &capture), INVALID);

    loch_address_info info = {.size = offsetof(loch_address_info, bytes), .bytes = 77};
    CHECK_OK(loch_address_query(block, &info));
    assert_true(info.device == device && info.bytes == 77);
    info.size = 0;
    CHECK_FAILS(loch_address_query(block, &info), INVALID);

    loch_host_usage usage = {.size = offsetof(loch_host_usage, blocks), .blocks = 77};
    CHECK_OK(loch_host_get_usage(&usage));
    assert_true(usage.bytes > 0 && usage.blocks == 77);
    usage.size = 0;
    CHECK_FAILS(loch_host_get_usage(&usage), INVALID);
    CHECK_FAILS(loch_host_get_usage(NULL), INVALID);

    CHECK_OK(loch_free(direct, block));
    loch_allocator_release(direct);
    loch_device_release(device);
}

/* --- short forms --- */

static void the_default_of_a_device_takes_one_call(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    loch_allocator *one, *other;
    CHECK_OK(loch_device_acquire_default(device, &one));
    CHECK_OK(loch_device_acquire_allocator(device, (loch_attributes){0}, LOCH_FALLBACK_NONE, &other));
    assert_ptr_equal(one, other);
    loch_allocator_release(one);
    loch_allocator_release(other);
    CHECK_FAILS(loch_device_acquire_default(NULL, &one), INVALID);
    assert_null(one);
    CHECK_FAILS(loch_device_acquire_default(device, NULL), INVALID);
    CHECK_OK(loch_device_set_allocator(device, NULL));
    loch_device_release(device);
}

static void a_tensor_goes_to_a_device_by_one_call(void **state)
{
    (void)state;
    const int64_t shape[] = {2, 3};
    const float numbers[6] = {1, 2, 3, 4, 5, 6};
    float back[6] = {0};
    loch_device *device = sim_open("sim:1GiB,backed");
    loch_stream *stream;
    loch_tensor *here, *there, *again;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_tensor_create_from(LOCH_F32, 2, shape, numbers, NULL, &here));
    CHECK_OK(loch_tensor_to_device(here, device, stream, &there));
    assert_ptr_equal(loch_tensor_get_device(there), device);
    CHECK_OK(loch_tensor_read(there, back, sizeof back, stream));
    assert_memory_equal(back, numbers, sizeof back);
    CHECK_OK(loch_tensor_to_device(there, device, NULL, &again));
    assert_ptr_equal(again, there); /* it is there: another reference */
    loch_tensor_release(again);
    CHECK_FAILS(loch_tensor_to_device(here, NULL, NULL, &again), INVALID);
    assert_null(again);
    CHECK_FAILS(loch_tensor_to_device(NULL, device, NULL, &again), INVALID);
    loch_tensor_release(there);
    loch_tensor_release(here);
    loch_stream_close(stream);
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL));
    loch_device_release(device);
}

static loch_status hand_on(loch_status status, int *ran)
{
    LOCH_RETURN(status);
    *ran = 1;
    return LOCH_OK;
}

static void failures_are_handed_on(void **state)
{
    (void)state;
    int ran = 0;
    CHECK_STATUS(hand_on(LOCH_E_BUSY, &ran), LOCH_E_BUSY);
    assert_int_equal(ran, 0);
    CHECK_STATUS(hand_on(LOCH_OK, &ran), LOCH_OK);
    assert_int_equal(ran, 1);
}

/* The output of a child that checks a call. */
static int checked(const char *device_name, char text[512])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        loch_device *device;
        dup2(ends[1], STDERR_FILENO);
        LOCH_CHECK(loch_device_open(device_name, &device));
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], text + length, 511 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_checked_call_ends_the_program_with_its_sentence(void **state)
{
    (void)state;
    char text[512];
    assert_int_equal(checked("cpu", text), 0);
    assert_string_equal(text, "");
    assert_int_equal(checked("nothing:0", text), EXIT_FAILURE);
    assert_non_null(strstr(text, "test_shapes.c:"));
    assert_non_null(strstr(text, "loch_device_open(device_name, &device): E_NOT_FOUND: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_visitor_ends_its_walk),
        SIM_TEST(records_that_are_overwritten_are_left_out),
        cmocka_unit_test(prints_refuse_what_cannot_be_printed),
        SIM_TEST(results_reach_as_far_as_the_caller_s_struct),
        SIM_TEST(the_default_of_a_device_takes_one_call),
        SIM_TEST(a_tensor_goes_to_a_device_by_one_call),
        cmocka_unit_test(failures_are_handed_on),
        cmocka_unit_test(a_checked_call_ends_the_program_with_its_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

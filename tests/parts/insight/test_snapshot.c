/* SPDX-License-Identifier: MIT */
/* A snapshot of this program comes back as a recording of one moment, and hostile files are refused with a sentence. */
#include "test.h"
#include <inttypes.h>
#include <loch/insight.h>
#include <unistd.h>

static char path[] = "/tmp/loch-snapshot-XXXXXX";

static int open_file(void **state)
{
    (void)state;
    const int file = mkstemp(path);
    if (file < 0) return -1;
    close(file);
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    return unlink(path);
}

static const loch_recording_block *find(const loch_recording *recording, const void *address)
{
    loch_recording_info info = {.size = sizeof info};
    CHECK_OK(loch_recording_get_info(recording, &info));
    for (size_t i = 0; i < info.blocks; i++)
        if (loch_recording_get_blocks(recording)[i].address == (uintptr_t)address)
            return &loch_recording_get_blocks(recording)[i];
    fail_msg("%p is not in the recording", address);
    return NULL;
}

static const char *name_of(const loch_recording *recording, loch_recording_noun noun, uint32_t index)
{
    return loch_recording_get_name(recording, noun, index);
}

/* Two pools of one name, a child in a range, small and large blocks, tags, streams. */
static void a_snapshot_of_this_program_comes_back(void **state)
{
    (void)state;
    loch_device *device, *host;
    loch_allocator *pool, *twin, *child;
    loch_stream *stream;
    loch_tag tag;
    CHECK_OK(loch_device_open("sim:64MiB,granule=64KiB", &device));
    CHECK_OK(loch_device_open("cpu", &host));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    CHECK_OK(loch_pool_create(host, "pool", NULL, &twin));
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = TEST_MIB};
    CHECK_OK(loch_pool_create_child(pool, "child", &range, &child));
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_tag_create("weights", &tag));
    const loch_request request = {.size = sizeof request, .bytes = 3 * TEST_MIB, .tag = tag, .stream = stream};
    void *large, *small, *other, *inside;
    CHECK_OK(loch_allocator_alloc(pool, &request, &large));
    CHECK_OK(loch_alloc(pool, 100, &small));
    CHECK_OK(loch_alloc(twin, 200, &other));
    CHECK_OK(loch_alloc(child, 300, &inside));
    CHECK_OK(loch_snapshot_save(path));

    loch_recording *recording;
    loch_recording_info info = {.size = sizeof info};
    CHECK_OK(loch_recording_load(path, NULL, &recording));
    CHECK_OK(loch_recording_get_info(recording, &info));
    assert_int_equal(info.format, LOCH_RECORDING_SNAPSHOT);
    assert_int_equal(info.blocks, 4);
    assert_int_equal(info.live_bytes, 3 * TEST_MIB + 600);
    assert_int_equal(info.peak_requested, 3 * TEST_MIB + 600);
    assert_int_equal(info.duration_ns, 0);
    assert_int_equal(info.devices, 2);
    assert_int_equal(info.allocators, 3);
    assert_true(info.has_addresses && info.started_ns);
    assert_non_null(strstr(info.program, "test_snapshot"));
    const loch_recording_block *block = find(recording, large);
    assert_string_equal(name_of(recording, LOCH_RECORDING_TAG, block->tag), "weights");
    assert_int_equal(block->bytes, 3 * TEST_MIB);
    assert_int_equal(block->stream, 1);
    assert_int_equal(block->is_present, 1);
    assert_int_equal(find(recording, small)->stream, 0);
    assert_int_equal(find(recording, inside)->bytes, 300);
    assert_string_equal(name_of(recording, LOCH_RECORDING_ALLOCATOR, block->allocator), "pool");
    assert_int_equal(find(recording, small)->allocator, block->allocator);
    assert_int_equal(
        strncmp(name_of(recording, LOCH_RECORDING_ALLOCATOR, find(recording, other)->allocator), "pool #", 6), 0);
    loch_pool_info here = {.size = sizeof here}, there = {.size = sizeof there};
    CHECK_OK(loch_pool_get_info(pool, &here));
    CHECK_OK(loch_pool_get_info(twin, &there));
    assert_int_equal(info.peak_reserved, here.reserved_bytes + there.reserved_bytes);
    loch_recording_destroy(recording);

    CHECK_OK(loch_free(child, inside));
    CHECK_OK(loch_free(twin, other));
    CHECK_OK(loch_free(pool, small));
    CHECK_OK(loch_free(pool, large));
    loch_stream_release(stream);
    loch_allocator_release(child);
    loch_allocator_release(twin);
    loch_allocator_release(pool);
    loch_device_release(host);
    loch_device_release(device);
}

/* --- other files --- */

static loch_status load(const char *text, loch_recording **out)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return loch_recording_load(path, NULL, out);
}

#define HEAD "{\"format\": \"loch-snapshot\", \"version\": 1, "

static void members_may_come_in_any_order(void **state)
{
    (void)state;
    loch_recording *recording;
    loch_recording_info info = {.size = sizeof info};
    CHECK_OK(
        load("{\"allocators\": [{\"blocks\": [{\"tag\": 7, \"state\": \"used\", \"requested_bytes\": 5, \"stream\": 9,"
             "\"address\": \"0x10\", \"new\": [{}], \"stack\": [\"inner\", \"outer\"]}], \"handles\": [{\"mapped\": "
             "true, \"address\": \"0x0\", "
             "\"bytes\": 64}],"
             "\"streams\": [{\"default\": true, \"stream\": 9}], \"name\": \"late\", \"device\": 0, \"number\": 3}],"
             "\"failure\": {\"allocator\": 3, \"bytes\": 1000, \"stream\": 9},"
             "\"tags\": [{\"name\": \"red\", \"tag\": 7}], \"devices\": [{\"name\": \"gpu\"}],"
             "\"version\": 1, \"format\": \"loch-snapshot\"}",
             &recording));
    CHECK_OK(loch_recording_get_info(recording, &info));
    const loch_recording_event *events = loch_recording_get_events(recording);
    assert_int_equal(info.events, 3);
    assert_int_equal(events[0].kind, LOCH_RECORDED_TAKE);
    assert_int_equal(events[1].kind, LOCH_RECORDED_ALLOC);
    assert_int_equal(events[2].kind, LOCH_RECORDED_FAIL);
    assert_int_equal(events[2].value, 1000);
    assert_int_equal(loch_recording_get_blocks(recording)[0].stream, 0);
    size_t frames;
    const char *const *stack = loch_recording_get_stack(recording, events[1].stack, &frames);
    assert_int_equal(frames, 2);
    assert_string_equal(stack[1], "outer");
    assert_string_equal(name_of(recording, LOCH_RECORDING_TAG, loch_recording_get_blocks(recording)[0].tag), "red");
    loch_recording_destroy(recording);
}

static void hostile_files_give_one_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } files[] = {
        {"{", "byte 1: the text ends too early"},
        {"{}", "it is JSON, but not a snapshot"},
        {"{\"format\": \"loch-snapshot\"}", "only snapshots of version 1 are known"},
        {"{\"format\": \"loch-snapshot\", \"version\": 2}", "only snapshots of version 1 are known"},
        {HEAD "\"allocators\": {}}", "a list is expected"},
        {HEAD "\"allocators\": [{\"number\": 1, \"device\": 0}]}", "a device that the list of devices lacks"},
        {HEAD "\"devices\": [{}], \"allocators\": [{\"number\": 1}, {\"number\": 1}]}",
         "two allocators have one number"},
        {HEAD "\"devices\": [{}], \"allocators\": [{\"number\": 1, \"blocks\": [{\"address\": 5}]}]}",
         "text is expected"},
        {HEAD
         "\"devices\": [{}], \"allocators\": [{\"number\": 1, \"blocks\": [{\"address\": \"0x12345678123456781\"}]}]}",
         "an address is expected"},
        {HEAD "\"devices\": [{}], \"allocators\": [{\"number\": 1, \"blocks\": [{\"state\": \"used\", \"tag\": 3}]}]}",
         "a tag that the list of tags lacks"},
        {HEAD "\"devices\": [{}], \"allocators\": [{\"number\": -1}]}", "a number is negative"},
        {HEAD "\"devices\": 1e999}", "a list is expected"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        loch_recording *recording = TEST_UNTOUCHED;
        CHECK_FAILS(load(files[i].text, &recording), INVALID);
        assert_null(recording);
        if (!strstr(loch_error_get()->sentence, files[i].sentence) || !strstr(loch_error_get()->sentence, path))
            fail_msg("%s: \"%s\"", files[i].text, loch_error_get()->sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_of_this_program_comes_back),
        cmocka_unit_test(members_may_come_in_any_order),
        cmocka_unit_test(hostile_files_give_one_sentence),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}

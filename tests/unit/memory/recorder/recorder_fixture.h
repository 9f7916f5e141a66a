/* SPDX-License-Identifier: MIT */
/* Recordings for the tests of the recorder: a file of its own for each, read back by libloch_insight. */
#ifndef LOCH_TEST_RECORDER_FIXTURE_H
#define LOCH_TEST_RECORDER_FIXTURE_H

#include "pool_fixture.h"
#include <loch/insight.h>
#include <unistd.h>

__attribute__((unused)) static char recorder_path[256];

/* Names a new file. */
__attribute__((unused)) static const char *recorder_name(const char *name)
{
    const char *folder = getenv("TMPDIR");
    snprintf(recorder_path, sizeof recorder_path, "%s/loch-recorder-%ld-%s.loch", folder ? folder : "/tmp",
             (long)getpid(), name);
    (void)unlink(recorder_path);
    return recorder_path;
}

__attribute__((unused)) static void recorder_begin(const char *name)
{
    const loch_recorder_options options = {.size = sizeof options, .path = recorder_name(name)};
    CHECK_OK(loch_recorder_start(&options));
}

__attribute__((unused)) static loch_recording *recorder_load(const char *path)
{
    loch_recording *recording;
    CHECK_OK(loch_recording_load(path, NULL, &recording));
    return recording;
}

/* Stops, reads the file and removes it. */
__attribute__((unused)) static loch_recording *recorder_finish(void)
{
    CHECK_OK(loch_recorder_stop());
    loch_recording *recording = recorder_load(recorder_path);
    assert_int_equal(unlink(recorder_path), 0);
    return recording;
}

__attribute__((unused)) static loch_recording_info recorder_info(const loch_recording *recording)
{
    loch_recording_info info = {.size = sizeof info};
    CHECK_OK(loch_recording_get_info(recording, &info));
    return info;
}

__attribute__((unused)) static size_t recorder_count(const loch_recording *recording, loch_recording_kind kind)
{
    const loch_recording_event *events = loch_recording_get_events(recording);
    size_t count = 0;
    for (uint64_t i = 0; i < recorder_info(recording).events; i++)
        count += events[i].kind == kind;
    return count;
}

/* The event number `nth` of a kind, of an allocator or block or whatever. */
__attribute__((unused)) static const loch_recording_event *recorder_event(const loch_recording *recording,
                                                                          loch_recording_kind kind, size_t nth)
{
    const loch_recording_event *events = loch_recording_get_events(recording);
    for (uint64_t i = 0; i < recorder_info(recording).events; i++)
        if (events[i].kind == kind && nth-- == 0) return &events[i];
    fail_msg("there is no such event of kind %d", (int)kind);
    return NULL;
}

/* The only block, or the block number `nth`, that was allocated at an address. */
__attribute__((unused)) static const loch_recording_block *recorder_block(const loch_recording *recording,
                                                                          const void *address, size_t nth)
{
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    for (uint64_t i = 0; i < recorder_info(recording).blocks; i++)
        if (blocks[i].address == (uintptr_t)address && nth-- == 0) return &blocks[i];
    fail_msg("there is no such block at %p", address);
    return NULL;
}

/* Nothing is missing, and no event is about something that is not there. */
__attribute__((unused)) static void recorder_expect_whole(const loch_recording *recording)
{
    const loch_recording_info info = recorder_info(recording);
    assert_int_equal(info.lost, 0);
    assert_int_equal(info.unknown, 0);
    assert_int_equal(info.was_ended, 1);
    assert_int_equal(info.has_addresses, 1);
}

#endif

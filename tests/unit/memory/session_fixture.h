/* SPDX-License-Identifier: MIT */
/* Shared by the tests of sessions: subjects, which are stacks of allocators on devices, and short calls. */
#ifndef LOCH_TEST_SESSION_FIXTURE_H
#define LOCH_TEST_SESSION_FIXTURE_H

#include "allocators.h"
#include "base/fail.h"
#include "pool_fixture.h"
#include "sweep.h"
#include "worker.h"

__attribute__((unused)) static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed",
                                                              "sim:256MiB,granule=64KiB,clock=stepped,lag=1000"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

__attribute__((unused)) static loch_session *begin(loch_allocator *allocator)
{
    loch_session *session = TEST_UNTOUCHED;
    CHECK_OK(loch_session_begin(allocator, "request", &session));
    assert_non_null(session);
    return session;
}

__attribute__((unused)) static void *get(loch_allocator *allocator, size_t bytes)
{
    return pool_alloc(allocator, bytes);
}

__attribute__((unused)) static size_t end_on(loch_session *session, loch_stream *stream)
{
    size_t bytes = 1;
    CHECK_OK(loch_session_end(session, stream, &bytes));
    return bytes;
}

__attribute__((unused)) static size_t end(loch_session *session)
{
    return end_on(session, NULL);
}

__attribute__((unused)) static void expect(loch_session *session, size_t blocks, size_t bytes)
{
    loch_session_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_session_get_stats(session, &stats));
    assert_int_equal(stats.blocks, blocks);
    assert_int_equal(stats.bytes, bytes);
}

__attribute__((unused)) static size_t live(loch_allocator *allocator)
{
    return pool_stats(allocator).blocks;
}

typedef struct subject {
    loch_device *device;
    loch_allocator *allocator;
    loch_host_usage usage;
    uint64_t alive, wrong;
} subject;

__attribute__((unused)) static subject open_subject(const char *device, const char *stack)
{
    subject it = {.alive = test_user_alive(), .wrong = test_user_wrong()};
    it.device = sim_open(device);
    it.usage.size = sizeof it.usage;
    CHECK_OK(loch_host_get_usage(&it.usage));
    CHECK_OK(test_stack_create(it.device, stack, &it.allocator));
    return it;
}

__attribute__((unused)) static void close_subject(subject *it)
{
    loch_host_usage usage = {.size = sizeof usage};
    assert_int_equal(live(it->allocator), 0);
    if (lochi_pool_of(it->allocator)) pool_expect_whole(it->allocator);
    loch_allocator_release(it->allocator);
    assert_int_equal(test_user_alive(), it->alive);
    assert_int_equal(test_user_wrong(), it->wrong);
    CHECK_OK(loch_host_get_usage(&usage));
    assert_int_equal(usage.blocks, it->usage.blocks);
    loch_device_release(it->device);
}

typedef void on_subject(subject *it);

#endif

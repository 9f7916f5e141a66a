/* SPDX-License-Identifier: MIT */
/* The timeout of an import: one deadline for all that it waits for, whatever the other side does, and however many
 * threads wait for the same owner. */
#include "hostile.h"
#include <pthread.h>

enum { BYTES = 5000 };

/* A call with a short timeout has to end long before a hostile process gives up. The rest is for a busy machine. */
static const loch_parcel_import_options short_time = {.size = sizeof short_time, .timeout_ns = 300000000};
#define SHORT_SECONDS (HOSTILE_SECONDS / 2)

static loch_device *cpu;

/* Calls loch_parcel_receive, which must fail, and within a few seconds. */
static void expect_in_time(int socket, loch_status expected)
{
    loch_buffer *out = TEST_UNTOUCHED;
    const uint64_t latest = lochi_share_deadline(SHORT_SECONDS * 1000000000ull);
    const loch_status status = loch_parcel_receive(cpu, socket, &short_time, &out);
    assert_false(lochi_share_deadline_is_over(latest));
    if (status != expected) fail_msg("%s: %s", loch_status_name(status), loch_error_get()->sentence);
    assert_null(out);
}

static void stop(const partner *p)
{
    int status;
    assert_int_equal(kill(p->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
    assert_true(WIFSTOPPED(status));
}

/* --- one owner --- */

static void a_hostile_owner_cannot_exceed_the_timeout(void **state)
{
    (void)state;
    const hostile_kind kinds[] = {HOSTILE_WRONG_SEQUENCE, HOSTILE_NEVER_READY, HOSTILE_SLOW};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const hostile attacker = {.kind = kinds[i],
                                  .token = {.owner = {{9}},
                                            .parcel = 1,
                                            .span = 1,
                                            .bytes = 4096,
                                            .span_bytes = (size_t)(2 << 20) * 1000,
                                            .share = LOCH_SHARE_FD,
                                            .driver = "cpu"},
                                  .sought = {{1}}};
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        const pid_t pid = hostile_start(&attacker, sockets[1]);
        expect_in_time(sockets[0], LOCH_E_BUSY);
        close(sockets[0]), close(sockets[1]);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

/* Nothing comes: the socket is as it was, and a later call receives a parcel. A part comes: the rest is not waited for
 * longer. */
static void a_silent_socket_is_read_until_the_timeout(void **state)
{
    (void)state;
    partner p = partner_start("cpu");
    loch_buffer *buffer;
    expect_in_time(p.parcels, LOCH_E_BUSY);
    partner_do_it(&p, PARTNER_OFFER, 0, BYTES);
    CHECK_OK(loch_parcel_receive(cpu, p.parcels, &short_time, &buffer));
    loch_buffer_release(buffer);
    partner_stop(&p);
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    assert_int_equal(write(sockets[1], "\144part", 5), 5);
    expect_in_time(sockets[0], LOCH_E_IO);
    assert_non_null(strstr(loch_error_get()->sentence, "5 of 101 bytes"));
    close(sockets[0]), close(sockets[1]);
}

/* --- several owners and threads --- */

typedef struct waiter {
    pthread_t thread;
    const uint8_t *token;
    size_t bytes;
    loch_status status;
} waiter;

static void *wait_for_import(void *user)
{
    waiter *w = user;
    loch_buffer *buffer;
    w->status = loch_parcel_import(cpu, w->token, w->bytes, NULL, &buffer);
    loch_buffer_release(buffer);
    return NULL;
}

static void a_slow_owner_delays_no_import_from_others_and_no_shorter_timeout(void **state)
{
    (void)state;
    partner slow = partner_start("cpu"), quick = partner_start("cpu");
    uint8_t from_slow[LOCH_PARCEL_TOKEN_MAX], from_quick[LOCH_PARCEL_TOKEN_MAX];
    const size_t slow_bytes = hostile_read_offer(&slow, 0, BYTES, from_slow);
    const size_t quick_bytes = hostile_read_offer(&quick, 0, BYTES, from_quick);
    loch_buffer *buffer = NULL;
    CHECK_OK(loch_parcel_import(cpu, from_slow, slow_bytes, NULL, &buffer)); /* one connection for all that follow */
    stop(&slow);
    waiter w = {.token = from_slow, .bytes = slow_bytes};
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_import, &w), 0);
    hostile_pause(100); /* the thread waits for the answer, for up to 30 seconds */
    uint64_t latest = lochi_share_deadline(SHORT_SECONDS * 1000000000ull);
    loch_buffer *other, *none = TEST_UNTOUCHED;
    CHECK_OK(loch_parcel_import(cpu, from_quick, quick_bytes, &short_time, &other));
    CHECK_FAILS(loch_parcel_import(cpu, from_slow, slow_bytes, &short_time, &none), BUSY);
    assert_null(none);
    loch_buffer_release(buffer); /* does not wait either */
    assert_false(lochi_share_deadline_is_over(latest));
    assert_int_equal(kill(slow.pid, SIGCONT), 0);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    CHECK_OK(w.status);
    loch_buffer_release(other);
    partner_stop(&slow);
    partner_stop(&quick);
}

/* More ends of leases than the socket takes are in front of the request, and the owner goes on before the deadline. */
static void an_import_after_many_releases_waits_for_its_owner(void **state)
{
    (void)state;
    enum { LEASES = 3000 };
    static loch_buffer *buffers[LEASES];
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
    partner slow = partner_start("cpu");
    const size_t bytes = hostile_read_offer(&slow, 0, BYTES, token);
    for (size_t i = 0; i < LEASES; i++)
        CHECK_OK(loch_parcel_import(cpu, token, bytes, NULL, &buffers[i]));
    stop(&slow);
    for (size_t i = 1; i < LEASES; i++) /* the first one keeps the connection */
        loch_buffer_release(buffers[i]);
    const uint64_t latest = lochi_share_deadline(SHORT_SECONDS * 1000000000ull);
    const uint64_t earliest = lochi_share_deadline(short_time.timeout_ns);
    loch_buffer *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_parcel_import(cpu, token, bytes, &short_time, &none), BUSY);
    assert_null(none);
    assert_true(lochi_share_deadline_is_over(earliest)); /* it could have gone on until then */
    assert_false(lochi_share_deadline_is_over(latest));
    waiter w = {.token = token, .bytes = bytes};
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_import, &w), 0);
    hostile_pause(100);
    assert_int_equal(kill(slow.pid, SIGCONT), 0);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    CHECK_OK(w.status);
    loch_buffer_release(buffers[0]);
    partner_stop(&slow);
}

static int begin(void **state)
{
    (void)state;
    CHECK_OK(loch_device_open("cpu", &cpu));
    return 0;
}

static int end(void **state)
{
    (void)state;
    loch_device_release(cpu);
    return 0;
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostile_owner_cannot_exceed_the_timeout),
        cmocka_unit_test(a_silent_socket_is_read_until_the_timeout),
        cmocka_unit_test(a_slow_owner_delays_no_import_from_others_and_no_shorter_timeout),
        cmocka_unit_test(an_import_after_many_releases_waits_for_its_owner),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

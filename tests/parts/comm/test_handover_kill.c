/* SPDX-License-Identifier: MIT */
/* Givers and receivers that are killed at any moment. The other side gets a status, what was taken works, and
 * afterwards no block is held, no descriptor is open that was not before, and no file with a name is left.
 *
 * LOCH_TEST_KILLS says how many are killed of each (default 25). */
#include "handover_partner.h"

#define KILLS 25
#define BYTES ((size_t)300000)

static loch_device *cpu;
static uint64_t longest_ms; /* between a death and the status that told it */

static size_t kills(void)
{
    const char *text = getenv("LOCH_TEST_KILLS");
    return text && atoi(text) > 0 ? (size_t)atoi(text) : KILLS;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void note_time(uint64_t killed_at)
{
    const uint64_t took = now_ms() - killed_at;
    if (took > longest_ms) longest_ms = took;
}

/* --- the processes that are killed --- */

/* Hands buffers over without end: mapped, copied, and as pages, in turn. */
static int give_forever(int wire)
{
    static const size_t pages[] = {5, 1, 2};
    const loch_handover_peer peer = {.size = sizeof peer, .socket = wire};
    if (loch_device_open("cpu", &cpu) != LOCH_OK) return 2;
    loch_allocator *pool = partner_pool(cpu, 0, LOCH_SHARE_FD);
    for (uint64_t i = 0;; i++) {
        const partner_note note = {.seed = i};
        loch_handover_send_options options = {.size = sizeof options, .note = &note, .note_bytes = sizeof note};
        loch_buffer *buffers[2] = {partner_buffer(pool, BYTES, i), partner_buffer(pool, BYTES, i + 1)};
        if (i % 3 == 1) options.way = LOCH_HANDOVER_COPIED;
        if (i % 3 == 2) {
            options.pages = pages, options.pages_count = 3, options.page_bytes = 40000;
            for (size_t k = 0; k < 6; k++)
                if (partner_put(buffers[k / 3], pages[k % 3] * 40000, 40000, i + k / 3 + 1000 * (k % 3)) != LOCH_OK)
                    return 3;
        }
        if (loch_handover_send(&peer, buffers, 2, NULL, &options, NULL) != LOCH_OK) return 4;
        if (partner_has_names()) return 5;
        loch_buffer_release(buffers[0]);
        loch_buffer_release(buffers[1]);
    }
}

/* Takes without end, and holds the last few. */
static int take_forever(int wire)
{
    enum { LAST = 4 };
    const loch_handover_peer peer = {.size = sizeof peer, .socket = wire};
    loch_handover *last[LAST] = {NULL};
    if (loch_device_open("cpu", &cpu) != LOCH_OK) return 2;
    for (size_t i = 0;; i++) {
        loch_handover_receive_options options = {.size = sizeof options};
        if (i % 3 == 1) options.way = LOCH_HANDOVER_COPIED;
        loch_handover_destroy(last[i % LAST]);
        last[i % LAST] = NULL;
        if (loch_handover_receive(&peer, cpu, NULL, &options, &last[i % LAST]) != LOCH_OK) return 3;
        if (!partner_is_right(last[i % LAST])) return 4;
        if (partner_has_names()) return 5;
    }
}

/* --- the side that stays --- */

static void sleep_up_to(test_random *random, size_t us)
{
    const struct timespec pause = {.tv_nsec = (long)test_random_below(random, us) * 1000};
    nanosleep(&pause, NULL);
}

static void bury(const partner *p)
{
    int status;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    if (!WIFSIGNALED(status)) fail_msg("the process ended by itself with code %d", WEXITSTATUS(status));
    close(p->commands);
    close(p->wire);
}

static void await_files(size_t files)
{
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_count_entries("/proc/self/fd") > files && time(NULL) < end)
        partner_pause();
    assert_true(partner_count_entries("/proc/self/fd") <= files);
}

/* Takes until the giver is dead. Returns how many came. */
static size_t take_around_a_kill(const partner *p, test_random *random)
{
    enum { MOST = 24 };
    const loch_handover_peer peer = partner_peer(p);
    loch_handover *taken[MOST] = {NULL};
    const size_t before_kill = test_random_below(random, 12);
    size_t count = 0;
    uint64_t killed_at = 0;
    for (; count < MOST; count++) {
        if (count == before_kill) {
            sleep_up_to(random, 2000);
            assert_int_equal(kill(p->pid, SIGKILL), 0);
            killed_at = now_ms();
        }
        const loch_status status = loch_handover_receive(&peer, cpu, NULL, NULL, &taken[count]);
        if (status != LOCH_OK) {
            if (status != LOCH_E_IO || count < before_kill)
                fail_msg("hand-over %zu, kill before %zu: %s: %s", count, before_kill, loch_status_name(status),
                         loch_error_get()->sentence);
            break;
        }
    }
    note_time(killed_at);
    for (size_t i = 0; i < count; i++) { /* works without the giver */
        if (!partner_is_right(taken[i])) fail_msg("hand-over %zu of %zu has other contents", i, count);
        loch_handover_destroy(taken[i]);
    }
    return count;
}

static void givers_are_killed_at_any_moment(void **state)
{
    (void)state;
    test_random random = {test_seed(41)};
    const size_t files = partner_count_entries("/proc/self/fd");
    size_t taken = 0;
    longest_ms = 0;
    for (size_t round = 0; round < kills(); round++) {
        const partner p = partner_start_as("give", "cpu");
        taken += take_around_a_kill(&p, &random);
        bury(&p);
    }
    print_message("%zu hand-overs taken from %zu givers; a death was told after at most %u ms\n", taken, kills(),
                  (unsigned)longest_ms);
    await_files(files + 4); /* a few connections stay open for the next import */
    assert_false(partner_has_names());
}

/* Gives until the receiver is dead. */
static void give_around_a_kill(const partner *p, loch_allocator *pool, test_random *random)
{
    const loch_handover_peer peer = partner_peer(p);
    const size_t before_kill = test_random_below(random, 12);
    uint64_t killed_at = 0;
    loch_status status = LOCH_OK;
    for (uint64_t i = 0; status == LOCH_OK; i++) {
        const partner_note note = {.seed = i};
        const loch_handover_send_options options = {.size = sizeof options,
                                                    .note = &note,
                                                    .note_bytes = sizeof note,
                                                    .way = i % 2 ? LOCH_HANDOVER_AUTO : LOCH_HANDOVER_COPIED};
        loch_buffer *buffer = partner_buffer(pool, BYTES, i);
        if (i == before_kill) {
            sleep_up_to(random, 2000);
            assert_int_equal(kill(p->pid, SIGKILL), 0);
            killed_at = now_ms();
        }
        status = loch_handover_send(&peer, &buffer, 1, NULL, &options, NULL);
        if (status != LOCH_OK && (status != LOCH_E_IO || i < before_kill))
            fail_msg("hand-over %u: %s: %s", (unsigned)i, loch_status_name(status), loch_error_get()->sentence);
        if (!partner_is(buffer, 0, BYTES, i)) fail_msg("the giver's memory has changed");
        loch_buffer_release(buffer);
    }
    note_time(killed_at);
}

static void receivers_are_killed_at_any_moment(void **state)
{
    (void)state;
    test_random random = {test_seed(43)};
    const size_t files = partner_count_entries("/proc/self/fd");
    loch_allocator *pool = partner_pool(cpu, 0, LOCH_SHARE_FD);
    longest_ms = 0;
    for (size_t round = 0; round < kills(); round++) {
        const partner p = partner_start_as("take", "cpu");
        give_around_a_kill(&p, pool, &random);
        bury(&p);
    }
    print_message("%zu receivers killed; a death was told after at most %u ms\n", kills(), (unsigned)longest_ms);
    partner_end_pool(pool); /* what the dead held is free */
    await_files(files + 4);
    assert_false(partner_has_names());
}

static int begin(void **state)
{
    (void)state;
    return loch_device_open("cpu", &cpu) == LOCH_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    loch_device_release(cpu);
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 5 && !strcmp(arguments[1], "give")) return give_forever(atoi(arguments[3]));
    if (count == 5 && !strcmp(arguments[1], "take")) return take_forever(atoi(arguments[3]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(givers_are_killed_at_any_moment),
        cmocka_unit_test(receivers_are_killed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

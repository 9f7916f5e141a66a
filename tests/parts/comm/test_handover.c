/* SPDX-License-Identifier: MIT */
/* Hand-overs between two processes over a socket: mapped and copied, whole buffers, growable blocks and pages, how long
 * the memory is held, and which status both sides get when one of them fails. */
#include "handover_partner.h"

static loch_device *cpu;
static const char *device_name = "cpu";

static const partner_command take_it = {.verb = PARTNER_TAKE};

/* Hands buffers over while the partner takes them. Returns what the partner says, and the giver's object. */
static partner_answer hand_over(partner *p, const partner_command *command, loch_buffer *const *buffers, size_t count,
                                const loch_handover_send_options *options, loch_handover **given)
{
    const loch_handover_peer peer = partner_peer(p);
    partner_tell(p, command);
    CHECK_OK(loch_handover_send(&peer, buffers, count, NULL, options, given));
    const partner_answer answer = partner_hear(p);
    if (answer.status != LOCH_OK) fail_msg("the partner: %s", answer.sentence);
    assert_int_equal(answer.count, count);
    return answer;
}

static loch_handover_way way_of(const loch_handover *handover)
{
    loch_handover_info info = {.size = sizeof info};
    CHECK_OK(loch_handover_get_info(handover, &info));
    return info.way;
}

static void whole_buffers_are_mapped(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 0, LOCH_SHARE_FD);
    loch_buffer *buffers[4] = {partner_buffer(pool, 1, 7), partner_buffer(pool, 5000, 8), partner_buffer(pool, 0, 9),
                               partner_buffer(pool, 3 * TEST_MIB + 12, 10)};
    const partner_note note = {.seed = 7, .tokens = 12};
    const loch_handover_send_options options = {.size = sizeof options, .note = &note, .note_bytes = sizeof note};
    partner p = partner_start(device_name);
    loch_handover *given;
    const uint64_t copies = test_call_count(cpu, "copy");
    const partner_answer answer = hand_over(&p, &take_it, buffers, 4, &options, &given);
    assert_int_equal(answer.way, LOCH_HANDOVER_MAPPED);
    assert_int_equal(answer.copies, 0); /* nothing is copied, on either side */
    assert_int_equal(test_call_count(cpu, "copy"), copies);
    assert_int_equal(answer.bytes, 3 * TEST_MIB + 12 + 5001);
    assert_true(answer.is_right);
    assert_int_equal(way_of(given), LOCH_HANDOVER_MAPPED);
    partner_await_held(given, 3);
    /* One memory: the giver sees what the receiver writes. */
    partner_ask(&p, PARTNER_BREAK, 0, 99);
    assert_true(partner_is(buffers[3], 0, 3 * TEST_MIB + 12, 99));
    CHECK_OK(partner_put(buffers[0], 0, 1, 7));
    CHECK_OK(partner_put(buffers[1], 0, 5000, 8));
    CHECK_OK(partner_put(buffers[3], 0, 3 * TEST_MIB + 12, 10));
    /* The giver lets go; the memory stays until the receiver does. */
    for (size_t i = 0; i < 4; i++)
        loch_buffer_release(buffers[i]);
    loch_handover_destroy(given);
    assert_true(partner_used_bytes(pool) >= 3 * TEST_MIB);
    loch_buffer *other = partner_buffer(pool, 2 * TEST_MIB, 55); /* does not get that memory */
    assert_true(partner_ask(&p, PARTNER_COMPARE, 0, 0).is_right);
    loch_buffer_release(other);
    partner_ask(&p, PARTNER_DROP, 0, 0);
    partner_end_pool(pool);
    partner_stop(&p);
}

static void a_growable_block_is_handed_over(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 2 * TEST_MIB, LOCH_SHARE_FD);
    const partner_note note = {.seed = 31};
    const loch_handover_send_options options = {.size = sizeof options, .note = &note, .note_bytes = sizeof note};
    partner p = partner_start(device_name);
    for (size_t round = 0; round < 2; round++) {
        void *block;
        loch_buffer *cache;
        loch_handover *given;
        CHECK_OK(loch_pool_alloc_growable(pool, 64 * TEST_MIB, &(loch_request){.size = sizeof(loch_request)}, &block));
        CHECK_OK(loch_pool_resize_growable(pool, block, 5 * TEST_MIB)); /* tokens came */
        CHECK_OK(loch_buffer_adopt(pool, block, &cache));
        CHECK_OK(partner_put(cache, 0, 5 * TEST_MIB, 31));
        /* The second time the receiver wants memory of its own that can grow. */
        const partner_command command = {.verb = PARTNER_TAKE,
                                         .slot = round,
                                         .way = round ? LOCH_HANDOVER_COPIED : LOCH_HANDOVER_AUTO,
                                         .max_bytes = 64 * TEST_MIB};
        const partner_answer answer = hand_over(&p, &command, &cache, 1, &options, &given);
        assert_int_equal(answer.way, round ? LOCH_HANDOVER_COPIED : LOCH_HANDOVER_MAPPED);
        assert_int_equal(way_of(given), answer.way);
        assert_int_equal(answer.bytes, 5 * TEST_MIB);
        assert_true(answer.is_right);
        loch_buffer_release(cache);
        partner_await_held(given, round ? 0 : 1);
        loch_handover_destroy(given);
    }
    partner_ask(&p, PARTNER_DROP, 0, 0);
    partner_end_pool(pool);                          /* the receiver has a copy of the second one */
    partner_ask(&p, PARTNER_GROW, 1, 40 * TEST_MIB); /* more tokens, in the receiver */
    partner_ask(&p, PARTNER_GROW, 1, 5 * TEST_MIB);
    assert_true(partner_ask(&p, PARTNER_COMPARE, 1, 0).is_right);
    partner_stop(&p);
}

static const size_t pages[] = {9, 10, 11, 3, 63, 0, 1, 40};
#define PAGES (sizeof pages / sizeof *pages)
#define PAGE_BYTES ((size_t)24 << 10)

/* Pages of two buffers, over a pool that can be mapped or not. */
static void hand_pages_over(uint32_t share, loch_handover_way way, loch_handover_way expected)
{
    loch_allocator *pool = partner_pool(cpu, 0, share);
    const partner_note note = {.seed = 400};
    const loch_handover_send_options options = {.size = sizeof options,
                                                .note = &note,
                                                .note_bytes = sizeof note,
                                                .pages = pages,
                                                .pages_count = PAGES,
                                                .page_bytes = PAGE_BYTES};
    const partner_command command = {.verb = PARTNER_TAKE, .way = way};
    loch_buffer *regions[2] = {partner_buffer(pool, 64 * PAGE_BYTES, 1), partner_buffer(pool, 70 * PAGE_BYTES, 2)};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < PAGES; k++)
            CHECK_OK(partner_put(regions[i], pages[k] * PAGE_BYTES, PAGE_BYTES, 400 + i + 1000 * k));
    partner p = partner_start(device_name);
    loch_handover *given;
    const partner_answer answer = hand_over(&p, &command, regions, 2, &options, &given);
    assert_int_equal(answer.way, expected);
    assert_int_equal(answer.pages, PAGES);
    assert_int_equal(answer.bytes, 2 * PAGES * PAGE_BYTES);
    assert_true(answer.is_right);
    if (share) assert_int_equal(answer.copies != 0, expected == LOCH_HANDOVER_COPIED);
    partner_await_held(given, expected == LOCH_HANDOVER_MAPPED ? 2 : 0);
    partner_ask(&p, PARTNER_DROP, 0, 0);
    partner_await_held(given, 0); /* the pages can have another request now */
    loch_handover_destroy(given);
    loch_buffer_release(regions[0]);
    loch_buffer_release(regions[1]);
    partner_end_pool(pool);
    partner_stop(&p);
}

static void pages_are_mapped(void **state)
{
    (void)state;
    hand_pages_over(LOCH_SHARE_FD, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_MAPPED);
}

static void pages_are_copied_out_of_mapped_memory(void **state)
{
    (void)state;
    hand_pages_over(LOCH_SHARE_FD, LOCH_HANDOVER_COPIED, LOCH_HANDOVER_COPIED);
}

static void pages_are_sent(void **state)
{
    (void)state;
    hand_pages_over(0, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_COPIED);
}

static void memory_that_is_not_shareable_is_sent(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 0, 0);
    loch_buffer *buffers[3] = {partner_buffer(pool, 70 * TEST_MIB + 5, 3), partner_buffer(pool, 0, 4),
                               partner_buffer(pool, 100, 5)}; /* more than one chunk */
    const partner_note note = {.seed = 3};
    const loch_handover_send_options options = {.size = sizeof options, .note = &note, .note_bytes = sizeof note};
    partner p = partner_start(device_name);
    const partner_answer answer = hand_over(&p, &take_it, buffers, 3, &options, NULL);
    assert_int_equal(answer.way, LOCH_HANDOVER_COPIED);
    assert_true(answer.is_right);
    CHECK_OK(partner_put(buffers[2], 0, 100, 77)); /* two memories */
    assert_true(partner_ask(&p, PARTNER_COMPARE, 0, 0).is_right);
    for (size_t i = 0; i < 3; i++)
        loch_buffer_release(buffers[i]);
    partner_end_pool(pool);
    partner_stop(&p);
}

/* Expects that a hand-over fails on both sides with one status. */
static void both_fail(partner *p, const partner_command *command, loch_buffer *buffer,
                      const loch_handover_send_options *options, loch_status expected, const char *giver_hears)
{
    const loch_handover_peer peer = partner_peer(p);
    loch_handover *given = TEST_UNTOUCHED;
    partner_tell(p, command);
    CHECK_FAILS_SET(loch_handover_send(&peer, &buffer, 1, NULL, options, &given), 1u << expected);
    assert_null(given);
    if (!strstr(loch_error_get()->sentence, giver_hears)) fail_msg("the giver hears: %s", loch_error_get()->sentence);
    const partner_answer answer = partner_hear(p);
    assert_int_equal(answer.status, expected);
    assert_true(answer.sentence[0] != 0);
}

static void nothing_is_lost_when_the_receiver_fails(void **state)
{
    (void)state;
    loch_allocator *shared = partner_pool(cpu, 0, LOCH_SHARE_FD), *plain = partner_pool(cpu, 0, 0);
    loch_buffer *mappable = partner_buffer(shared, 8 * TEST_MIB, 21), *other = partner_buffer(plain, 8 * TEST_MIB, 21);
    const partner_note note = {.seed = 21};
    const loch_handover_send_options any = {.size = sizeof any, .note = &note, .note_bytes = sizeof note};
    loch_handover_send_options mapped = any, copied = any;
    mapped.way = LOCH_HANDOVER_MAPPED;
    copied.way = LOCH_HANDOVER_COPIED;
    partner p = partner_start(device_name);
    const partner_command wants_mapping = {.verb = PARTNER_TAKE, .way = LOCH_HANDOVER_MAPPED};
    const partner_command has_no_room = {
        .verb = PARTNER_TAKE, .way = LOCH_HANDOVER_COPIED, .limit_bytes = 4 * TEST_MIB};
    both_fail(&p, &wants_mapping, other, &any, LOCH_E_UNSUPPORTED, "did not take");
    both_fail(&p, &wants_mapping, mappable, &copied, LOCH_E_UNSUPPORTED, "did not take");
    both_fail(&p, &take_it, other, &mapped, LOCH_E_UNSUPPORTED, "cannot be shared"); /* the giver itself fails */
    both_fail(&p, &has_no_room, other, &any, LOCH_E_LIMIT, "did not take");
    both_fail(&p, &has_no_room, mappable, &any, LOCH_E_LIMIT, "did not take");
    /* The giver has its memory, the connection works on, and the receiver holds nothing. */
    assert_true(partner_is(mappable, 0, 8 * TEST_MIB, 21));
    assert_true(hand_over(&p, &take_it, &mappable, 1, &any, NULL).is_right);
    partner_ask(&p, PARTNER_DROP, 0, 0);
    assert_true(hand_over(&p, &take_it, &other, 1, &any, NULL).is_right);
    loch_buffer_release(mappable);
    loch_buffer_release(other);
    partner_end_pool(shared);
    partner_end_pool(plain);
    partner_stop(&p);
}

/* A receiver that can map only, or a giver that insists on it, against a receiver that wants a copy. */
static void a_giver_that_insists_on_mapping_has_its_way(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 0, LOCH_SHARE_FD);
    loch_buffer *buffer = partner_buffer(pool, 9000, 5);
    const partner_note note = {.seed = 5};
    const loch_handover_send_options options = {
        .size = sizeof options, .way = LOCH_HANDOVER_MAPPED, .note = &note, .note_bytes = sizeof note};
    const partner_command wants_copy = {.verb = PARTNER_TAKE, .way = LOCH_HANDOVER_COPIED};
    partner p = partner_start(device_name);
    const partner_answer answer = hand_over(&p, &wants_copy, &buffer, 1, &options, NULL);
    assert_int_equal(answer.way, LOCH_HANDOVER_MAPPED);
    assert_true(answer.is_right);
    partner_ask(&p, PARTNER_DROP, 0, 0);
    loch_buffer_release(buffer);
    partner_end_pool(pool);
    partner_stop(&p);
}

static void movable_buffers_stay_where_they_are(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 0, LOCH_SHARE_FD);
    const partner_note note = {.seed = 61};
    const loch_handover_send_options options = {.size = sizeof options, .note = &note, .note_bytes = sizeof note};
    partner p = partner_start(device_name);
    for (size_t round = 0; round < 2; round++) {
        loch_buffer *buffer;
        void *address;
        CHECK_OK(loch_buffer_create(
            pool, 3 * TEST_MIB, &(loch_request){.size = sizeof(loch_request), .flags = LOCH_ALLOC_MOVABLE}, &buffer));
        CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
        CHECK_OK(partner_put(buffer, 0, 3 * TEST_MIB, 61));
        CHECK_OK(loch_buffer_unpin(buffer, NULL));
        loch_handover_send_options way = options;
        way.way = round ? LOCH_HANDOVER_COPIED : LOCH_HANDOVER_MAPPED;
        const partner_answer answer = hand_over(&p, &take_it, &buffer, 1, &way, NULL);
        assert_int_equal(answer.way, way.way);
        assert_true(answer.is_right);
        CHECK_OK(loch_pool_compact(pool, NULL, NULL));
        assert_true(partner_ask(&p, PARTNER_COMPARE, 0, 0).is_right);
        loch_buffer_release(buffer);
        partner_ask(&p, PARTNER_DROP, 0, 0);
    }
    partner_end_pool(pool);
    partner_stop(&p);
}

static void memory_of_a_killed_giver_stays(void **state)
{
    (void)state;
    partner p = partner_start(device_name);
    const loch_handover_peer peer = partner_peer(&p);
    const partner_command give = {.verb = PARTNER_GIVE, .slot = 19, .value = 9 * TEST_MIB};
    loch_handover *taken;
    partner_tell(&p, &give);
    CHECK_OK(loch_handover_receive(&peer, cpu, NULL, NULL, &taken));
    assert_int_equal(way_of(taken), LOCH_HANDOVER_MAPPED);
    partner_kill(&p);
    assert_true(partner_is_right(taken));
    loch_handover_destroy(taken);
}

static int begin(void **state)
{
    (void)state;
    return loch_device_open(device_name, &cpu) == LOCH_OK ? 0 : -1;
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
        cmocka_unit_test(whole_buffers_are_mapped),
        cmocka_unit_test(a_growable_block_is_handed_over),
        cmocka_unit_test(pages_are_mapped),
        cmocka_unit_test(pages_are_copied_out_of_mapped_memory),
        cmocka_unit_test(pages_are_sent),
        cmocka_unit_test(memory_that_is_not_shareable_is_sent),
        cmocka_unit_test(nothing_is_lost_when_the_receiver_fails),
        cmocka_unit_test(a_giver_that_insists_on_mapping_has_its_way),
        cmocka_unit_test(movable_buffers_stay_where_they_are),
        cmocka_unit_test(memory_of_a_killed_giver_stays),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

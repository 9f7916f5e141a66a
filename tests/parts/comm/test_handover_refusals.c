/* SPDX-License-Identifier: MIT */
/* Arguments that are not valid, messages that are not those of a hand-over, peers that end or do not answer. */
#include "offer.h"
#include "handover_partner.h"
#include <errno.h>
#include <pthread.h>

static loch_device *cpu;
static loch_allocator *pool;
static loch_buffer *buffer;

typedef struct wires {
    int mine, theirs;
} wires;

static wires make_wires(void)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    return (wires){ends[0], ends[1]};
}

static void close_wires(wires *w)
{
    if (w->mine >= 0) close(w->mine);
    if (w->theirs >= 0) close(w->theirs);
}

static loch_handover_peer peer_of(int socket)
{
    return (loch_handover_peer){.size = sizeof(loch_handover_peer), .socket = socket};
}

/* Expects that a send is refused before anything is sent. */
static void send_is_refused(loch_buffer *const *buffers, size_t count, const loch_handover_send_options *options,
                            unsigned expected)
{
    wires w = make_wires();
    const loch_handover_peer peer = peer_of(w.mine);
    loch_handover *given = TEST_UNTOUCHED;
    char byte;
    CHECK_FAILS_SET(loch_handover_send(&peer, buffers, count, NULL, options, &given), expected);
    assert_null(given);
    assert_int_equal(recv(w.theirs, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    close_wires(&w);
}

static void arguments_of_a_giver_are_checked(void **state)
{
    (void)state;
    static const size_t pages[] = {0, 3}, beyond[] = {0, 4}, huge[] = {SIZE_MAX};
    loch_buffer *const none[2] = {buffer, NULL};
    const loch_handover_send_options plain = {.size = sizeof plain};
    loch_handover_send_options options;
    send_is_refused(NULL, 1, NULL, TEST_SET(INVALID));
    send_is_refused(&buffer, 0, NULL, TEST_SET(INVALID));
    send_is_refused(&buffer, OFFER_BUFFERS_MAX + 1, NULL, TEST_SET(INVALID));
    send_is_refused(none, 2, NULL, TEST_SET(INVALID));
    options = plain, options.size = 0;
    send_is_refused(&buffer, 1, &options, TEST_SET(INVALID));
    options = plain, options.way = (loch_handover_way)3;
    send_is_refused(&buffer, 1, &options, TEST_SET(INVALID));
    options = plain, options.note_bytes = 1;
    send_is_refused(&buffer, 1, &options, TEST_SET(INVALID));
    options = plain, options.note = "", options.note_bytes = LOCH_HANDOVER_NOTE_MAX + 1;
    send_is_refused(&buffer, 1, &options, TEST_SET(INVALID));
    options = plain, options.pages = pages, options.pages_count = 2;
    send_is_refused(&buffer, 1, &options, TEST_SET(INVALID));
    options = plain, options.pages = pages, options.page_bytes = 1024;
    send_is_refused(&buffer, 1, &options, TEST_SET(INVALID));
    options = plain, options.pages_count = 2, options.page_bytes = 1024;
    send_is_refused(&buffer, 1, &options, TEST_SET(INVALID));
    options = plain, options.pages = beyond, options.pages_count = 2, options.page_bytes = 1024;
    send_is_refused(&buffer, 1, &options, TEST_SET(OUT_OF_RANGE));
    options.pages = huge, options.pages_count = 1;
    send_is_refused(&buffer, 1, &options, TEST_SET(OUT_OF_RANGE));
    options.pages = pages, options.pages_count = 1, options.page_bytes = SIZE_MAX;
    send_is_refused(&buffer, 1, &options, TEST_SET(OUT_OF_RANGE));
}

static void peers_are_checked(void **state)
{
    (void)state;
    int pipes[2], packets[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets), 0);
    const int sockets[] = {-1, pipes[0], packets[0], 9999};
    loch_handover *taken = TEST_UNTOUCHED;
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        const loch_handover_peer peer = peer_of(sockets[i]);
        CHECK_FAILS(loch_handover_send(&peer, &buffer, 1, NULL, NULL, NULL), INVALID);
        CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, NULL, &taken), INVALID);
        assert_null(taken);
    }
    const loch_handover_peer unsized = {.socket = 0};
    CHECK_FAILS(loch_handover_send(&unsized, &buffer, 1, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_handover_send(NULL, &buffer, 1, NULL, NULL, NULL), INVALID);
    for (size_t i = 0; i < 2; i++) {
        close(pipes[i]);
        close(packets[i]);
    }
}

static void arguments_of_a_receiver_are_checked(void **state)
{
    (void)state;
    wires w = make_wires();
    const loch_handover_peer peer = peer_of(w.mine);
    loch_handover_receive_options options = {.size = sizeof options, .way = (loch_handover_way)3};
    loch_handover_info info = {.size = 0};
    loch_handover *taken = TEST_UNTOUCHED;
    loch_device *sim;
    loch_allocator *other;
    CHECK_FAILS(loch_handover_receive(&peer, NULL, NULL, NULL, &taken), INVALID);
    assert_null(taken);
    CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, &options, &taken), INVALID);
    options = (loch_handover_receive_options){.size = 1};
    CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, &options, &taken), INVALID);
    CHECK_OK(loch_device_open("sim:1GiB", &sim));
    CHECK_OK(loch_pool_create(sim, NULL, NULL, &other));
    options = (loch_handover_receive_options){.size = sizeof options, .allocator = other};
    CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, &options, &taken), INVALID);
    CHECK_FAILS(loch_handover_receive(&peer, cpu, loch_stream_get_default(sim), NULL, &taken), INVALID);
    loch_allocator_release(other);
    loch_device_release(sim);
    CHECK_FAILS(loch_handover_get_info(NULL, &info), INVALID);
    loch_handover_destroy(NULL);
    close_wires(&w);
}

/* --- messages --- */

/* Expects what a receiver makes of some bytes, behind which the giver ends. */
static void receiver_answers(const void *bytes, size_t count, unsigned expected)
{
    wires w = make_wires();
    const loch_handover_peer peer = peer_of(w.mine);
    loch_handover *taken = TEST_UNTOUCHED;
    assert_int_equal(send(w.theirs, bytes, count, 0), count);
    shutdown(w.theirs, SHUT_WR);
    CHECK_FAILS_SET(loch_handover_receive(&peer, cpu, NULL, NULL, &taken), expected);
    assert_null(taken);
    close_wires(&w);
}

/* An offer as bytes. */
typedef struct written {
    uint8_t *bytes;
    size_t count;
} written;

static written write_offer(const handover_offer *offer)
{
    uint8_t head[OFFER_HEAD_BYTES], *body;
    size_t body_bytes;
    CHECK_OK(lochi_comm_handover_offer_write(offer, head, &body, &body_bytes));
    const written all = {malloc(sizeof head + body_bytes), sizeof head + body_bytes};
    memcpy(all.bytes, head, sizeof head);
    memcpy(all.bytes + sizeof head, body, body_bytes);
    free(body);
    return all;
}

static void other_messages_are_refused(void **state)
{
    (void)state;
    offer_piece piece = {.bytes = 100};
    size_t offset = 0;
    uint8_t note[3] = {1, 2, 3};
    handover_offer good = {.count = 1,
                           .pieces = &piece,
                           .pages_count = 1,
                           .page_bytes = 50,
                           .page_offsets = &offset,
                           .note_bytes = 3,
                           .note = note};
    written all = write_offer(&good);
    for (size_t i = 0; i < all.count; i++) /* truncated anywhere */
        receiver_answers(all.bytes, i, TEST_SET(IO));
    for (size_t i = 0; i < 64; i++) { /* the head is damaged anywhere: refused, or the counts are still possible */
        uint8_t before = all.bytes[i];
        all.bytes[i] ^= 0x55;
        wires w = make_wires();
        const loch_handover_peer peer = peer_of(w.mine);
        loch_handover *taken = NULL;
        assert_int_equal(send(w.theirs, all.bytes, all.count, 0), all.count);
        shutdown(w.theirs, SHUT_WR);
        assert_true(loch_handover_receive(&peer, cpu, NULL, NULL, &taken) != LOCH_OK);
        assert_null(taken);
        close_wires(&w);
        all.bytes[i] = before;
    }
    free(all.bytes);
    offset = 51; /* a page beyond its piece */
    all = write_offer(&good);
    receiver_answers(all.bytes, all.count, TEST_SET(IO));
    free(all.bytes);
    offset = SIZE_MAX - 10;
    all = write_offer(&good);
    receiver_answers(all.bytes, all.count, TEST_SET(IO));
    free(all.bytes);
    offset = 0;
    piece.token_bytes = 20; /* a damaged token: the receiver asks for the contents, which do not come */
    all = write_offer(&good);
    receiver_answers(all.bytes, all.count, TEST_SET(IO));
    free(all.bytes);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    offer_piece pieces[2] = {{.bytes = SIZE_MAX / 2}, {.bytes = SIZE_MAX / 2}};
    size_t offsets[2] = {0, 0};
    handover_offer offer = {.count = 2, .pieces = pieces};
    written all = write_offer(&offer);
    receiver_answers(all.bytes, all.count, TEST_SET(IO)); /* more than an address space */
    free(all.bytes);
    offer.count = 1;
    pieces[0].bytes = SIZE_MAX / 4; /* more than the machine has: the answer to the giver has the status too */
    all = write_offer(&offer);
    receiver_answers(all.bytes, all.count, TEST_SET(DEVICE_MEMORY) | TEST_SET(LIMIT) | TEST_SET(OVERFLOW));
    free(all.bytes);
    offer = (handover_offer){
        .count = 2, .pieces = pieces, .pages_count = 2, .page_bytes = SIZE_MAX / 3, .page_offsets = offsets};
    all = write_offer(&offer);
    receiver_answers(all.bytes, all.count, TEST_SET(IO));
    free(all.bytes);
    offer.page_bytes = 50; /* pages of pieces that differ */
    pieces[0].bytes = 50, pieces[1].bytes = 100;
    all = write_offer(&offer);
    receiver_answers(all.bytes, all.count, TEST_SET(IO));
    free(all.bytes);
    offer.count = 0, offer.pieces = NULL; /* nothing */
    all = write_offer(&offer);
    receiver_answers(all.bytes, all.count, TEST_SET(IO));
    free(all.bytes);
}

static void another_version_is_named(void **state)
{
    (void)state;
    offer_piece piece = {.bytes = 100};
    handover_offer offer = {.count = 1, .pieces = &piece};
    written all = write_offer(&offer);
    uint8_t answer[OFFER_ANSWER_BYTES];
    offer_answer heard;
    wires w = make_wires();
    const loch_handover_peer peer = peer_of(w.mine);
    loch_handover *taken;
    all.bytes[8] = 77;
    assert_int_equal(send(w.theirs, all.bytes, all.count, 0), all.count);
    CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, NULL, &taken), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "version 77"));
    assert_int_equal(recv(w.theirs, answer, sizeof answer, 0), sizeof answer); /* the giver gets the status */
    CHECK_OK(lochi_comm_handover_answer_read(answer, &heard));
    assert_int_equal(heard.status, LOCH_E_UNSUPPORTED);
    close_wires(&w);
    free(all.bytes);
}

/* Expects what a giver makes of an answer. */
static void giver_answers(const void *bytes, size_t count, unsigned expected)
{
    wires w = make_wires();
    const loch_handover_peer peer = peer_of(w.mine);
    assert_int_equal(send(w.theirs, bytes, count, 0), count);
    shutdown(w.theirs, SHUT_WR);
    CHECK_FAILS_SET(loch_handover_send(&peer, &buffer, 1, NULL, NULL, NULL), expected);
    close_wires(&w);
}

static void other_answers_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[OFFER_ANSWER_BYTES];
    offer_answer answer = {.status = LOCH_E_LIMIT, .sentence = "no room"};
    lochi_comm_handover_answer_write(&answer, bytes);
    giver_answers(bytes, sizeof bytes, TEST_SET(LIMIT));
    for (size_t i = 0; i < sizeof bytes; i += 9)
        giver_answers(bytes, i, TEST_SET(IO));
    memset(answer.sentence, 'x', sizeof answer.sentence); /* without an end */
    lochi_comm_handover_answer_write(&answer, bytes);
    giver_answers(bytes, sizeof bytes, TEST_SET(LIMIT));
    bytes[8] = 200; /* no status */
    giver_answers(bytes, sizeof bytes, TEST_SET(IO));
    bytes[8] = 0, bytes[12] = 9; /* no verdict */
    giver_answers(bytes, sizeof bytes, TEST_SET(IO));
    bytes[12] = OFFER_SEND; /* the receiver ends before the contents */
    giver_answers(bytes, sizeof bytes, TEST_SET(IO));
}

/* --- peers --- */

static void a_peer_that_has_ended_is_noticed(void **state)
{
    (void)state;
    wires w = make_wires();
    const loch_handover_peer peer = peer_of(w.mine);
    loch_handover *taken;
    close(w.theirs);
    w.theirs = -1;
    CHECK_FAILS(loch_handover_send(&peer, &buffer, 1, NULL, NULL, NULL), IO);
    CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, NULL, &taken), IO);
    close_wires(&w);
}

static void a_peer_that_does_not_answer_is_not_waited_for(void **state)
{
    (void)state;
    wires w = make_wires();
    const loch_handover_peer peer = peer_of(w.mine);
    const loch_handover_receive_options receive = {.size = sizeof receive, .timeout_ns = 20000000};
    const loch_handover_send_options give = {.size = sizeof give, .timeout_ns = 20000000};
    loch_handover *taken;
    CHECK_FAILS(loch_handover_receive(&peer, cpu, NULL, &receive, &taken), BUSY);
    CHECK_FAILS(loch_handover_send(&peer, &buffer, 1, NULL, &give, NULL), BUSY);
    close_wires(&w);
}

static int begin(void **state)
{
    (void)state;
    CHECK_OK(loch_device_open("cpu", &cpu));
    pool = partner_pool(cpu, 0, LOCH_SHARE_FD);
    buffer = partner_buffer(pool, 4096, 1);
    return 0;
}

static int end(void **state)
{
    (void)state;
    loch_buffer_release(buffer);
    partner_end_pool(pool);
    loch_device_release(cpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_of_a_giver_are_checked),
        cmocka_unit_test(peers_are_checked),
        cmocka_unit_test(arguments_of_a_receiver_are_checked),
        cmocka_unit_test(other_messages_are_refused),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(other_answers_are_refused),
        cmocka_unit_test(a_peer_that_has_ended_is_noticed),
        cmocka_unit_test(a_peer_that_does_not_answer_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

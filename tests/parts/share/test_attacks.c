/* SPDX-License-Identifier: MIT */
/* Attacks on a process that imports. A is an owner, V (this process) imports from it, and B is hostile: it sends V a
 * parcel that names A as its owner. B runs as V's user, and as another user where the test can become one. */
#include "hostile.h"

enum { BYTES = 5000, SEED = 3 };

static loch_device *cpu;

/* What B needs to act for A: all of A's token, except the secret. */
typedef struct scene {
    partner owner;
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
    size_t token_bytes;
    hostile attacker;
    int sockets[2]; /* of the victim, of the attacker */
    bool is_skipped;
} scene;

static scene scene_begin(bool is_other_user)
{
    scene s = {.is_skipped = is_other_user && geteuid() != 0};
    if (s.is_skipped) {
        print_message("skipped: only root can start a process of another user\n");
        return s;
    }
    s.owner = partner_start("cpu");
    s.token_bytes = hostile_read_offer(&s.owner, 0, BYTES, s.token);
    partner_do_it(&s.owner, PARTNER_WRITE, 0, SEED);
    CHECK_OK(lochi_share_token_read(s.token, s.token_bytes, &s.attacker.token));
    s.attacker.is_other_user = is_other_user;
    s.attacker.sought = s.attacker.token.secret;
    memset(&s.attacker.token.secret, 7, sizeof s.attacker.token.secret);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s.sockets), 0);
    return s;
}

static void scene_end(scene *s)
{
    if (s->is_skipped) return;
    close(s->sockets[0]), close(s->sockets[1]);
    partner_stop(&s->owner);
}

static bool reads(const loch_buffer *buffer, uint64_t seed)
{
    return test_pattern_differs(loch_buffer_get_address(buffer), BYTES, seed) == BYTES;
}

/* --- tokens that name another owner --- */

/* V has A's memory mapped. What B sends under A's name is B's memory, and never A's. */
static void receive_beside_an_import(bool is_other_user)
{
    scene s = scene_begin(is_other_user);
    if (s.is_skipped) return;
    loch_buffer *of_owner, *of_attacker;
    CHECK_OK(loch_parcel_import(cpu, s.token, s.token_bytes, NULL, &of_owner));
    const pid_t attacker = hostile_start(&s.attacker, s.sockets[1]);
    CHECK_OK(loch_parcel_receive(cpu, s.sockets[0], NULL, &of_attacker));
    assert_true(reads(of_attacker, HOSTILE_SEED));
    memset(loch_buffer_get_address(of_attacker), 0, BYTES);
    assert_true(reads(of_owner, SEED));
    assert_int_equal(partner_do_it(&s.owner, PARTNER_COMPARE, 0, SEED), BYTES);
    loch_buffer_release(of_attacker);
    assert_int_equal(hostile_end(attacker), 0);
    loch_buffer_release(of_owner);
    scene_end(&s);
}

static void a_sender_cannot_hand_over_the_memory_of_a_third_process(void **state)
{
    (void)state;
    receive_beside_an_import(false);
    receive_beside_an_import(true);
}

/* B comes first. A's token leads to A's memory afterwards, and B does not see its secret. */
static void import_after_a_receive(bool is_other_user)
{
    scene s = scene_begin(is_other_user);
    if (s.is_skipped) return;
    loch_buffer *of_owner, *of_attacker;
    const pid_t attacker = hostile_start(&s.attacker, s.sockets[1]);
    CHECK_OK(loch_parcel_receive(cpu, s.sockets[0], NULL, &of_attacker));
    CHECK_OK(loch_parcel_import(cpu, s.token, s.token_bytes, NULL, &of_owner));
    assert_true(reads(of_owner, SEED));
    CHECK_OK(partner_put(of_owner, SEED + 1));
    assert_int_equal(partner_do_it(&s.owner, PARTNER_COMPARE, 0, SEED + 1), BYTES);
    assert_true(reads(of_attacker, HOSTILE_SEED));
    loch_buffer_release(of_owner);
    loch_buffer_release(of_attacker);
    assert_int_equal(hostile_end(attacker), 0);
    scene_end(&s);
}

static void a_sender_cannot_take_the_place_of_a_third_process_or_learn_its_secret(void **state)
{
    (void)state;
    import_after_a_receive(false);
    import_after_a_receive(true);
}

/* B knows A's token, and sends it to V without a connection, or with something else. V does not ask A. */
static void a_parcel_without_a_connection_is_refused(void **state)
{
    (void)state;
    scene s = scene_begin(false);
    loch_buffer *out = TEST_UNTOUCHED;
    uint8_t message[1 + LOCH_PARCEL_TOKEN_MAX] = {(uint8_t)s.token_bytes};
    memcpy(message + 1, s.token, s.token_bytes);
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (size_t descriptors = 0; descriptors < 2; descriptors++) {
        assert_int_equal(lochi_share_link_send(s.sockets[1], message, 1 + s.token_bytes, &file, descriptors, 0), 0);
        CHECK_FAILS(loch_parcel_receive(cpu, s.sockets[0], NULL, &out), IO);
        assert_null(out);
        assert_non_null(strstr(loch_error_get()->sentence, "connection"));
    }
    close(file);
    assert_int_equal(partner_do_it(&s.owner, PARTNER_COUNT, 0, 0), 0);
    scene_end(&s);
}

/* --- tokens that were changed --- */

/* A has two buffers of one size in two spans, and V has both. With the secret of the first, a token cannot lead to the
 * second. */
static void a_token_leads_to_the_span_of_its_parcel_alone(void **state)
{
    (void)state;
    enum { LARGE = 4 << 20 };
    partner owner = partner_start("cpu");
    uint8_t token[2][LOCH_PARCEL_TOKEN_MAX], changed[LOCH_PARCEL_TOKEN_MAX];
    share_token parts[2];
    loch_buffer *buffers[2], *out = TEST_UNTOUCHED;
    for (size_t i = 0; i < 2; i++) {
        const size_t length = hostile_read_offer(&owner, i, LARGE, token[i]);
        CHECK_OK(lochi_share_token_read(token[i], length, &parts[i]));
        CHECK_OK(loch_parcel_import(cpu, token[i], length, NULL, &buffers[i]));
    }
    assert_true(parts[0].span != parts[1].span && parts[0].span_bytes == parts[1].span_bytes);
    parts[0].span = parts[1].span;
    CHECK_FAILS(loch_parcel_import(cpu, changed, lochi_share_token_write(&parts[0], changed), NULL, &out), IO);
    assert_null(out);
    assert_non_null(strstr(loch_error_get()->sentence, "another buffer"));
    for (size_t i = 0; i < 2; i++)
        loch_buffer_release(buffers[i]);
    partner_stop(&owner);
}

/* The owner offers a buffer for reading. A token that says otherwise is refused, and in the owner itself has no
 * effect. */
static void a_token_cannot_widen_the_access(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(cpu, 0);
    loch_buffer *buffer, *out;
    loch_parcel *parcel;
    const loch_parcel_options options = {.size = sizeof options, .access = LOCH_READ_ONLY};
    CHECK_OK(loch_buffer_create(pool, BYTES, NULL, &buffer));
    CHECK_OK(loch_parcel_create(buffer, &options, &parcel));
    size_t length;
    share_token parts;
    uint8_t changed[LOCH_PARCEL_TOKEN_MAX];
    const void *token = loch_parcel_get_token(parcel, &length);
    CHECK_OK(lochi_share_token_read(token, length, &parts));
    parts.access = LOCH_READ_WRITE;
    length = lochi_share_token_write(&parts, changed);
    CHECK_OK(loch_parcel_import(cpu, changed, length, NULL, &out));
    assert_int_equal(loch_buffer_get_access(out), LOCH_READ_ONLY);
    loch_buffer_release(out);
    partner p = partner_start("cpu");
    assert_int_equal(partner_import_bytes(&p, 0, changed, length).status, LOCH_E_IO);
    partner_stop(&p);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    partner_await_empty(pool);
    loch_allocator_release(pool);
}

/* --- the name of an owner that has ended --- */

/* Listens under A's name as another user. Exits with the number of bytes that V sent. */
static void squat(const share_key *owner, int ready)
{
    char byte;
    if (setuid(HOSTILE_USER) != 0) _exit(5);
    const int listener = lochi_share_link_listen(owner);
    if (listener < 0 || write(ready, "x", 1) != 1) _exit(6);
    int link;
    while ((link = accept(listener, NULL, NULL)) < 0 && errno == EAGAIN)
        hostile_pause(1);
    if (link < 0) _exit(7);
    _exit((int)recv(link, &byte, 1, 0));
}

static void an_owner_of_another_user_is_sent_no_secret(void **state)
{
    (void)state;
    if (geteuid() != 0) skip(); /* only root can start a process of another user */
    partner owner = partner_start("cpu");
    uint8_t token[LOCH_PARCEL_TOKEN_MAX], byte;
    share_token parts;
    int ready[2];
    loch_buffer *out = TEST_UNTOUCHED;
    const size_t length = hostile_read_offer(&owner, 0, BYTES, token);
    CHECK_OK(lochi_share_token_read(token, length, &parts));
    partner_kill(&owner);
    assert_int_equal(pipe(ready), 0);
    const pid_t squatter = fork();
    assert_true(squatter >= 0);
    if (!squatter) squat(&parts.owner, ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    CHECK_FAILS(loch_parcel_import(cpu, token, length, NULL, &out), UNSUPPORTED);
    assert_null(out);
    assert_int_equal(hostile_end(squatter), 0);
    close(ready[0]), close(ready[1]);
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
        cmocka_unit_test(a_sender_cannot_hand_over_the_memory_of_a_third_process),
        cmocka_unit_test(a_sender_cannot_take_the_place_of_a_third_process_or_learn_its_secret),
        cmocka_unit_test(a_parcel_without_a_connection_is_refused),
        cmocka_unit_test(a_token_leads_to_the_span_of_its_parcel_alone),
        cmocka_unit_test(a_token_cannot_widen_the_access),
        cmocka_unit_test(an_owner_of_another_user_is_sent_no_secret),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

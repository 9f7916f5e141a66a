/* SPDX-License-Identifier: MIT */
/* Connections between importers and owners: which parcels a connection is good for, owners that are stopped or have no
 * descriptors, strangers, and copies of sockets that outlive their process. */
#include "link.h"
#include "message.h"
#include "second_process.h"
#include <poll.h>

#define OTHER_USER 65533

static loch_device *cpu;
static loch_allocator *pool;

static loch_parcel *make_parcel(size_t bytes, const loch_parcel_options *options)
{
    loch_buffer *buffer;
    loch_parcel *parcel;
    CHECK_OK(loch_buffer_create(pool, bytes, NULL, &buffer));
    CHECK_OK(loch_parcel_create(buffer, options, &parcel));
    loch_buffer_release(buffer);
    return parcel;
}

/* Imports a token in the partner, which admits an owner of any user. */
static partner_answer import_as_any(const partner *p, size_t slot, const loch_parcel *parcel)
{
    partner_command command = {.verb = PARTNER_IMPORT, .slot = slot, .users = LOCH_PARCEL_ANY_USER};
    const void *token = loch_parcel_get_token(parcel, &command.token_bytes);
    memcpy(command.token, token, command.token_bytes);
    return partner_tell(p, &command);
}

static share_key owner_of(const loch_parcel *parcel)
{
    size_t length;
    share_token parts;
    const void *token = loch_parcel_get_token(parcel, &length);
    CHECK_OK(lochi_share_token_read(token, length, &parts));
    return parts.owner;
}

static void stop(const partner *p)
{
    int status;
    assert_int_equal(kill(p->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
    assert_true(WIFSTOPPED(status));
}

/* Has the partner offer a buffer, and reads the token without the connection that comes with it. */
static size_t offer_for_token(const partner *p, uint8_t token[LOCH_PARCEL_TOKEN_MAX])
{
    uint8_t length;
    partner_do_it(p, PARTNER_OFFER, 0, 4000);
    assert_int_equal(read(p->parcels, &length, 1), 1);
    assert_int_equal(read(p->parcels, token, length), length);
    return length;
}

/* --- users --- */

static void a_received_parcel_is_let_in_beside_a_connection_that_was_made_before(void **state)
{
    (void)state;
    if (geteuid() != 0) skip(); /* only root can become another user */
    const loch_parcel_options any = {.size = sizeof any, .users = LOCH_PARCEL_ANY_USER};
    loch_parcel *closed = make_parcel(1000, NULL), *for_any = make_parcel(1000, &any);
    partner p = partner_start("cpu");
    partner_do_it(&p, PARTNER_USER, 0, OTHER_USER);
    assert_int_equal(import_as_any(&p, 0, for_any).status, LOCH_OK);
    CHECK_OK(loch_parcel_send(closed, p.parcels));
    partner_do_it(&p, PARTNER_RECEIVE, 1, 0);
    partner_await_imports(closed, 1);
    partner_stop(&p);
    loch_parcel_destroy(closed);
    loch_parcel_destroy(for_any);
    partner_await_empty(pool);
}

static void a_received_connection_lets_another_user_to_its_parcel_alone(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    loch_parcel *sent = make_parcel(1000, NULL), *closed = make_parcel(1000, NULL);
    partner p = partner_start("cpu");
    partner_do_it(&p, PARTNER_USER, 0, OTHER_USER);
    CHECK_OK(loch_parcel_send(sent, p.parcels));
    partner_do_it(&p, PARTNER_RECEIVE, 0, 0);
    const partner_answer answer = import_as_any(&p, 1, closed);
    assert_int_equal(answer.status, LOCH_E_UNSUPPORTED);
    assert_non_null(strstr(answer.sentence, "not for this user"));
    partner_do_it(&p, PARTNER_RELEASE, 0, 0);
    partner_await_imports(sent, 0);
    partner_stop(&p);

    p = partner_start("cpu");                                              /* the owner's user */
    const size_t files = partner_do_it(&p, PARTNER_FILES, 0, 0), each = 2; /* a connection, and the handle */
    CHECK_OK(loch_parcel_send(sent, p.parcels));
    partner_do_it(&p, PARTNER_RECEIVE, 0, 0);
    assert_int_equal(partner_do_it(&p, PARTNER_FILES, 0, 0), files + each);
    partner_import(&p, 1, closed);
    partner_import(&p, 2, sent);
    assert_int_equal(partner_do_it(&p, PARTNER_FILES, 0, 0), files + 2 * each); /* shared by both tokens */
    CHECK_OK(loch_parcel_send(closed, p.parcels));
    partner_do_it(&p, PARTNER_RECEIVE, 3, 0);
    assert_int_equal(partner_do_it(&p, PARTNER_FILES, 0, 0), files + 3 * each);
    for (size_t i = 0; i < 4; i++)
        partner_do_it(&p, PARTNER_RELEASE, i, 0);
    assert_int_equal(partner_do_it(&p, PARTNER_FILES, 0, 0), files + 1); /* the one for tokens stays open */
    partner_stop(&p);
    loch_parcel_destroy(sent);
    loch_parcel_destroy(closed);
}

/* A parcel on the wire that is asked for by hand: what a process can do that has a connection and a token. The
 * connection is for its parcel alone, also for the owner's user: the process behind it is not known. */
static void ask_over_a_passed_connection(bool is_other_user)
{
    loch_parcel *sent = make_parcel(1000, NULL), *closed = make_parcel(1000, NULL);
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    CHECK_OK(loch_parcel_send(sent, ends[0]));
    uint8_t message[1 + LOCH_PARCEL_TOKEN_MAX];
    int descriptors[SHARE_CHUNK];
    size_t length, count;
    assert_int_equal(lochi_share_link_receive(ends[1], message, sizeof message, 0, &length, descriptors, &count), 0);
    assert_int_equal(count, 1);
    share_token parts;
    const void *token = loch_parcel_get_token(closed, &length);
    CHECK_OK(lochi_share_token_read(token, length, &parts));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        share_reply reply;
        const share_request request = {.magic = SHARE_MAGIC,
                                       .version = SHARE_VERSION,
                                       .kind = SHARE_IMPORT,
                                       .parcel = parts.parcel,
                                       .lease = 1,
                                       .sequence = SHARE_FIRST,
                                       .secret = parts.secret};
        uint8_t bytes[sizeof reply];
        int none[SHARE_CHUNK];
        if (is_other_user && setuid(OTHER_USER) != 0) _exit(1);
        if (lochi_share_link_send(descriptors[0], &request, sizeof request, NULL, 0, 0) != 0) _exit(2);
        if (lochi_share_link_receive(descriptors[0], bytes, sizeof bytes, lochi_share_deadline(10000000000u), &length,
                                     none, &count) != 0)
            _exit(3);
        if (!lochi_share_reply_is_sound(bytes, length, &reply)) _exit(4);
        _exit(reply.result == SHARE_NO_USER ? 0 : 5);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(descriptors[0]), close(ends[0]), close(ends[1]);
    loch_parcel_destroy(sent);
    loch_parcel_destroy(closed);
}

static void a_connection_that_is_passed_on_is_for_its_parcel_alone(void **state)
{
    (void)state;
    ask_over_a_passed_connection(false);
    if (geteuid() == 0) ask_over_a_passed_connection(true);
}

/* What a stranger sees: each of its connections is answered and closed. */
static int connect_as_stranger(const share_key *owner)
{
    enum { LINKS = 30 };
    int links[LINKS];
    if (setuid(OTHER_USER) != 0) return 1;
    for (size_t i = 0; i < LINKS; i++)
        if ((links[i] = lochi_share_link_connect(owner, lochi_share_deadline(10000000000u))) < 0) return 2;
    for (size_t i = 0; i < LINKS; i++) {
        uint8_t bytes[sizeof(share_reply)];
        int none[SHARE_CHUNK];
        size_t length, count;
        share_reply reply;
        if (lochi_share_link_receive(links[i], bytes, sizeof bytes, lochi_share_deadline(10000000000u), &length, none,
                                     &count) != 0)
            return 3;
        if (!lochi_share_reply_is_sound(bytes, length, &reply) || reply.result != SHARE_NO_USER) return 4;
        if (lochi_share_link_receive(links[i], bytes, sizeof bytes, lochi_share_deadline(10000000000u), &length, none,
                                     &count) ||
            length)
            return 5;
    }
    return 0;
}

static void strangers_take_no_descriptors_of_an_owner(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    loch_parcel *closed = make_parcel(1000, NULL);
    const share_key owner = owner_of(closed);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(connect_as_stranger(&owner));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    loch_parcel_destroy(closed);
}

/* --- processes that end --- */

/* A process can have a copy of the importer's socket that no handler of forks closes. */
static void a_killed_receiver_lets_go_though_a_copy_of_its_socket_lives(void **state)
{
    (void)state;
    loch_parcel *parcel = make_parcel(1000, NULL);
    for (int is_received = 0; is_received < 2; is_received++) {
        partner p = partner_start("cpu");
        if (is_received) {
            CHECK_OK(loch_parcel_send(parcel, p.parcels));
            partner_do_it(&p, PARTNER_RECEIVE, 0, 0);
        } else {
            partner_import(&p, 0, parcel);
        }
        partner_await_imports(parcel, 1);
        const pid_t child = (pid_t)partner_do_it(&p, PARTNER_COPY, 0, 0);
        partner_kill(&p);
        partner_await_imports(parcel, 0);
        assert_int_equal(kill(child, SIGKILL), 0); /* lives */
    }
    loch_parcel_destroy(parcel);
}

/* --- owners that do not answer --- */

static void an_owner_that_accepts_no_connection_is_waited_for_so_long(void **state)
{
    (void)state;
    enum { LINKS = 5000 }; /* more than a queue has room for */
    int *links = malloc(LINKS * sizeof *links);
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
    loch_buffer *buffer = TEST_UNTOUCHED;
    partner p = partner_start("cpu");
    const size_t length = offer_for_token(&p, token);
    share_token parts;
    CHECK_OK(lochi_share_token_read(token, length, &parts));
    stop(&p);
    size_t count = 0;
    while (count < LINKS && (links[count] = lochi_share_link_connect(&parts.owner, lochi_share_deadline(1000000))) >= 0)
        count++;
    assert_true(count < LINKS);
    const loch_parcel_import_options options = {.size = sizeof options, .timeout_ns = 20000000};
    CHECK_FAILS(loch_parcel_import(cpu, token, length, &options, &buffer), BUSY);
    assert_null(buffer);
    assert_non_null(strstr(loch_error_get()->sentence, "does not answer"));
    lochi_share_link_close_all(links, count);
    free(links);
    assert_int_equal(kill(p.pid, SIGCONT), 0);
    CHECK_OK(loch_parcel_import(cpu, token, length, NULL, &buffer));
    loch_buffer_release(buffer);
    partner_stop(&p);
}

/* More ends of leases than a socket takes. What could not be sent is not lost, and needs no further call. */
static void leases_end_though_their_owner_was_stopped(void **state)
{
    (void)state;
    enum { LEASES = 6000 };
    loch_buffer **buffers = calloc(LEASES, sizeof *buffers);
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
    partner p = partner_start("cpu");
    const size_t length = offer_for_token(&p, token);
    for (size_t i = 0; i < LEASES; i++)
        CHECK_OK(loch_parcel_import(cpu, token, length, NULL, &buffers[i]));
    assert_int_equal(partner_do_it(&p, PARTNER_COUNT, 0, 0), LEASES);
    stop(&p);
    for (size_t i = 0; i < LEASES; i++)
        loch_buffer_release(buffers[i]);
    free(buffers);
    assert_int_equal(kill(p.pid, SIGCONT), 0);
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_do_it(&p, PARTNER_COUNT, 0, 0) && time(NULL) < end)
        partner_pause();
    assert_int_equal(partner_do_it(&p, PARTNER_COUNT, 0, 0), 0);
    partner_stop(&p);
}

static int begin(void **state)
{
    (void)state;
    CHECK_OK(loch_device_open("cpu", &cpu));
    pool = partner_pool(cpu, 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    partner_await_empty(pool);
    loch_allocator_release(pool);
    loch_device_release(cpu);
    return 0;
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_received_parcel_is_let_in_beside_a_connection_that_was_made_before),
        cmocka_unit_test(a_received_connection_lets_another_user_to_its_parcel_alone),
        cmocka_unit_test(a_connection_that_is_passed_on_is_for_its_parcel_alone),
        cmocka_unit_test(strangers_take_no_descriptors_of_an_owner),
        cmocka_unit_test(a_killed_receiver_lets_go_though_a_copy_of_its_socket_lives),
        cmocka_unit_test(an_owner_that_accepts_no_connection_is_waited_for_so_long),
        cmocka_unit_test(leases_end_though_their_owner_was_stopped),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

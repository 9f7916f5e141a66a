/* SPDX-License-Identifier: MIT */
/* What cannot be imported: wrong tokens, wrong users, owners that have gone, processes without descriptors. Every
 * refusal has a sentence, and nothing is held after it. */
#include "message.h"
#include "second_process.h"
#include "link.h"

static loch_device *cpu;
static loch_allocator *pool;

static loch_buffer *make_buffer(size_t bytes)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(pool, bytes, NULL, &buffer));
    return buffer;
}

static loch_parcel *make_parcel(size_t bytes, const loch_parcel_options *options)
{
    loch_buffer *buffer = make_buffer(bytes);
    loch_parcel *parcel;
    CHECK_OK(loch_parcel_create(buffer, options, &parcel));
    loch_buffer_release(buffer);
    return parcel;
}

static void expect_refused(partner_answer answer, loch_status status, const char *words)
{
    if (answer.status != status || !strstr(answer.sentence, words))
        fail_msg("%s: %s, not %s with \"%s\"", loch_status_name(answer.status), answer.sentence,
                 loch_status_name(status), words);
}

/* --- arguments --- */

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    loch_buffer *buffer = make_buffer(1000), *out = TEST_UNTOUCHED;
    loch_parcel *parcel = TEST_UNTOUCHED;
    const loch_parcel_options unset = {.size = 0}, users = {.size = sizeof users, .users = (loch_parcel_users)3},
                              access = {.size = sizeof access, .access = (loch_access)2};
    CHECK_FAILS(loch_parcel_create(NULL, NULL, &parcel), INVALID);
    assert_null(parcel);
    CHECK_FAILS(loch_parcel_create(buffer, NULL, NULL), INVALID);
    CHECK_FAILS(loch_parcel_create(buffer, &unset, &parcel), INVALID);
    CHECK_FAILS(loch_parcel_create(buffer, &users, &parcel), INVALID);
    CHECK_FAILS(loch_parcel_create(buffer, &access, &parcel), INVALID);
    loch_parcel_destroy(NULL);
    size_t length = 77;
    assert_null(loch_parcel_get_token(NULL, &length));
    assert_int_equal(length, 0);

    CHECK_OK(loch_parcel_create(buffer, NULL, &parcel));
    loch_parcel_info info = {.size = 0};
    CHECK_FAILS(loch_parcel_get_info(parcel, &info), INVALID);
    CHECK_FAILS(loch_parcel_get_info(NULL, &info), INVALID);
    CHECK_FAILS(loch_parcel_get_info(parcel, NULL), INVALID);
    const void *token = loch_parcel_get_token(parcel, &length);
    CHECK_FAILS(loch_parcel_import(NULL, token, length, NULL, &out), INVALID);
    assert_null(out);
    CHECK_FAILS(loch_parcel_import(cpu, NULL, length, NULL, &out), INVALID);
    CHECK_FAILS(loch_parcel_import(cpu, token, length, NULL, NULL), INVALID);
    const loch_parcel_import_options import = {.size = sizeof import, .users = (loch_parcel_users)9};
    CHECK_FAILS(loch_parcel_import(cpu, token, length, &import, &out), INVALID);
    CHECK_FAILS(loch_parcel_send(NULL, 0), INVALID);
    CHECK_FAILS(loch_parcel_send(parcel, -1), INVALID);
    CHECK_FAILS(loch_parcel_receive(cpu, -1, NULL, &out), INVALID);
    CHECK_FAILS(loch_parcel_receive(NULL, 0, NULL, &out), INVALID);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    CHECK_FAILS(loch_parcel_send(parcel, ends[1]), INVALID);
    CHECK_FAILS(loch_parcel_receive(cpu, ends[0], NULL, &out), INVALID);
    close(ends[0]), close(ends[1]);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
}

static void memory_that_is_not_shareable_is_refused(void **state)
{
    (void)state;
    loch_buffer *buffer;
    loch_parcel *parcel = TEST_UNTOUCHED;
    char own[100];
    CHECK_OK(loch_buffer_create_for_device(cpu, 1000, NULL, &buffer)); /* a pool that was not created for it */
    CHECK_FAILS(loch_parcel_create(buffer, NULL, &parcel), UNSUPPORTED);
    assert_null(parcel);
    assert_non_null(strstr(loch_error_get()->sentence, "LOCH_SHARE_FD"));
    loch_buffer_release(buffer);
    CHECK_OK(loch_buffer_wrap(own, sizeof own, NULL, &buffer));
    CHECK_FAILS(loch_parcel_create(buffer, NULL, &parcel), UNSUPPORTED);
    loch_buffer_release(buffer);
    CHECK_OK(loch_buffer_create(pool, 0, NULL, &buffer));
    CHECK_FAILS(loch_parcel_create(buffer, NULL, &parcel), INVALID);
    loch_buffer_release(buffer);
    test_end_defaults();
}

static void a_socket_that_ends_or_lies_gives_no_parcel(void **state)
{
    (void)state;
    loch_buffer *out = TEST_UNTOUCHED;
    loch_parcel *parcel = make_parcel(1000, NULL);
    for (int kind = SOCK_STREAM; kind <= SOCK_SEQPACKET; kind++) {
        int ends[2];
        if (kind != SOCK_STREAM && kind != SOCK_DGRAM && kind != SOCK_SEQPACKET) continue;
        const size_t files = partner_count_files();
        assert_int_equal(socketpair(AF_UNIX, kind, 0, ends), 0);
        assert_int_equal(write(ends[0], "\005hello", 6), 6);
        CHECK_FAILS(loch_parcel_receive(cpu, ends[1], NULL, &out), IO);
        CHECK_OK(loch_parcel_send(parcel, ends[0])); /* whole, and behind what was read */
        CHECK_OK(loch_parcel_receive(cpu, ends[1], NULL, &out));
        loch_buffer_release(out);
        if (kind != SOCK_STREAM) {
            assert_int_equal(write(ends[0], "\011hello", 6), 6); /* shorter than it says */
            CHECK_FAILS(loch_parcel_receive(cpu, ends[1], NULL, &out), IO);
        }
        close(ends[0]);
        if (kind != SOCK_DGRAM) CHECK_FAILS(loch_parcel_receive(cpu, ends[1], NULL, &out), IO);
        CHECK_FAILS(loch_parcel_send(parcel, ends[1]), IO); /* and no SIGPIPE */
        close(ends[1]);
        const time_t end = time(NULL) + PARTNER_SECONDS; /* the thread closes its ends of connections */
        while (partner_count_files() != files && time(NULL) < end)
            partner_pause();
        assert_int_equal(partner_count_files(), files);
    }
    loch_parcel_destroy(parcel);
}

/* --- tokens --- */

static void damaged_and_forged_tokens_are_refused(void **state)
{
    (void)state;
    loch_parcel *parcel = make_parcel(5000, NULL);
    size_t length;
    const uint8_t *token = loch_parcel_get_token(parcel, &length);
    uint8_t copy[LOCH_PARCEL_TOKEN_MAX] = {0};
    loch_buffer *out = TEST_UNTOUCHED;
    for (size_t i = 0; i < length; i++) { /* truncated */
        CHECK_FAILS(loch_parcel_import(cpu, token, i, NULL, &out), INVALID);
        assert_null(out);
    }
    for (size_t bit = 0; bit < 8 * length; bit++) { /* damaged */
        memcpy(copy, token, length);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_FAILS_SET(loch_parcel_import(cpu, copy, length, NULL, &out), TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
    }
    memcpy(copy, token, length);
    copy[4]++; /* the version */
    CHECK_FAILS(loch_parcel_import(cpu, copy, length, NULL, &out), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "version"));

    partner p = partner_start("cpu");
    const size_t files = partner_do_it(&p, PARTNER_FILES, 0, 0);
    share_token parts;
    CHECK_OK(lochi_share_token_read(token, length, &parts));
    share_token forged = parts;
    forged.secret.bytes[3] ^= 1; /* a good sum, and a wrong secret */
    expect_refused(partner_import_bytes(&p, 0, copy, lochi_share_token_write(&forged, copy)), LOCH_E_NOT_FOUND,
                   "destroyed");
    CHECK_FAILS(loch_parcel_import(cpu, copy, length, NULL, &out), NOT_FOUND); /* in the owner itself too */
    forged = parts;
    forged.parcel += 1000;
    expect_refused(partner_import_bytes(&p, 0, copy, lochi_share_token_write(&forged, copy)), LOCH_E_NOT_FOUND,
                   "destroyed");
    forged = parts;
    forged.owner.bytes[0] ^= 1;
    expect_refused(partner_import_bytes(&p, 0, copy, lochi_share_token_write(&forged, copy)), LOCH_E_NOT_FOUND,
                   "has ended");
    forged = parts;
    forged.offset += 64;
    expect_refused(partner_import_bytes(&p, 0, copy, lochi_share_token_write(&forged, copy)), LOCH_E_IO,
                   "another buffer");
    forged = parts;
    forged.bytes = parts.span_bytes - parts.offset;
    expect_refused(partner_import_bytes(&p, 0, copy, lochi_share_token_write(&forged, copy)), LOCH_E_IO,
                   "another buffer");
    memcpy(forged.driver, "cuda", 5);
    expect_refused(partner_import_bytes(&p, 0, copy, lochi_share_token_write(&forged, copy)), LOCH_E_INVALID,
                   "\"cuda\"");
    partner_await_imports(parcel, 0);
    assert_true(partner_do_it(&p, PARTNER_FILES, 0, 0) <= files + 1); /* the connection */
    partner_import(&p, 0, parcel);                                    /* works afterwards */
    partner_stop(&p);

    loch_device *sim;
    CHECK_OK(loch_device_open("sim:1GiB", &sim));
    CHECK_FAILS(loch_parcel_import(sim, token, length, NULL, &out), INVALID);
    loch_device_release(sim);
    loch_parcel_destroy(parcel);
}

static void a_parcel_that_was_destroyed_is_not_found(void **state)
{
    (void)state;
    loch_parcel *parcel = make_parcel(5000, NULL);
    size_t length;
    uint8_t copy[LOCH_PARCEL_TOKEN_MAX];
    loch_buffer *out = TEST_UNTOUCHED;
    const void *token = loch_parcel_get_token(parcel, &length);
    memcpy(copy, token, length);
    partner p = partner_start("cpu");
    partner_import(&p, 0, parcel);
    loch_parcel_destroy(parcel);
    expect_refused(partner_import_bytes(&p, 1, copy, length), LOCH_E_NOT_FOUND, "destroyed");
    CHECK_FAILS(loch_parcel_import(cpu, copy, length, NULL, &out), NOT_FOUND);
    partner_do_it(&p, PARTNER_WRITE, 0, 1); /* the earlier import stays */
    partner_stop(&p);
    partner_await_empty(pool);
}

/* --- users --- */

static void other_users_are_refused_unless_allowed(void **state)
{
    (void)state;
    if (geteuid() != 0) skip(); /* only root can become another user */
    enum { OTHER = 65533 };
    loch_parcel *closed = make_parcel(1000, NULL);
    const loch_parcel_options one = {.size = sizeof one, .users = LOCH_PARCEL_ONE_USER, .user_id = OTHER},
                              wrong = {.size = sizeof wrong, .users = LOCH_PARCEL_ONE_USER, .user_id = OTHER - 1},
                              any = {.size = sizeof any, .users = LOCH_PARCEL_ANY_USER};
    loch_parcel *for_one = make_parcel(1000, &one), *for_wrong = make_parcel(1000, &wrong),
                *for_any = make_parcel(1000, &any);
    partner p = partner_start("cpu");
    partner_do_it(&p, PARTNER_USER, 0, OTHER);
    /* The importer has to trust the owner's user too. */
    expect_refused(partner_try_import(&p, 0, for_any), LOCH_E_UNSUPPORTED, "user 0");
    loch_parcel *const all[] = {closed, for_wrong, for_one, for_any};
    for (size_t i = 0; i < 4; i++) {
        size_t length;
        const void *token = loch_parcel_get_token(all[i], &length);
        partner_command command = {
            .verb = PARTNER_IMPORT, .slot = i, .token_bytes = length, .users = LOCH_PARCEL_ANY_USER};
        memcpy(command.token, token, length);
        const partner_answer answer = partner_tell(&p, &command);
        if (i < 2)
            expect_refused(answer, LOCH_E_UNSUPPORTED, "not for this user");
        else
            assert_int_equal(answer.status, LOCH_OK);
    }
    partner_stop(&p);
    p = partner_start("cpu"); /* what is sent over a socket needs no permission */
    partner_do_it(&p, PARTNER_USER, 0, OTHER);
    CHECK_OK(loch_parcel_send(closed, p.parcels));
    partner_do_it(&p, PARTNER_RECEIVE, 0, 0);
    partner_await_imports(closed, 1);
    partner_stop(&p);
    for (size_t i = 0; i < 4; i++)
        loch_parcel_destroy(all[i]);
    partner_await_empty(pool);
}

/* --- descriptors --- */

static void an_importer_without_descriptors_is_unharmed(void **state)
{
    (void)state;
    loch_parcel *parcel = make_parcel(5000, NULL);
    partner p = partner_start("cpu");
    for (size_t more = 1; more < 4; more++) {
        partner_do_it(&p, PARTNER_LIMIT, 0, more);
        const partner_answer answer = partner_try_import(&p, 0, parcel);
        partner_do_it(&p, PARTNER_LIMIT, 0, 0);
        if (answer.status == LOCH_OK) { /* enough descriptors by now */
            assert_true(more > 2);
            partner_do_it(&p, PARTNER_RELEASE, 0, 0);
        } else if (answer.status != LOCH_E_DEVICE_MEMORY) { /* the driver duplicates a descriptor */
            expect_refused(answer, LOCH_E_LIMIT, "file descriptor");
        }
        partner_await_imports(parcel, 0);
    }
    partner_import(&p, 0, parcel);
    partner_do_it(&p, PARTNER_WRITE, 0, 1);
    partner_stop(&p);
    loch_parcel_destroy(parcel);
}

static size_t idle_sockets; /* of this process while no importer is connected */

static size_t count_sockets(void)
{
    size_t count = 0;
    char path[64], target[16] = "";
    for (int file = 0; file < 256; file++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        count += readlink(path, target, sizeof target) > 0 && memcmp(target, "socket:", 7) == 0;
    }
    return count;
}

/* Waits until this process has seen that the importers of earlier tests ended. */
static void await_no_connection(void)
{
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (count_sockets() > idle_sockets && time(NULL) < end)
        partner_pause();
    assert_int_equal(count_sockets(), idle_sockets);
}

static void an_owner_without_descriptors_is_unharmed(void **state)
{
    (void)state;
    await_no_connection(); /* one that ends later would leave a descriptor */
    loch_parcel *parcel = make_parcel(5000, NULL);
    partner known = partner_start("cpu"), fresh = partner_start("cpu");
    partner_import(&known, 0, parcel);
    partner_do_it(&known, PARTNER_RELEASE, 0, 0);
    partner_await_imports(parcel, 0); /* so the thread has closed the descriptors that it sent */
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int next = dup(0);
    none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = limit.rlim_max};
    close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const partner_answer on_old = partner_try_import(&known, 0, parcel), on_new = partner_try_import(&fresh, 0, parcel);
    const partner_answer again = partner_try_import(&fresh, 0, parcel); /* the thread still answers */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    expect_refused(on_old, LOCH_E_LIMIT, "no file descriptor left for an import");
    expect_refused(on_new, LOCH_E_LIMIT, "no file descriptor left for an import"); /* refused at the door */
    expect_refused(again, LOCH_E_LIMIT, "no file descriptor left for an import");
    partner_await_imports(parcel, 0);
    partner_import(&known, 0, parcel);
    partner_import(&fresh, 0, parcel);
    partner_stop(&known);
    partner_stop(&fresh);
    loch_parcel_destroy(parcel);
}

/* --- processes that break the protocol --- */

static void nonsense_on_the_socket_harms_no_other_importer(void **state)
{
    (void)state;
    await_no_connection(); /* one that ends later would be counted below */
    loch_parcel *parcel = make_parcel(5000, NULL);
    size_t length;
    const void *token = loch_parcel_get_token(parcel, &length);
    share_token parts;
    CHECK_OK(lochi_share_token_read(token, length, &parts));
    partner p = partner_start("cpu");
    partner_import(&p, 0, parcel);
    partner_import(&p, 1, parcel);
    partner_do_it(&p, PARTNER_RELEASE, 1, 0);
    partner_await_imports(parcel, 1); /* so the thread has closed the descriptors that it sent */
    const size_t files = partner_count_files();
    test_random random = {test_seed(17)};
    for (size_t i = 0; i < 200; i++) {
        const int link = lochi_share_link_connect(&parts.owner, lochi_share_deadline(10000000000u));
        assert_true(link >= 0);
        share_request request = {.magic = SHARE_MAGIC,
                                 .version = SHARE_VERSION,
                                 .kind = (uint16_t)test_random_below(&random, 7),
                                 .parcel = parts.parcel + test_random_below(&random, 2),
                                 .lease = test_random_below(&random, 4),
                                 .secret = parts.secret,
                                 .first = (uint32_t)test_random_below(&random, 3),
                                 .wants = (uint32_t)test_random_below(&random, 3)};
        for (size_t j = test_random_below(&random, 12); j > 0; j--) {
            uint8_t *bytes = (uint8_t *)&request;
            if (test_random_below(&random, 3) == 0)
                bytes[test_random_below(&random, sizeof request)] = (uint8_t)test_random_next(&random);
            request.lease++;
            const size_t bytes_sent = test_random_below(&random, 4) ? sizeof request : test_random_below(&random, 80);
            uint8_t message[128] = {0};
            memcpy(message, &request, sizeof request);
            const int passed = j % 3 ? -1 : 0; /* descriptors that were not asked for */
            (void)!lochi_share_link_send(link, message, bytes_sent, &passed, passed == 0, MSG_DONTWAIT);
        }
        close(link);
    }
    partner_do_it(&p, PARTNER_WRITE, 0, 3);
    partner_import(&p, 1, parcel);
    partner_await_imports(parcel, 2);
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_count_files() != files && time(NULL) < end)
        partner_pause();
    assert_int_equal(partner_count_files(), files);
    partner_stop(&p);
    partner_await_imports(parcel, 0);
    loch_parcel_destroy(parcel);
}

/* An owner that does not answer: it is stopped. The lease that it grants too late is given back. */
static void an_owner_that_does_not_answer_is_waited_for_so_long(void **state)
{
    (void)state;
    partner p = partner_start("cpu");
    loch_buffer *buffer, *second = TEST_UNTOUCHED;
    partner_do_it(&p, PARTNER_OFFER, 0, 4000);
    CHECK_OK(loch_parcel_receive(cpu, p.parcels, NULL, &buffer));
    partner_do_it(&p, PARTNER_OFFER, 1, 4000);
    int status;
    assert_int_equal(kill(p.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(p.pid, &status, WUNTRACED), p.pid);
    assert_true(WIFSTOPPED(status));
    const loch_parcel_import_options options = {.size = sizeof options, .timeout_ns = 20000000};
    CHECK_FAILS(loch_parcel_receive(cpu, p.parcels, &options, &second), BUSY);
    assert_null(second);
    assert_int_equal(kill(p.pid, SIGCONT), 0);
    const time_t end = time(NULL) + PARTNER_SECONDS;
    partner_do_it(&p, PARTNER_WRITE, 0, 8);
    assert_int_equal(test_pattern_differs(loch_buffer_get_address(buffer), 4000, 8), 4000);
    while (partner_do_it(&p, PARTNER_COUNT, 1, 0) && time(NULL) < end)
        partner_pause();
    assert_int_equal(partner_do_it(&p, PARTNER_COUNT, 0, 0), 1); /* the connection stayed, and so did the lease */
    partner_do_it(&p, PARTNER_OFFER, 2, 4000);
    CHECK_OK(loch_parcel_receive(cpu, p.parcels, NULL, &second)); /* the late answer is not taken for this one */
    loch_buffer_release(second);
    loch_buffer_release(buffer);
    partner_stop(&p);
}

static int begin(void **state)
{
    (void)state;
    CHECK_OK(loch_device_open("cpu", &cpu));
    pool = partner_pool(cpu, 0);
    loch_parcel_destroy(make_parcel(5000, NULL)); /* starts the thread that answers, with its sockets */
    idle_sockets = count_sockets();
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
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(memory_that_is_not_shareable_is_refused),
        cmocka_unit_test(a_socket_that_ends_or_lies_gives_no_parcel),
        cmocka_unit_test(damaged_and_forged_tokens_are_refused),
        cmocka_unit_test(a_parcel_that_was_destroyed_is_not_found),
        cmocka_unit_test(other_users_are_refused_unless_allowed),
        cmocka_unit_test(an_importer_without_descriptors_is_unharmed),
        cmocka_unit_test(an_owner_without_descriptors_is_unharmed),
        cmocka_unit_test(nonsense_on_the_socket_harms_no_other_importer),
        cmocka_unit_test(an_owner_that_does_not_answer_is_waited_for_so_long),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

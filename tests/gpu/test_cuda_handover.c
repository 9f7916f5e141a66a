/* SPDX-License-Identifier: MIT */
/* Hand-overs between two processes on a real GPU: mapped without a copy, in the order of the giver's stream, copied
 * into memory that grows, sent through the host, and processes that are killed. Then two ranks of NCCL on the one GPU,
 * each of which claims to be on a machine of its own (NCCL_HOSTID): hand-overs and cuts over sockets of NCCL.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("cpu" tries the program itself). */
#include "double.h"
#include "find_library.h"
#include "handover_ranks.h"
#include <spawn.h>

#define KILL_ROUNDS 12

static const char *device_name = "cuda:0";
static loch_device *device;

static const partner_command take_it = {.verb = PARTNER_TAKE};

/* Hands one buffer over with a seed in its note, and expects that the partner has it right. */
static partner_answer hand_over(partner *p, const partner_command *command, loch_buffer *buffer, uint64_t seed,
                                loch_stream *stream, loch_handover_send_options options, loch_handover **given)
{
    const loch_handover_peer peer = partner_peer(p);
    const partner_note note = {.seed = seed};
    options.size = sizeof options;
    options.note = &note;
    options.note_bytes = sizeof note;
    partner_tell(p, command);
    CHECK_OK(loch_handover_send(&peer, &buffer, 1, stream, &options, given));
    const partner_answer answer = partner_hear(p);
    if (answer.status != LOCH_OK) fail_msg("the partner: %s", answer.sentence);
    return answer;
}

static const loch_handover_send_options plain = {.size = sizeof plain};

static size_t reserved_bytes(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info.reserved_bytes;
}

static void a_cache_of_64_mib_is_mapped_and_not_copied(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0, LOCH_SHARE_FD);
    loch_buffer *cache = partner_buffer(pool, 64 * TEST_MIB, 3);
    const size_t reserved = reserved_bytes(pool);
    partner p = partner_start(device_name);
    loch_handover *given;
    const uint64_t copies = test_call_count(device, "copy");
    const partner_answer answer = hand_over(&p, &take_it, cache, 3, NULL, plain, &given);
    assert_int_equal(answer.way, LOCH_HANDOVER_MAPPED);
    assert_true(answer.is_right);
    assert_int_equal(answer.copies, 0);
    assert_int_equal(test_call_count(device, "copy"), copies);
    assert_int_equal(reserved_bytes(pool), reserved);
    partner_await_held(given, 1);
    loch_buffer_release(cache);
    loch_handover_destroy(given);
    assert_true(partner_used_bytes(pool) >= 64 * TEST_MIB); /* until the receiver lets go */
    assert_true(partner_ask(&p, PARTNER_COMPARE, 0, 0).is_right);
    partner_ask(&p, PARTNER_DROP, 0, 0);
    partner_end_pool(pool);
    partner_stop(&p);
}

static void pages_are_mapped(void **state)
{
    (void)state;
    static const size_t pages[] = {30, 2, 3, 0};
    const size_t page_bytes = TEST_MIB / 2;
    loch_allocator *pool = partner_pool(device, 0, LOCH_SHARE_FD);
    loch_buffer *region = partner_buffer(pool, 32 * page_bytes, 1);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(partner_put(region, pages[i] * page_bytes, page_bytes, 70 + 1000 * i));
    partner p = partner_start(device_name);
    const loch_handover_send_options options = {.pages = pages, .pages_count = 4, .page_bytes = page_bytes};
    for (size_t round = 0; round < 2; round++) {
        const partner_command command = {.verb = PARTNER_TAKE,
                                         .way = round ? LOCH_HANDOVER_COPIED : LOCH_HANDOVER_AUTO};
        loch_handover *given;
        const partner_answer answer = hand_over(&p, &command, region, 70, NULL, options, &given);
        assert_int_equal(answer.way, round ? LOCH_HANDOVER_COPIED : LOCH_HANDOVER_MAPPED);
        assert_int_equal(answer.bytes, 4 * page_bytes);
        assert_true(answer.is_right);
        partner_ask(&p, PARTNER_DROP, 0, 0);
        partner_await_held(given, 0);
        loch_handover_destroy(given);
    }
    loch_buffer_release(region);
    partner_end_pool(pool);
    partner_stop(&p);
}

/* The receiver's first use comes after the work that the giver has queued. */
static void the_order_of_the_giver_is_kept(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0, LOCH_SHARE_FD);
    partner p = partner_start(device_name);
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    for (size_t round = 0; round < 5; round++) {
        const size_t bytes = gpu_or_double(device, 256 * TEST_MIB, 4 * TEST_MIB);
        loch_buffer *buffer = partner_buffer(pool, bytes, 5), *target = partner_buffer(pool, bytes, 6);
        for (size_t i = 0; i <= 200; i++) {
            const unsigned char byte = (unsigned char)(round + i);
            CHECK_OK(loch_buffer_fill(target, &byte, 1, stream));
        }
        const loch_buffer_copy_options copy = {.size = sizeof copy, .stream = stream};
        CHECK_OK(loch_buffer_copy(target, buffer, &copy)); /* behind 200 fills */
        assert_true(hand_over(&p, &take_it, target, 5, stream, plain, NULL).is_right);
        partner_ask(&p, PARTNER_DROP, 0, 0);
        loch_buffer_release(buffer);
        loch_buffer_release(target);
    }
    loch_stream_release(stream);
    partner_end_pool(pool);
    partner_stop(&p);
}

static void a_copy_grows_in_the_receiver(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0, LOCH_SHARE_FD);
    loch_buffer *cache = partner_buffer(pool, 20 * TEST_MIB, 8);
    const partner_command command = {.verb = PARTNER_TAKE, .way = LOCH_HANDOVER_COPIED, .max_bytes = TEST_GIB};
    partner p = partner_start(device_name);
    const partner_answer answer = hand_over(&p, &command, cache, 8, NULL, plain, NULL);
    assert_int_equal(answer.way, LOCH_HANDOVER_COPIED);
    assert_true(answer.is_right);
    loch_buffer_release(cache);
    partner_end_pool(pool); /* the giver's memory is free */
    partner_ask(&p, PARTNER_GROW, 0, 200 * TEST_MIB);
    partner_ask(&p, PARTNER_GROW, 0, 20 * TEST_MIB);
    assert_true(partner_ask(&p, PARTNER_COMPARE, 0, 0).is_right);
    partner_stop(&p);
}

static void memory_that_is_not_shareable_is_sent(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0, 0);
    loch_buffer *buffer = partner_buffer(pool, 100 * TEST_MIB + 3, 9);
    partner p = partner_start(device_name);
    const partner_answer answer = hand_over(&p, &take_it, buffer, 9, NULL, plain, NULL);
    assert_int_equal(answer.way, LOCH_HANDOVER_COPIED);
    assert_true(answer.is_right);
    loch_buffer_release(buffer);
    partner_end_pool(pool);
    partner_stop(&p);
}

static void the_other_side_is_killed(void **state)
{
    (void)state;
    loch_allocator *pool = partner_pool(device, 0, LOCH_SHARE_FD);
    for (size_t round = 0; round < KILL_ROUNDS; round++) {
        partner p = partner_start(device_name);
        const loch_handover_peer peer = partner_peer(&p);
        const partner_command give = {.verb = PARTNER_GIVE, .slot = 19, .value = 30 * TEST_MIB};
        loch_buffer *cache = partner_buffer(pool, 40 * TEST_MIB, round);
        loch_handover *taken;
        assert_true(hand_over(&p, &take_it, cache, round, NULL, plain, NULL).is_right);
        loch_buffer_release(cache);
        partner_tell(&p, &give);
        CHECK_OK(loch_handover_receive(&peer, device, NULL, NULL, &taken));
        partner_kill(&p); /* both a receiver and a giver */
        assert_true(partner_is_right(taken));
        loch_handover_destroy(taken);
    }
    partner_end_pool(pool);
}

/* --- NCCL --- */

static void set_number(const char *name, long number)
{
    char text[24];
    snprintf(text, sizeof text, "%ld", number);
    setenv(name, text, 1);
}

/* Runs two ranks of this program in one role, and expects that both succeed. */
static void run_ranks(const char *role)
{
    char folder[] = "/tmp/loch-handover-XXXXXX";
    char *const names[] = {(char *)"test_cuda_handover", (char *)"rank", (char *)role, folder, NULL};
    pid_t pids[2];
    test_random random = {test_seed(71) + (uint64_t)getpid()};
    assert_non_null(mkdtemp(folder));
    set_number("MASTER_PORT", 20000 + (long)(test_random_below(&random, 20000) * 2));
    set_number("WORLD_SIZE", 2);
    set_number("LOCAL_WORLD_SIZE", 2);
    for (int i = 0; i < 2; i++) {
        char host[32];
        snprintf(host, sizeof host, "loch-%d-%d", (int)getpid(), i);
        set_number("RANK", i);
        setenv("NCCL_HOSTID", host, 1);
        assert_int_equal(posix_spawn(&pids[i], "/proc/self/exe", NULL, NULL, names, environ), 0);
    }
    for (int i = 0; i < 2; i++) {
        int code;
        assert_int_equal(waitpid(pids[i], &code, 0), pids[i]);
        if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) fail_msg("rank %d ended with %d", i, code);
    }
    char path[2][64];
    const char *const files[] = {"cut.npy", "cut.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", folder, files[i]);
        unlink(path[i]);
    }
    rmdir(folder);
}

/* Sets what the ranks need. Skips the test where NCCL is not installed. */
static void prepare_nccl(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    if (strncmp(device_name, "cuda", 4) != 0 || is_test_double(device, "NCCL needs a GPU")) skip();
    if (!find_library(LOCH_LIBRARY_NCCL, "nccl")) {
        if (getenv("LOCH_REQUIRE_GPU")) fail_msg("NCCL is not installed: %s", loch_error_get()->sentence);
        skip();
    }
    if (loch_option_get("nccl", path) == LOCH_OK && *path) setenv("LOCH_NCCL", path, 1);
    setenv("LOCH_TEST_DEVICE", device_name, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("NCCL_P2P_DISABLE", "1", 0);
    setenv("NCCL_SHM_DISABLE", "1", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

static void ranks_of_nccl_hand_over(void **state)
{
    (void)state;
    prepare_nccl();
    run_ranks("handover");
}

static void ranks_of_nccl_cut_and_gather(void **state)
{
    (void)state;
    prepare_nccl();
    run_ranks("cut");
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    if (count > 2 && strcmp(arguments[1], "rank") == 0) return ranks_main(count - 1, arguments + 1);
    if (count > 1) device_name = arguments[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_of_64_mib_is_mapped_and_not_copied),
        cmocka_unit_test(pages_are_mapped),
        cmocka_unit_test(the_order_of_the_giver_is_kept),
        cmocka_unit_test(a_copy_grows_in_the_receiver),
        cmocka_unit_test(memory_that_is_not_shareable_is_sent),
        cmocka_unit_test(the_other_side_is_killed),
        cmocka_unit_test(ranks_of_nccl_hand_over),
        cmocka_unit_test(ranks_of_nccl_cut_and_gather),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(device);
    return failed;
}

/* SPDX-License-Identifier: MIT */
/* The engine on NCCL around NCCL: what it does when ranks are missing, late or killed, when NCCL fails, and how it
 * registers memory. A library of the test is in the place of NCCL (stand_in_nccl.c), and a simulated device in that of
 * a GPU. Ranks are processes: the program starts itself again. NCCL itself is tested on a GPU: gpu/test_cuda_comm.c. */
#include "nccl.h"
#include "support/test.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <loch/comm.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 4, PATIENCE_S = 60 };

static loch_device *device;
static void (*force)(int result);
static void (*count)(int *comms, int *registrations, int *aborts);

static void find(const char *name, void *to)
{
    void *address;
    CHECK_OK(loch_library_find(LOCH_LIBRARY_NCCL, name, &address));
    memcpy(to, &address, sizeof address);
}

static loch_status create(uint64_t timeout_ns, loch_comm **out)
{
    const loch_comm_options options = {.size = sizeof options, .device = device, .timeout_ns = timeout_ns};
    return loch_comm_create(&options, out);
}

static loch_tensor *make(loch_allocator *allocator)
{
    loch_tensor *tensor;
    const loch_tensor_options options = {.size = sizeof options, .device = device, .allocator = allocator};
    CHECK_OK(loch_tensor_create(LOCH_I8, LOCH_SHAPE(1000), &options, &tensor));
    return tensor;
}

static void expect_counts(int comms, int registrations, int aborts)
{
    int is_comms, is_registrations, is_aborts;
    count(&is_comms, &is_registrations, &is_aborts);
    assert_int_equal(is_comms, comms);
    if (registrations >= 0) assert_int_equal(is_registrations, registrations);
    assert_int_equal(is_aborts, aborts);
}

static int aborts_so_far(void)
{
    int comms, registrations, aborts;
    count(&comms, &registrations, &aborts);
    return aborts;
}

/* --- one rank --- */

static void begin_board(void)
{
    static char path[] = "/tmp/loch-comm-XXXXXX";
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    setenv("STAND_IN_FILE", path, 1);
}

static void end_board(void)
{
    const char *path = getenv("STAND_IN_FILE");
    if (path) unlink(path);
}

static void memory_is_registered_once_for_each_range(void **state)
{
    (void)state;
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    loch_allocator *pool;
    begin_board();
    CHECK_OK(create(0, &comm));
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_int_equal(info.kind, LOCH_COMM_NCCL);
    assert_string_equal(info.engine, "NCCL");
    assert_string_equal(info.version, "2.28.9");
    assert_int_equal(info.local_ranks, 1);
    const uint64_t before = info.registrations, calls = info.calls, registered = info.calls_registered;
    CHECK_OK(loch_pool_create(device, "comm", NULL, &pool));
    loch_tensor *a = make(pool), *b = make(pool);
    for (int i = 0; i < 10; i++)
        CHECK_OK(loch_comm_all_reduce(comm, a, b, LOCH_COMM_SUM, NULL));
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_int_equal(info.registrations - before, 1);
    assert_int_equal(info.calls - calls, 10);
    assert_int_equal(info.calls_registered - registered, 10);
    assert_true(info.registered_bytes >= 2000);
    loch_tensor_release(a);
    loch_tensor_release(b);
    loch_allocator_release(pool); /* its memory goes: the registration ends before */
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_int_equal(info.registrations, info.deregistrations + info.registered_ranges);
    assert_true(info.deregistrations >= 1);
    const int aborts = aborts_so_far();
    loch_comm_destroy(comm);
    expect_counts(0, 0, aborts);
    end_board();
}

static void nothing_is_registered_if_so_chosen(void **state)
{
    (void)state;
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    begin_board();
    const loch_comm_options options = {
        .size = sizeof options, .device = device, .registration = LOCH_COMM_REGISTER_NOTHING};
    CHECK_OK(loch_comm_create(&options, &comm));
    loch_tensor *a = make(NULL);
    CHECK_OK(loch_comm_all_reduce(comm, a, a, LOCH_COMM_SUM, NULL));
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_int_equal(info.registrations, 0);
    CHECK_FAILS(loch_comm_add_window(comm, loch_tensor_get_buffer(a)), UNSUPPORTED); /* this NCCL has none */
    CHECK_FAILS(loch_comm_remove_window(comm, loch_tensor_get_buffer(a)), NOT_FOUND);
    loch_tensor_release(a);
    loch_comm_destroy(comm);
    end_board();
}

static void a_failure_of_nccl_stays(void **state)
{
    (void)state;
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    begin_board();
    CHECK_OK(create(0, &comm));
    loch_tensor *a = make(NULL);
    const int aborts = aborts_so_far();
    force(3); /* ncclInternalError */
    CHECK_FAILS(loch_comm_all_reduce(comm, a, a, LOCH_COMM_SUM, NULL), DRIVER);
    assert_non_null(strstr(loch_error_get()->sentence, "ncclAllReduce: another error"));
    assert_int_equal(loch_error_get()->driver_code, 3);
    expect_counts(0, -1, aborts + 1);
    force(0);
    CHECK_FAILS(loch_comm_all_reduce(comm, a, a, LOCH_COMM_SUM, NULL), DRIVER);
    assert_non_null(strstr(loch_error_get()->sentence, "ncclAllReduce: another error"));
    CHECK_FAILS(loch_comm_query(comm), DRIVER);
    CHECK_FAILS(loch_comm_barrier(comm), DRIVER);
    CHECK_FAILS(loch_comm_begin_group(comm), DRIVER);
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_int_equal(info.state, LOCH_COMM_FAILED);
    loch_tensor_release(a);
    loch_comm_destroy(comm);
    expect_counts(0, -1, aborts + 1);
    end_board();
}

static void types_that_nccl_lacks_are_refused(void **state)
{
    (void)state;
    loch_comm *comm;
    loch_tensor *numbers, *host;
    begin_board();
    CHECK_OK(create(0, &comm));
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    CHECK_OK(loch_tensor_create(LOCH_I16, LOCH_SHAPE(4), &options, &numbers));
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(4), NULL, &host));
    CHECK_FAILS(loch_comm_all_reduce(comm, numbers, numbers, LOCH_COMM_SUM, NULL), UNSUPPORTED);
    CHECK_OK(loch_comm_broadcast(comm, numbers, 0, NULL)); /* every type moves */
    CHECK_FAILS(loch_comm_all_reduce(comm, host, host, LOCH_COMM_SUM, NULL), INVALID);
    loch_stream *stream = loch_stream_get_default(loch_tensor_get_device(host));
    CHECK_FAILS(loch_comm_broadcast(comm, numbers, 0, stream), INVALID);
    loch_tensor_release(numbers);
    loch_tensor_release(host);
    loch_comm_destroy(comm);
    end_board();
}

static void groups_are_queued_at_their_end(void **state)
{
    (void)state;
    loch_comm *comm;
    begin_board();
    CHECK_OK(create(0, &comm));
    loch_tensor *a = make(NULL), *b = make(NULL);
    const size_t counts[] = {500}, offsets[] = {100};
    CHECK_OK(loch_comm_begin_group(comm));
    CHECK_OK(loch_comm_send(comm, a, 0, NULL));
    CHECK_OK(loch_comm_receive(comm, b, 0, NULL));
    CHECK_OK(loch_comm_all_to_all_v(comm, b, counts, offsets, a, counts, offsets, NULL));
    CHECK_FAILS(loch_comm_add_window(comm, loch_tensor_get_buffer(a)), INVALID);
    CHECK_OK(loch_comm_end_group(comm));
    loch_tensor_release(a);
    loch_tensor_release(b);
    loch_comm_destroy(comm);
    end_board();
}

static void several_ranks_need_a_meeting_place(void **state)
{
    (void)state;
    loch_comm *comm = TEST_UNTOUCHED;
    const loch_comm_options options = {.size = sizeof options, .device = device, .ranks = 2};
    unsetenv("MASTER_ADDR");
    CHECK_FAILS(loch_comm_create(&options, &comm), INVALID);
    assert_null(comm);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "70000", 1);
    CHECK_FAILS(loch_comm_create(&options, &comm), INVALID);
    setenv("MASTER_PORT", "29500", 1);
}

static void ids_are_checked(void **state)
{
    (void)state;
    char id[LOCH_COMM_ID_BYTES];
    loch_comm *comm = TEST_UNTOUCHED;
    CHECK_OK(loch_comm_read_id(id, sizeof id));
    CHECK_FAILS(loch_comm_read_id(NULL, sizeof id), INVALID);
    CHECK_FAILS(loch_comm_read_id(id, sizeof id - 1), INVALID);
    loch_comm_options options = {.size = sizeof options, .device = device, .ranks = 1, .id = id, .id_bytes = 3};
    CHECK_FAILS(loch_comm_create(&options, &comm), INVALID);
    options.id_bytes = sizeof id;
    options.ranks = 0;
    CHECK_FAILS(loch_comm_create(&options, &comm), INVALID);
    assert_null(comm);
    begin_board();
    options.ranks = 1;
    CHECK_OK(loch_comm_create(&options, &comm));
    loch_comm_destroy(comm);
    end_board();
}

/* --- ranks as processes --- */

static int pipe_out;

/* Reads a number that the test left in the environment. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

static void tell(const loch_error *error)
{
    if (write(pipe_out, error, sizeof *error) != (ssize_t)sizeof *error) _exit(9);
}

/* Calls until one fails, and tells it. `role`: in which way the others are lost. */
static int rank_run(const char *role)
{
    loch_comm *comm;
    pipe_out = number_of("LOCH_TEST_PIPE");
    const uint64_t timeout_ns = strcmp(role, "kill") == 0 ? 0 : 700000000u;
    loch_status status = create(timeout_ns, &comm);
    if (status == LOCH_OK) {
        loch_comm_info info = {.size = sizeof info};
        loch_tensor *a = make(NULL);
        CHECK_OK(loch_comm_get_info(comm, &info));
        if (info.local_ranks != info.ranks) return 3;
        tell(&(loch_error){.status = LOCH_OK});
        const bool is_late = strcmp(role, "late") == 0 && info.rank == info.ranks - 1;
        if (is_late) sleep(2);
        while (status == LOCH_OK && !is_late)
            status = loch_comm_all_reduce(comm, a, a, LOCH_COMM_SUM, NULL);
        if (!is_late && loch_comm_query(comm) != status) return 5;
        if (!is_late && loch_comm_all_reduce(comm, a, a, LOCH_COMM_SUM, NULL) != status) return 4;
        loch_tensor_release(a);
    }
    if (status != LOCH_OK) tell(loch_error_get());
    char unused;
    const ssize_t got = read(number_of("LOCH_TEST_HOLD"), &unused, 1); /* stays until the test lets go */
    loch_comm_destroy(comm);
    return got == 0 ? 0 : 6;
}

typedef struct crew {
    pid_t pids[RANKS_MAX];
    int pipe_in, hold;
} crew;

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

static void crew_start(crew *c, const char *role, int started, int ranks)
{
    int ends[2], hold[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    c->pipe_in = ends[0];
    c->hold = hold[1];
    const int held = dup(hold[0]);
    set_number("LOCH_TEST_HOLD", held);
    set_number("WORLD_SIZE", ranks);
    set_number("LOCH_TEST_PIPE", ends[1]);
    for (int rank = 0; rank < started; rank++) {
        char *arguments[] = {"test_nccl", "--rank", (char *)role, NULL};
        set_number("RANK", rank);
        assert_int_equal(posix_spawn(&c->pids[rank], "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    close(ends[1]);
    close(hold[0]);
    close(held);
}

static loch_error crew_read(const crew *c)
{
    loch_error error;
    struct pollfd descriptor = {.fd = c->pipe_in, .events = POLLIN};
    assert_true(poll(&descriptor, 1, PATIENCE_S * 1000) > 0);
    assert_int_equal(read(c->pipe_in, &error, sizeof error), sizeof error);
    return error;
}

/* `victim`: the process that was killed; 0 for none. */
static void crew_end(const crew *c, int started, pid_t victim)
{
    close(c->hold);
    for (int rank = 0; rank < started; rank++) {
        int status;
        assert_int_equal(waitpid(c->pids[rank], &status, 0), c->pids[rank]);
        if (c->pids[rank] != victim) assert_int_equal(status, 0);
    }
    close(c->pipe_in);
}

static void survivors_of_a_kill_get_a_status(void **state)
{
    (void)state;
    test_random random = {test_seed(0x20)};
    for (int round = 0; round < 8; round++) {
        crew c;
        const int ranks = 2 + round % 3;
        begin_board();
        crew_start(&c, "kill", ranks, ranks);
        for (int i = 0; i < ranks; i++)
            assert_int_equal(crew_read(&c).status, LOCH_OK);
        const int victim = (int)test_random_below(&random, (uint64_t)ranks);
        usleep((useconds_t)test_random_below(&random, 50000));
        assert_int_equal(kill(c.pids[victim], SIGKILL), 0);
        char expected[40];
        snprintf(expected, sizeof expected, "rank %d (process %d", victim, (int)c.pids[victim]);
        for (int i = 0; i + 1 < ranks; i++) {
            const loch_error error = crew_read(&c);
            assert_int_equal(error.status, LOCH_E_NOT_FOUND);
            if (!strstr(error.sentence, expected)) fprintf(stderr, "%s\n", error.sentence);
            assert_non_null(strstr(error.sentence, expected));
        }
        crew_end(&c, ranks, c.pids[victim]);
        end_board();
    }
}

static void a_missing_rank_is_told(void **state)
{
    (void)state;
    crew c;
    begin_board();
    crew_start(&c, "missing", 2, 3);
    for (int i = 0; i < 2; i++) {
        const loch_error error = crew_read(&c);
        assert_int_equal(error.status, LOCH_E_BUSY);
        assert_non_null(strstr(error.sentence, "not all of 3 ranks came within 0.7 s"));
    }
    crew_end(&c, 2, 0);
    end_board();
}

static void a_late_rank_is_told(void **state)
{
    (void)state;
    crew c;
    begin_board();
    crew_start(&c, "late", 2, 2);
    loch_error error = crew_read(&c);
    for (int i = 0; i < 2; i++)
        if (error.status == LOCH_OK) error = crew_read(&c);
    assert_int_equal(error.status, LOCH_E_BUSY);
    crew_end(&c, 2, 0);
    end_board();
}

int main(int argc, char **argv)
{
    char path[600];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 40);
    if (length <= 0) return 1;
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "stand_in_nccl.so");
    if (loch_option_set("nccl", path) != LOCH_OK) return 1;
    lochi_comm_nccl_driver = "sim";
    if (loch_device_open("sim:256MiB,backed,async=off", &device) != LOCH_OK) return 1;
    int result;
    if (argc == 3) {
        result = rank_run(argv[2]);
        loch_device_release(device);
        return result;
    }
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    find("stand_in_force", &force);
    find("stand_in_count", &count);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_registered_once_for_each_range),
        cmocka_unit_test(nothing_is_registered_if_so_chosen),
        cmocka_unit_test(a_failure_of_nccl_stays),
        cmocka_unit_test(types_that_nccl_lacks_are_refused),
        cmocka_unit_test(groups_are_queued_at_their_end),
        cmocka_unit_test(several_ranks_need_a_meeting_place),
        cmocka_unit_test(ids_are_checked),
        cmocka_unit_test(a_missing_rank_is_told),
        cmocka_unit_test(a_late_rank_is_told),
        cmocka_unit_test(survivors_of_a_kill_get_a_status),
    };
    result = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(device);
    return result;
}

/* SPDX-License-Identifier: MIT */
/* Communicators of NCCL on a real GPU. The program starts itself again, once for each rank. Several ranks share the one
 * GPU: NCCL refuses that, unless each rank claims to be on a machine of its own (NCCL_HOSTID); then it moves everything
 * over sockets. That shows what is right, and nothing about speed.
 *
 * Ranks are killed at random moments; the survivors tell how long it took until they had a status. LOCH_TEST_KILLS says
 * how often (6). An argument is a pattern of tests: 'survivors*'. NCCL is looked for as in test_cuda_libraries.c. */
#include "collectives.h"
#include "cuda_fixture.h"
#include "double.h"
#include "find_library.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 3, PATIENCE_S = 120 };

/* What a rank tells the test over a pipe. */
typedef struct report {
    enum { REPORT_READY, REPORT_STATUS } what;
    int rank;
    loch_status status;
    uint64_t now_ns;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
} report;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- ranks --- */

static collectives job;
static int pipe_out = -1;

static void tell(int what, loch_status status)
{
    report line = {.what = what, .rank = job.rank, .status = status, .now_ns = now_ns()};
    if (status != LOCH_OK) snprintf(line.sentence, sizeof line.sentence, "%s", loch_error_get()->sentence);
    EXPECT(write(pipe_out, &line, sizeof line) == (ssize_t)sizeof line);
}

static void begin(uint64_t timeout_ns)
{
    loch_comm_info info = {.size = sizeof info};
    LOCH_CHECK(loch_device_open("cuda:0", &job.device));
    const loch_comm_options options = {.size = sizeof options, .device = job.device, .timeout_ns = timeout_ns};
    LOCH_CHECK(loch_comm_create(&options, &job.comm));
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    job.rank = info.rank;
    job.ranks = info.ranks;
}

static void end(void)
{
    loch_stream_close(job.stream);
    job.stream = NULL;
    loch_comm_destroy(job.comm);
    loch_device_release(job.device);
}

static void run_collectives(void)
{
    static const size_t counts[] = {0, 1, 7, 1000};
    static const size_t large[] = {300001};
    loch_comm_info info = {.size = sizeof info};
    begin(0);
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    EXPECT(info.kind == LOCH_COMM_NCCL && info.state == LOCH_COMM_READY && strcmp(info.engine, "NCCL") == 0);
    EXPECT(info.local_ranks == job.ranks && info.local_rank == job.rank); /* one machine, whatever NCCL believes */
    check_everything(&job, counts, job.ranks == 1 ? 4 : 3);               /* sockets are slow */
    LOCH_CHECK(loch_stream_create(job.device, NULL, &job.stream));
    check_everything(&job, counts + 1, 1);
    for (int in_place = 0; in_place < 2; in_place++) {
        check_all_reduce(&job, LOCH_F32, LOCH_COMM_SUM, large[0], in_place);
        check_all_gather(&job, LOCH_BF16, large[0], in_place);
        check_reduce_scatter(&job, LOCH_F16, LOCH_COMM_SUM, large[0], in_place);
    }
    check_all_to_all_v(&job, LOCH_I64, large[0]);
    check_ring(&job, LOCH_F64, large[0]);
    loch_tensor *numbers = make(&job, LOCH_I16, 4, 0, 0);
    EXPECT_FAILS(loch_comm_all_reduce(job.comm, numbers, numbers, LOCH_COMM_SUM, job.stream), UNSUPPORTED);
    loch_tensor_release(numbers);
    if (job.rank == 0) printf("%zu checks on each of %d ranks, NCCL %s\n", job.checks, job.ranks, info.version);
    end();
}

/* Work is in the order of its stream: what was queued before is read, and what is queued behind sees the results,
 * without a wait on the host in between. */
static void run_order(void)
{
    const size_t count = (size_t)8 << 20;
    begin(0);
    LOCH_CHECK(loch_stream_create(job.device, NULL, &job.stream));
    const loch_tensor_options options = {.size = sizeof options, .device = job.device, .stream = job.stream};
    loch_tensor *from, *to, *copy;
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)count), &options, &from));
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)count), &options, &to));
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)count), &options, &copy));
    for (int round = 1; round <= 20; round++) {
        LOCH_CHECK(loch_tensor_fill(to, loch_scalar_of(0.0f), job.stream));
        LOCH_CHECK(loch_tensor_fill(from, loch_scalar_of((float)round), job.stream));
        LOCH_CHECK(loch_comm_all_reduce(job.comm, to, from, LOCH_COMM_SUM, job.stream));
        LOCH_CHECK(loch_tensor_fill(from, loch_scalar_of(-1.0f), job.stream));
        const loch_tensor_copy_options behind = {.size = sizeof behind, .stream = job.stream};
        LOCH_CHECK(loch_tensor_copy(copy, to, &behind));
        double *is = read_all(&job, copy);
        for (size_t i = 0; i < count; i += 4093)
            expect_number(&job, "all-reduce in order", LOCH_F32, i, is[i], (double)round * job.ranks);
        free(is);
    }
    /* memory that is released right behind the call is not reused before the work has ended */
    for (int round = 0; round < 20; round++) {
        loch_tensor *gone = make(&job, LOCH_F32, count / 8, job.rank, 0), *target;
        LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)count / 8), &options, &target));
        LOCH_CHECK(loch_comm_all_reduce(job.comm, target, gone, LOCH_COMM_MAX, job.stream));
        loch_tensor_release(gone);
        loch_tensor *other = make(&job, LOCH_F32, count / 8, -1, 0); /* on the same stream; takes the memory */
        double *is = read_all(&job, target);
        for (size_t i = 0; i < count / 8; i += 1021)
            expect_number(&job, "released", LOCH_F32, i, is[i], reduced(LOCH_F32, LOCH_COMM_MAX, job.ranks, i));
        free(is);
        loch_tensor_release(other);
        loch_tensor_release(target);
    }
    loch_tensor_release(from);
    loch_tensor_release(to);
    loch_tensor_release(copy);
    end();
}

/* An all-reduce in a graph: captured once, launched with other numbers. Not in place: with one rank NCCL queues nothing
 * in place, and the graph would be empty. */
static void run_graph(void)
{
    enum { COUNT = 5000 };
    void *graph = NULL, *executable = NULL, *context = NULL;
    begin(0);
    caller_load();
    /* Nodes of NCCL are instantiated in the current context. */
    EXPECT(caller.cuDevicePrimaryCtxRetain(&context, 0) == 0 && caller.cuCtxSetCurrent(context) == 0);
    LOCH_CHECK(loch_stream_create(job.device, NULL, &job.stream));
    loch_tensor *from = make(&job, LOCH_F32, COUNT, job.rank, 0), *to = make(&job, LOCH_F32, COUNT, -1, 0);
    LOCH_CHECK(loch_comm_all_reduce(job.comm, to, from, LOCH_COMM_SUM, job.stream)); /* connections are made here */
    LOCH_CHECK(loch_comm_sync(job.comm, job.stream));
    void *native = loch_stream_get_native(job.stream);
    EXPECT(caller.cuStreamBeginCapture_v2(native, 1) == 0); /* of this thread */
    LOCH_CHECK(loch_comm_all_reduce(job.comm, to, from, LOCH_COMM_SUM, job.stream));
    LOCH_CHECK(loch_comm_begin_group(job.comm));
    LOCH_CHECK(loch_comm_all_reduce(job.comm, to, from, LOCH_COMM_SUM, job.stream));
    LOCH_CHECK(loch_comm_end_group(job.comm));
    EXPECT(caller.cuStreamEndCapture(native, &graph) == 0 && graph);
    const int code = caller.cuGraphInstantiateWithFlags(&executable, graph, 0);
    if (code) printf("cuGraphInstantiateWithFlags: %d\n", code);
    EXPECT(code == 0);
    for (int round = 1; round <= 5; round++) {
        LOCH_CHECK(loch_tensor_fill(from, loch_scalar_of((float)round), job.stream));
        LOCH_CHECK(loch_tensor_fill(to, loch_scalar_of(0.0f), job.stream));
        EXPECT(caller.cuGraphLaunch(executable, native) == 0);
        double *is = read_all(&job, to);
        for (size_t i = 0; i < COUNT; i++)
            expect_number(&job, "all-reduce in a graph", LOCH_F32, i, is[i], (double)round * job.ranks);
        free(is);
    }
    EXPECT(caller.cuGraphExecDestroy(executable) == 0);
    EXPECT(caller.cuGraphDestroy(graph) == 0);
    loch_tensor_release(from);
    loch_tensor_release(to);
    end();
    EXPECT(caller.cuCtxSetCurrent(NULL) == 0 && caller.cuDevicePrimaryCtxRelease_v2(0) == 0);
}

/* Memory of a pool is registered once for each range, and not after the pool gave it back. */
static void run_memory(void)
{
    loch_comm_info info = {.size = sizeof info};
    loch_allocator *pool;
    begin(0);
    const loch_pool_options pool_options = {.size = sizeof pool_options,
                                            .handle = {.size = sizeof(loch_handle_options), .share = LOCH_SHARE_FD}};
    LOCH_CHECK(loch_pool_create(job.device, "comm", &pool_options, &pool));
    const loch_tensor_options options = {.size = sizeof options, .allocator = pool, .alignment = 4096};
    loch_tensor *tensors[8];
    for (int i = 0; i < 8; i++) {
        LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(100000), &options, &tensors[i]));
        LOCH_CHECK(loch_tensor_fill(tensors[i], loch_scalar_of(1.0f), NULL));
    }
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    const uint64_t before = info.registrations, calls = info.calls, registered = info.calls_registered;
    for (int i = 0; i < 200; i++)
        LOCH_CHECK(loch_comm_all_reduce(job.comm, tensors[i % 8], tensors[(i + 1) % 8], LOCH_COMM_MAX, NULL));
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    printf("rank %d: %zu ranges of %zu bytes registered, %llu registrations, %llu of %llu calls on registered memory\n",
           job.rank, info.registered_ranges, info.registered_bytes, (unsigned long long)info.registrations,
           (unsigned long long)(info.calls_registered - registered), (unsigned long long)(info.calls - calls));
    EXPECT(info.registrations - before >= 1 && info.registrations - before <= 8); /* not one for each call */
    EXPECT(info.calls - calls == 200 && info.calls_registered - registered == 200);
    const loch_status window = loch_comm_add_window(job.comm, loch_tensor_get_buffer(tensors[0]));
    printf("rank %d: window: %s%s%s\n", job.rank, loch_status_name(window), window == LOCH_OK ? "" : ": ",
           window == LOCH_OK ? "" : loch_error_get()->sentence);
    EXPECT(window == LOCH_OK || window == LOCH_E_UNSUPPORTED);
    LOCH_CHECK(loch_comm_query(job.comm));
    if (window == LOCH_OK) {
        EXPECT_FAILS(loch_comm_add_window(job.comm, loch_tensor_get_buffer(tensors[0])), EXISTS);
        LOCH_CHECK(loch_comm_get_info(job.comm, &info));
        EXPECT(info.windows == 1);
        LOCH_CHECK(loch_comm_all_reduce(job.comm, tensors[0], tensors[0], LOCH_COMM_SUM, NULL));
        LOCH_CHECK(loch_comm_remove_window(job.comm, loch_tensor_get_buffer(tensors[0])));
    }
    EXPECT_FAILS(loch_comm_remove_window(job.comm, loch_tensor_get_buffer(tensors[0])), NOT_FOUND);
    for (int i = 0; i < 8; i++)
        loch_tensor_release(tensors[i]);
    loch_allocator_release(pool); /* its memory goes */
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    EXPECT(info.deregistrations >= 1 && info.registrations == info.deregistrations + info.registered_ranges);
    end();
}

/* Calls until one fails, and tells when. Half of the ranks look at their stream, half at their calls. */
static void run_kill(void)
{
    begin(0);
    LOCH_CHECK(loch_stream_create(job.device, NULL, &job.stream));
    loch_tensor *tensor = make(&job, LOCH_F32, 200000, job.rank, 0);
    tell(REPORT_READY, LOCH_OK);
    loch_status status = LOCH_OK;
    for (unsigned i = 0; status == LOCH_OK; i++) {
        status = loch_comm_all_reduce(job.comm, tensor, tensor, LOCH_COMM_MAX, job.stream);
        if (status == LOCH_OK && i % 3 == 0) status = loch_comm_sync(job.comm, job.stream);
    }
    tell(REPORT_STATUS, status);
    const uint64_t start = now_ns(); /* from now on every call fails at once */
    loch_comm_info info = {.size = sizeof info};
    for (int i = 0; i < 100; i++)
        EXPECT(loch_comm_all_reduce(job.comm, tensor, tensor, LOCH_COMM_MAX, job.stream) == status);
    EXPECT(loch_comm_query(job.comm) == status && loch_comm_barrier(job.comm) == status);
    EXPECT(now_ns() - start < 1000000000u);
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    EXPECT(info.state == LOCH_COMM_FAILED);
    loch_tensor_release(tensor);
    end();
}

/* A rank that is not there: only one of two is started. */
static void run_missing(void)
{
    LOCH_CHECK(loch_device_open("cuda:0", &job.device));
    const loch_comm_options options = {.size = sizeof options, .device = job.device, .timeout_ns = 2000000000u};
    const uint64_t start = now_ns();
    EXPECT_FAILS(loch_comm_create(&options, &job.comm), BUSY);
    EXPECT(!job.comm && now_ns() - start > 1900000000u);
    printf("a missing rank: %.2f s, %s\n", (double)(now_ns() - start) * 1e-9, loch_error_get()->sentence);
    loch_device_release(job.device);
}

/* A rank that does not make its call. */
static void run_late(void)
{
    begin(2000000000u);
    loch_tensor *tensor = make(&job, LOCH_F32, 1000, job.rank, 0);
    LOCH_CHECK(loch_comm_all_reduce(job.comm, tensor, tensor, LOCH_COMM_MAX, NULL)); /* connections are made */
    if (job.rank == 0) {
        const uint64_t start = now_ns();
        EXPECT_FAILS(loch_comm_all_reduce(job.comm, tensor, tensor, LOCH_COMM_MAX, NULL), BUSY);
        EXPECT_FAILS(loch_comm_barrier(job.comm), BUSY);
        printf("a late rank: %.2f s, %s\n", (double)(now_ns() - start) * 1e-9, loch_error_get()->sentence);
    } else {
        sleep(4);
    }
    loch_tensor_release(tensor);
    end();
}

/* Ids by hand, and arguments that only a communicator of NCCL refuses. */
static void run_id(void)
{
    unsigned char id[LOCH_COMM_ID_BYTES];
    LOCH_CHECK(loch_device_open("cuda:0", &job.device));
    LOCH_CHECK(loch_comm_read_id(id, sizeof id));
    const loch_comm_options options = {
        .size = sizeof options, .device = job.device, .ranks = 1, .id = id, .id_bytes = sizeof id};
    LOCH_CHECK(loch_comm_create(&options, &job.comm));
    job.ranks = 1;
    check_all_reduce(&job, LOCH_F32, LOCH_COMM_SUM, 100, false);
    loch_tensor *host;
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(4), NULL, &host));
    EXPECT_FAILS(loch_comm_all_reduce(job.comm, host, host, LOCH_COMM_SUM, NULL), INVALID);
    loch_tensor_release(host);
    end();
}

static const struct {
    const char *name;
    void (*run)(void);
} roles[] = {{"collectives", run_collectives}, {"order", run_order}, {"graph", run_graph},
             {"memory", run_memory},           {"kill", run_kill},   {"late", run_late},
             {"missing", run_missing},         {"id", run_id}};

/* --- the test's side --- */

typedef struct crew {
    pid_t pids[RANKS_MAX];
    int count;
    int pipe_in;
} crew;

static void set_number(const char *name, long number)
{
    char text[24];
    snprintf(text, sizeof text, "%ld", number);
    setenv(name, text, 1);
}

/* Starts `count` ranks of a job that has `ranks`. */
static void crew_start(crew *c, const char *role, int count, int ranks)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    c->count = count;
    c->pipe_in = ends[0];
    set_number("WORLD_SIZE", ranks);
    set_number("MASTER_PORT", 20000 + (long)(test_random_below(&randomness, 20000) * 2));
    set_number("LOCH_TEST_PIPE", ends[1]);
    for (int rank = 0; rank < count; rank++) {
        set_number("RANK", rank);
        char host[32];
        snprintf(host, sizeof host, "loch-test-%d", rank);
        if (ranks > 1) setenv("NCCL_HOSTID", host, 1);
        char *arguments[] = {"test_cuda_comm", "--rank", (char *)role, NULL};
        assert_int_equal(posix_spawn(&c->pids[rank], "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    }
    unsetenv("NCCL_HOSTID");
    close(ends[1]);
}

/* Waits for a rank; returns what waitpid tells. A rank that does not end is killed. */
static int crew_await(crew *c, int rank)
{
    int status = 0;
    for (int turn = 0; turn < PATIENCE_S * 100; turn++) {
        const pid_t ended = waitpid(c->pids[rank], &status, WNOHANG);
        assert_true(ended >= 0);
        if (ended) return status;
        usleep(10000);
    }
    kill(c->pids[rank], SIGKILL);
    waitpid(c->pids[rank], &status, 0);
    fprintf(stderr, "rank %d did not end within %d s\n", rank, PATIENCE_S);
    return -1;
}

static void crew_run(const char *role, int count, int ranks)
{
    crew c;
    bool is_good = true;
    crew_start(&c, role, count, ranks);
    for (int rank = 0; rank < count; rank++) {
        const int status = crew_await(&c, rank);
        if (status != 0) fprintf(stderr, "%s: rank %d of %d ended with %#x\n", role, rank, ranks, (unsigned)status);
        is_good = is_good && status == 0;
    }
    close(c.pipe_in);
    assert_true(is_good);
}

static void collectives_with_one_rank(void **state)
{
    (void)state;
    crew_run("collectives", 1, 1);
}

static void collectives_with_two_ranks(void **state)
{
    (void)state;
    crew_run("collectives", 2, 2);
}

static void collectives_with_three_ranks(void **state)
{
    (void)state;
    crew_run("collectives", 3, 3);
}

static void work_is_in_the_order_of_its_stream(void **state)
{
    (void)state;
    crew_run("order", 1, 1);
    crew_run("order", 2, 2);
}

static void an_all_reduce_is_captured(void **state)
{
    (void)state;
    crew_run("graph", 1, 1);
}

static void an_all_reduce_of_two_ranks_is_captured(void **state)
{
    (void)state;
    crew_run("graph", 2, 2);
}

static void memory_is_registered_once(void **state)
{
    (void)state;
    crew_run("memory", 1, 1);
    crew_run("memory", 2, 2);
}

static void a_missing_rank_is_told(void **state)
{
    (void)state;
    crew_run("missing", 1, 2);
}

static void a_late_rank_is_told(void **state)
{
    (void)state;
    crew_run("late", 2, 2);
}

static void an_id_goes_by_hand(void **state)
{
    (void)state;
    crew_run("id", 1, 1);
}

/* Reads one report; false if none comes for a long time. */
static bool crew_read(const crew *c, report *out)
{
    struct pollfd descriptor = {.fd = c->pipe_in, .events = POLLIN};
    return poll(&descriptor, 1, PATIENCE_S * 1000) > 0 && read(c->pipe_in, out, sizeof *out) == (ssize_t)sizeof *out;
}

static double kill_one(int ranks, unsigned round)
{
    crew c;
    report line = {0};
    double slowest = 0;
    crew_start(&c, "kill", ranks, ranks);
    for (int i = 0; i < ranks; i++)
        assert_true(crew_read(&c, &line) && line.what == REPORT_READY);
    const int victim = (int)test_random_below(&randomness, (uint64_t)ranks);
    usleep((useconds_t)test_random_below(&randomness, 200000));
    const uint64_t killed_ns = now_ns();
    assert_int_equal(kill(c.pids[victim], SIGKILL), 0);
    for (int i = 0; i + 1 < ranks; i++) {
        assert_true(crew_read(&c, &line) && line.what == REPORT_STATUS);
        const double seconds = (double)(line.now_ns - killed_ns) * 1e-9;
        if (seconds > slowest) slowest = seconds;
        printf("kill %u: rank %d of %d killed, rank %d has %s after %.3f s: %s\n", round, victim, ranks, line.rank,
               loch_status_name(line.status), seconds, line.sentence);
        assert_int_not_equal(line.status, LOCH_OK);
    }
    for (int rank = 0; rank < ranks; rank++) {
        const int status = crew_await(&c, rank);
        if (rank != victim) assert_int_equal(status, 0);
    }
    close(c.pipe_in);
    return slowest;
}

static void survivors_of_a_kill_get_a_status(void **state)
{
    (void)state;
    const char *text = getenv("LOCH_TEST_KILLS");
    const unsigned rounds = text ? (unsigned)atoi(text) : 6;
    double slowest = 0;
    for (unsigned round = 0; round < rounds; round++) {
        const double one = kill_one(2 + (int)(round % 2), round);
        if (one > slowest) slowest = one;
    }
    printf("%u kills; the slowest status came after %.3f s\n", rounds, slowest);
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "--rank") == 0) {
        const char *descriptor = getenv("LOCH_TEST_PIPE");
        pipe_out = descriptor ? atoi(descriptor) : -1;
        signal(SIGPIPE, SIG_IGN);
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
            if (strcmp(arguments[2], roles[i].name) == 0) {
                roles[i].run();
                return 0;
            }
        return 2;
    }
    if (loch_device_open("cuda:0", &device) != LOCH_OK) return test_skip_gpu();
    const bool is_double = is_test_double(device, "NCCL needs a GPU");
    loch_device_release(device);
    if (is_double) return TEST_SKIPPED;
    char path[LOCH_OPTION_VALUE_MAX];
    if (!find_library(LOCH_LIBRARY_NCCL, "nccl")) {
        fprintf(stderr, "NCCL is not installed: %s\n", loch_error_get()->sentence);
        return getenv("LOCH_REQUIRE_GPU") ? 1 : TEST_SKIPPED;
    }
    if (loch_option_get("nccl", path) == LOCH_OK && *path) setenv("LOCH_NCCL", path, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("NCCL_P2P_DISABLE", "1", 0);
    setenv("NCCL_SHM_DISABLE", "1", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    randomness.state = test_seed(0x10c4);
    if (count == 2) cmocka_set_test_filter(arguments[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_with_one_rank),
        cmocka_unit_test(an_id_goes_by_hand),
        cmocka_unit_test(work_is_in_the_order_of_its_stream),
        cmocka_unit_test(an_all_reduce_is_captured),
        cmocka_unit_test(collectives_with_two_ranks),
        cmocka_unit_test(an_all_reduce_of_two_ranks_is_captured),
        cmocka_unit_test(memory_is_registered_once),
        cmocka_unit_test(a_missing_rank_is_told),
        cmocka_unit_test(a_late_rank_is_told),
        cmocka_unit_test(collectives_with_three_ranks),
        cmocka_unit_test(survivors_of_a_kill_get_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}

/* SPDX-License-Identifier: MIT */
/* One rank of a job: mpirun starts several of these (tests/parts/comm/run). The first argument says what to check.
 *
 *     collectives   every collective; small ones, and with pieces of a few bytes
 *     few           some of them, for more ranks than processors: MPICH does not yield
 *     initialised   the program has started MPI itself, and ends it
 *     order         communicators one after the other, two at a time, and groups that fail
 *     differ        calls that differ between ranks: every rank is told, and nothing is overwritten
 *     unchecked     messages of other sizes without the check: the receiver is told, and nothing is overwritten
 *     kill          rank 1 kills itself in the middle; the job has to end
 *     missing       rank 1 ends without a call, in order
 *     info          prints the place of the rank
 */
#include "collectives.h"
#include "mpi.h"
#include <signal.h>
#include <unistd.h>

static collectives job;

static void begin(void)
{
    loch_comm_info info = {.size = sizeof info};
    LOCH_CHECK(loch_comm_create(NULL, &job.comm));
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    job.device = info.device;
    job.rank = info.rank;
    job.ranks = info.ranks;
}

static void check_place(void)
{
    loch_comm_info info = {.size = sizeof info};
    loch_comm_place place = {.size = sizeof place};
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    LOCH_CHECK(loch_comm_get_place(&place));
    EXPECT(info.kind == LOCH_COMM_MPI && info.state == LOCH_COMM_READY);
    EXPECT(place.rank == info.rank && place.ranks == info.ranks);
    EXPECT(place.source == LOCH_COMM_FROM_OPENMPI || place.source == LOCH_COMM_FROM_PMI);
    EXPECT(strcmp(info.engine, place.source == LOCH_COMM_FROM_OPENMPI ? "Open MPI" : "MPICH") == 0);
    EXPECT(strlen(info.version) > 2 && info.version[0] >= '1' && info.version[0] <= '9');
    EXPECT(info.local_rank >= 0 && info.local_rank < info.local_ranks && info.local_ranks <= info.ranks);
    EXPECT(loch_comm_get_seat_rank(job.comm, LOCH_SEAT(0)) == info.rank);
    EXPECT(loch_comm_get_seat_rank(job.comm, LOCH_SEAT(1)) == -1);
}

/* Types that MPI does not reduce are refused on every rank, and the communicator goes on working. */
static void check_refused(void)
{
    loch_tensor *half = make(&job, LOCH_F16, 4, 0, 0), *whole = make(&job, LOCH_F32, 4, 0, 0);
    EXPECT_FAILS(loch_comm_all_reduce(job.comm, half, half, LOCH_COMM_SUM, NULL), UNSUPPORTED);
    EXPECT_FAILS(loch_comm_all_reduce(job.comm, whole, whole, LOCH_COMM_AVERAGE, NULL), UNSUPPORTED);
    EXPECT_FAILS(loch_comm_add_window(job.comm, loch_tensor_get_buffer(whole)), UNSUPPORTED);
    EXPECT_FAILS(loch_comm_broadcast(job.comm, whole, job.ranks, NULL), INVALID);
    EXPECT_FAILS(loch_comm_broadcast(job.comm, whole, -1, NULL), INVALID);
    EXPECT_FAILS(loch_comm_send(job.comm, whole, job.rank, NULL), INVALID);
    loch_tensor *other = make(&job, LOCH_F32, 4, 0, 0);
    size_t ones[64], none[64] = {0};
    EXPECT(job.ranks >= 2 && job.ranks <= 64);
    for (int i = 0; i < job.ranks; i++)
        ones[i] = 1;
    EXPECT_FAILS(loch_comm_all_to_all_v(job.comm, whole, ones, none, other, ones, none, NULL), INVALID); /* overlap */
    EXPECT_FAILS(loch_comm_all_gather(job.comm, whole, other, NULL), INVALID);
    loch_tensor_release(other);
    EXPECT(loch_comm_query(job.comm) == LOCH_OK);
    loch_tensor_release(half);
    loch_tensor_release(whole);
}

static void run_collectives(void)
{
    static const size_t counts[] = {0, 1, 7, 1000};
    static const size_t beyond[] = {1, 63, 64, 65, 150};
    begin();
    check_place();
    check_everything(&job, counts, sizeof counts / sizeof *counts);
    check_refused();
    lochi_comm_mpi_piece = 64; /* everything larger goes in pieces, as it does beyond 1 GiB */
    check_everything(&job, beyond, sizeof beyond / sizeof *beyond);
    LOCH_CHECK(loch_stream_create(job.device, NULL, &job.stream));
    check_everything(&job, beyond, 1);
    loch_stream_close(job.stream);
    job.stream = NULL;
    LOCH_CHECK(loch_comm_barrier(job.comm));
    if (job.rank == 0) printf("%zu checks on each of %d ranks\n", job.checks, job.ranks);
    loch_comm_destroy(job.comm);
}

static void run_few(void)
{
    static const loch_dtype types[] = {LOCH_F32, LOCH_BF16, LOCH_BOOL};
    begin();
    check_place();
    lochi_comm_mpi_piece = 64;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_reductions(&job, types[i], 65);
        check_all_gather(&job, types[i], 65, true);
        check_all_gather(&job, types[i], 7, false);
        check_broadcast(&job, types[i], 65, job.ranks - 1);
        check_all_to_all(&job, types[i], 65);
        check_all_to_all_v(&job, types[i], 7);
        check_ring(&job, types[i], 65);
        check_messages(&job, types[i], 1);
    }
    check_mixed_group(&job, 100);
    check_refused();
    if (job.rank == 0) printf("%zu checks on each of %d ranks\n", job.checks, job.ranks);
    loch_comm_destroy(job.comm);
}

/* The program owns MPI: Loch must leave it initialised, and its messages alone. */
static void run_initialised(void)
{
    const comm_mpi_library *mpi;
    int provided, flag = 0, rank = 0, number;
    LOCH_CHECK(lochi_comm_mpi_load(&mpi));
    EXPECT(!lochi_comm_mpi_is_running());
    EXPECT(mpi->MPI_Init_thread(NULL, NULL, 0, &provided) == 0);
    EXPECT(lochi_comm_mpi_is_running());
    begin();
    check_all_reduce(&job, LOCH_F32, LOCH_COMM_SUM, 100, false);
    loch_comm_destroy(job.comm);
    mpi->MPI_Finalized(&flag);
    EXPECT(!flag);
    EXPECT(mpi->MPI_Comm_rank(mpi->world, &rank) == 0 && rank == job.rank);
    number = rank;
    EXPECT(mpi->MPI_Bcast(&number, (int)sizeof number, mpi->byte, 0, mpi->world) == 0 && number == 0);
    EXPECT(mpi->MPI_Finalize() == 0);
    EXPECT_FAILS(
        loch_comm_create(&(loch_comm_options){.size = sizeof(loch_comm_options), .kind = LOCH_COMM_MPI}, &job.comm),
        UNSUPPORTED);
    EXPECT(!job.comm);
}

static void check_failed_group(void)
{
    loch_tensor *good = make(&job, LOCH_F32, 8, job.rank, 0), *other = make(&job, LOCH_I32, 8, job.rank, 0);
    loch_stream *stream;
    LOCH_CHECK(loch_stream_create(job.device, NULL, &stream));
    LOCH_CHECK(loch_comm_begin_group(job.comm));
    EXPECT_FAILS(loch_comm_begin_group(job.comm), INVALID);
    EXPECT_FAILS(loch_comm_barrier(job.comm), INVALID);
    EXPECT_FAILS(loch_comm_sync(job.comm, NULL), INVALID);
    EXPECT_FAILS(loch_comm_all_reduce(job.comm, good, other, LOCH_COMM_SUM, NULL), INVALID);
    LOCH_CHECK(loch_comm_all_reduce(job.comm, good, good, LOCH_COMM_SUM, NULL)); /* not started: the group has failed */
    EXPECT_FAILS(loch_comm_end_group(job.comm), INVALID);
    EXPECT_FAILS(loch_comm_end_group(job.comm), INVALID);
    double *is = read_all(&job, good);
    expect_number(&job, "a group that failed", LOCH_F32, 0, is[0], value_of(LOCH_F32, job.rank, 0));
    free(is);
    LOCH_CHECK(loch_comm_begin_group(job.comm)); /* two streams in one group */
    LOCH_CHECK(loch_comm_all_reduce(job.comm, good, good, LOCH_COMM_MAX, NULL));
    EXPECT_FAILS(loch_comm_all_reduce(job.comm, good, good, LOCH_COMM_MAX, stream), INVALID);
    EXPECT_FAILS(loch_comm_end_group(job.comm), INVALID);
    LOCH_CHECK(loch_comm_begin_group(job.comm)); /* empty */
    LOCH_CHECK(loch_comm_end_group(job.comm));
    loch_stream_close(stream);
    loch_tensor_release(good);
    loch_tensor_release(other);
}

static void run_order(void)
{
    loch_comm *second;
    for (int i = 0; i < 3; i++) {
        begin();
        check_all_reduce(&job, LOCH_F64, LOCH_COMM_SUM, 10, true);
        loch_comm_destroy(job.comm);
    }
    begin();
    LOCH_CHECK(loch_comm_create(NULL, &second));
    collectives other = job;
    other.comm = second;
    check_ring(&job, LOCH_U8, 33);
    check_ring(&other, LOCH_U8, 33);
    check_failed_group();
    LOCH_CHECK(loch_comm_begin_group(second)); /* destroyed with an open group */
    loch_comm_destroy(second);
    const loch_comm_options wrong = {.size = sizeof wrong, .ranks = job.ranks + 1, .rank = job.rank};
    EXPECT_FAILS(loch_comm_create(&wrong, &second), UNSUPPORTED);
    check_all_gather(&job, LOCH_I64, 5, false);
    loch_comm_destroy(job.comm);
}

/* --- calls that differ --- */

/* Bytes behind each tensor that no call may touch. Open MPI copies long messages from one process to the other. */
enum { DIFFER_GUARD = 1 << 20, DIFFER_MARK = 0x5A };

typedef struct differ_tensor {
    loch_tensor *whole, *tensor;
    unsigned char *guard;
} differ_tensor;

static differ_tensor differ_make(loch_dtype dtype, size_t count)
{
    differ_tensor made;
    void *address;
    const size_t bytes = count * loch_dtype_bytes(dtype);
    LOCH_CHECK(loch_tensor_create(LOCH_U8, LOCH_SHAPE((int64_t)bytes + DIFFER_GUARD), NULL, &made.whole));
    LOCH_CHECK(loch_tensor_get_address(made.whole, &address));
    memset(address, DIFFER_MARK, bytes + DIFFER_GUARD);
    LOCH_CHECK(loch_tensor_create_in(loch_tensor_get_buffer(made.whole), 0, dtype, LOCH_SHAPE((int64_t)count), NULL,
                                     &made.tensor));
    made.guard = (unsigned char *)address + bytes;
    return made;
}

/* Checks that neither the tensor nor what is behind it was written. */
static void differ_end(differ_tensor *made)
{
    const size_t bytes = loch_tensor_get_bytes(made->tensor);
    for (size_t i = 0; i < bytes + DIFFER_GUARD; i++)
        EXPECT(made->guard[(ptrdiff_t)i - (ptrdiff_t)bytes] == DIFFER_MARK);
    loch_tensor_release(made->tensor);
    loch_tensor_release(made->whole);
    job.checks++;
}

#define EXPECT_DIFFERS(call, text)                                                                                     \
    do {                                                                                                               \
        EXPECT_FAILS(call, INVALID);                                                                                   \
        EXPECT(strstr(loch_error_get()->sentence, text));                                                              \
        EXPECT(loch_comm_query(job.comm) == LOCH_OK);                                                                  \
    } while (0)

static const size_t differ_sizes[][2] = {{1, 2}, {2, 1}, {0, 3}, {3, 0}, {1000, 200000}, {200000, 1000}};
enum { DIFFER_SIZES = sizeof differ_sizes / sizeof *differ_sizes };

/* The last rank has another size, or another type, operation, root or call. */
static void check_differing_collectives(void)
{
    const bool is_odd = job.rank == job.ranks - 1;
    const size_t ranks = (size_t)job.ranks;
    for (size_t i = 0; i < DIFFER_SIZES; i++) {
        const size_t count = differ_sizes[i][is_odd];
        differ_tensor one = differ_make(LOCH_F32, count), other = differ_make(LOCH_F32, count),
                      many = differ_make(LOCH_F32, count * ranks), more = differ_make(LOCH_F32, count * ranks);
        EXPECT_DIFFERS(loch_comm_all_reduce(job.comm, one.tensor, other.tensor, LOCH_COMM_SUM, NULL), "rank 0 calls");
        EXPECT_DIFFERS(loch_comm_all_gather(job.comm, many.tensor, one.tensor, NULL), "loch_comm_all_gather");
        EXPECT_DIFFERS(loch_comm_reduce_scatter(job.comm, one.tensor, many.tensor, LOCH_COMM_MAX, NULL), "max");
        EXPECT_DIFFERS(loch_comm_broadcast(job.comm, one.tensor, 0, NULL), "root 0");
        EXPECT_DIFFERS(loch_comm_broadcast(job.comm, one.tensor, job.ranks - 1, NULL), "nothing was moved");
        EXPECT_DIFFERS(loch_comm_reduce(job.comm, one.tensor, other.tensor, LOCH_COMM_SUM, 0, NULL), "root 0");
        EXPECT_DIFFERS(loch_comm_all_to_all(job.comm, many.tensor, more.tensor, NULL), "loch_comm_all_to_all");
        differ_end(&one);
        differ_end(&other);
        differ_end(&many);
        differ_end(&more);
    }
    differ_tensor one = differ_make(is_odd ? LOCH_I32 : LOCH_F32, 8), two = differ_make(LOCH_F32, 8);
    EXPECT_DIFFERS(loch_comm_all_reduce(job.comm, one.tensor, one.tensor, LOCH_COMM_SUM, NULL), "i32");
    EXPECT_DIFFERS(loch_comm_all_reduce(job.comm, two.tensor, two.tensor, is_odd ? LOCH_COMM_MAX : LOCH_COMM_SUM, NULL),
                   "max");
    EXPECT_DIFFERS(loch_comm_broadcast(job.comm, two.tensor, is_odd, NULL), "root 1");
    EXPECT_DIFFERS(is_odd ? loch_comm_barrier(job.comm)
                          : loch_comm_all_reduce(job.comm, two.tensor, two.tensor, LOCH_COMM_SUM, NULL),
                   "loch_comm_barrier");
    EXPECT_DIFFERS(loch_comm_broadcast(job.comm, two.tensor, is_odd ? -1 : 0, NULL), is_odd ? "rank -1" : "refused");
    differ_end(&one);
    differ_end(&two);
}

/* Rank 0 expects one element more of the last rank than that one sends. */
static void check_differing_counts(void)
{
    size_t sent[64], expected[64], offsets[64];
    differ_tensor to = differ_make(LOCH_U8, 64 * 70000), from = differ_make(LOCH_U8, 64 * 70000);
    for (size_t i = 0; i < 64; i++) {
        sent[i] = expected[i] = 60000;
        offsets[i] = i * 70000;
    }
    if (job.rank == 0) expected[job.ranks - 1]++;
    EXPECT_DIFFERS(loch_comm_all_to_all_v(job.comm, to.tensor, expected, offsets, from.tensor, sent, offsets, NULL),
                   "sends 60000 elements to rank 0, which expects 60001");
    differ_end(&to);
    differ_end(&from);
}

/* Ranks 0 and 1 exchange messages of different sizes; the others wait. */
static void check_differing_messages(void)
{
    for (size_t i = 0; i < DIFFER_SIZES && job.rank < 2; i++) {
        differ_tensor one = differ_make(LOCH_U8, differ_sizes[i][job.rank]),
                      two = differ_make(LOCH_U8, differ_sizes[i][job.rank]), same = differ_make(LOCH_U8, 77);
        EXPECT_DIFFERS(job.rank ? loch_comm_send(job.comm, one.tensor, 0, NULL)
                                : loch_comm_receive(job.comm, one.tensor, 1, NULL),
                       "rank 1 sends");
        LOCH_CHECK(loch_comm_begin_group(job.comm));
        LOCH_CHECK(loch_comm_send(job.comm, one.tensor, 1 - job.rank, NULL));
        LOCH_CHECK(loch_comm_send(job.comm, same.tensor, 1 - job.rank, NULL)); /* goes: its sizes agree */
        LOCH_CHECK(loch_comm_receive(job.comm, two.tensor, 1 - job.rank, NULL));
        LOCH_CHECK(loch_comm_receive(job.comm, same.tensor, 1 - job.rank, NULL));
        EXPECT_DIFFERS(loch_comm_end_group(job.comm), "nothing was moved");
        LOCH_CHECK(loch_comm_begin_group(job.comm)); /* rank 0 refuses a call of its group: rank 1 does not wait */
        EXPECT(loch_comm_send(job.comm, same.tensor, 1 - job.rank, NULL) == LOCH_OK);
        if (!job.rank) EXPECT_FAILS(loch_comm_send(job.comm, same.tensor, -1, NULL), INVALID);
        EXPECT(loch_comm_receive(job.comm, same.tensor, 1 - job.rank, NULL) == LOCH_OK);
        EXPECT_DIFFERS(loch_comm_end_group(job.comm), job.rank ? "rank 0 has refused" : "rank -1");
        differ_end(&one);
        differ_end(&two);
        differ_end(&same);
    }
    LOCH_CHECK(loch_comm_barrier(job.comm));
}

/* Creates the communicator of the job with a check. */
static void begin_checked(loch_comm_check check)
{
    loch_comm_info info = {.size = sizeof info};
    const loch_comm_options options = {.size = sizeof options, .check = check};
    LOCH_CHECK(loch_comm_create(&options, &job.comm));
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    job.device = info.device;
    job.rank = info.rank;
    job.ranks = info.ranks;
    EXPECT(info.check == (check == LOCH_COMM_CHECK_OFF ? LOCH_COMM_CHECK_OFF : LOCH_COMM_CHECK_ON));
}

static void run_differ(void)
{
    begin_checked(LOCH_COMM_CHECK_AUTO);
    check_differing_collectives();
    check_differing_counts();
    check_differing_messages();
    lochi_comm_mpi_piece = 64;
    check_differing_collectives();
    check_differing_counts();
    check_differing_messages();
    check_all_reduce(&job, LOCH_F32, LOCH_COMM_SUM, 100, false);
    check_ring(&job, LOCH_F64, 1000);
    if (job.rank == 0) printf("%zu checks on each of %d ranks\n", job.checks, job.ranks);
    loch_comm_destroy(job.comm);
    setenv("LOCH_COMM_CHECK", "off", 1);
    loch_comm_info info = {.size = sizeof info};
    LOCH_CHECK(loch_comm_create(NULL, &job.comm));
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    EXPECT(info.check == LOCH_COMM_CHECK_OFF);
    loch_comm_destroy(job.comm);
}

/* Without the check everything works that did, and a receiver finds a wrong size before it is written to. Rank 1 ends
 * in disorder: its message was never received. */
static void run_unchecked(void)
{
    static const size_t beyond[] = {1, 63, 64, 65, 150};
    begin_checked(LOCH_COMM_CHECK_OFF);
    check_ring(&job, LOCH_F64, 100000);
    check_all_to_all_v(&job, LOCH_F32, 7000);
    lochi_comm_mpi_piece = 64;
    if (job.ranks == 2) check_everything(&job, beyond, sizeof beyond / sizeof *beyond);
    lochi_comm_mpi_piece = (size_t)1 << 30;
    differ_tensor tensor = differ_make(LOCH_U8, job.rank == 1 ? 1000000 : 1000);
    LOCH_CHECK(loch_comm_barrier(job.comm));
    if (job.rank == 0) {
        EXPECT_FAILS(loch_comm_receive(job.comm, tensor.tensor, 1, NULL), INVALID);
        EXPECT(strstr(loch_error_get()->sentence, "has 1000000 bytes"));
        EXPECT_FAILS(loch_comm_query(job.comm), INVALID);
        differ_end(&tensor);
        printf("%zu checks on each of %d ranks\n", job.checks, job.ranks);
        fflush(stdout);
        _exit(7);
    }
    if (job.rank == 1) LOCH_IGNORE(loch_comm_send(job.comm, tensor.tensor, 0, NULL));
    pause();
}

static void run_kill(void)
{
    begin();
    for (int i = 0; i < 1000000; i++) {
        check_all_reduce(&job, LOCH_F32, LOCH_COMM_SUM, 5000, false);
        if (job.rank == 1 && i == 20) raise(SIGKILL);
    }
}

static void run_missing(void)
{
    begin();
    if (job.rank == 1) exit(3); /* with an open communicator: the launcher ends the job */
    check_all_reduce(&job, LOCH_F32, LOCH_COMM_SUM, 5000, false);
}

static void run_info(void)
{
    loch_comm_info info = {.size = sizeof info};
    char host[64] = "";
    begin();
    LOCH_CHECK(loch_comm_get_info(job.comm, &info));
    gethostname(host, sizeof host - 1);
    check_all_reduce(&job, LOCH_F32, LOCH_COMM_SUM, 1 << 20, false);
    check_ring(&job, LOCH_F64, 100000);
    printf("rank %d of %d on %s, %d of %d there, %s %s\n", info.rank, info.ranks, host, info.local_rank,
           info.local_ranks, info.engine, info.version);
    loch_comm_destroy(job.comm);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"collectives", run_collectives},
                 {"few", run_few},
                 {"initialised", run_initialised},
                 {"order", run_order},
                 {"differ", run_differ},
                 {"unchecked", run_unchecked},
                 {"kill", run_kill},
                 {"missing", run_missing},
                 {"info", run_info}};
    for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0) {
            parts[i].run();
            return 0;
        }
    fprintf(stderr, "usage: ranks collectives|few|initialised|order|differ|unchecked|kill|missing|info\n");
    return 2;
}

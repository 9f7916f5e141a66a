/* SPDX-License-Identifier: MIT */
/* One rank of a job: mpirun starts several of these (tests/parts/comm/run). The first argument says what to check.
 *
 *     collectives   every collective; small ones, and with pieces of a few bytes
 *     few           some of them, for more ranks than processors: MPICH does not yield
 *     initialised   the program has started MPI itself, and ends it
 *     order         communicators one after the other, two at a time, and groups that fail
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
    comm_mpi_piece = 64; /* everything larger goes in pieces, as it does beyond 1 GiB */
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
    comm_mpi_piece = 64;
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
    LOCH_CHECK(comm_mpi_load(&mpi));
    EXPECT(!comm_mpi_is_running());
    EXPECT(mpi->MPI_Init_thread(NULL, NULL, 0, &provided) == 0);
    EXPECT(comm_mpi_is_running());
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
                 {"kill", run_kill},
                 {"missing", run_missing},
                 {"info", run_info}};
    for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0) {
            parts[i].run();
            return 0;
        }
    fprintf(stderr, "usage: ranks collectives|few|initialised|order|kill|missing|info\n");
    return 2;
}

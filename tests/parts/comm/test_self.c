/* SPDX-License-Identifier: MIT */
/* A communicator of one rank, which needs no library below: every collective on the CPU and on a simulated device, and
 * every argument that is refused. */
#include "collectives.h"
#include "support/test.h"
#include <sys/wait.h>
#include <unistd.h>

static collectives job;

static void begin(const char *name)
{
    CHECK_OK(loch_device_open(name, &job.device));
    const loch_comm_options options = {.size = sizeof options, .device = job.device};
    CHECK_OK(loch_comm_create(&options, &job.comm));
    job.ranks = 1;
}

static void end(void)
{
    loch_comm_destroy(job.comm);
    loch_device_release(job.device);
}

static void every_collective_copies(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 7, 1000};
    static const char *const devices[] = {"cpu", "sim:64MiB,backed"};
    for (size_t i = 0; i < 2; i++) {
        begin(devices[i]);
        check_everything(&job, counts, 4);
        CHECK_OK(loch_stream_create(job.device, NULL, &job.stream));
        check_everything(&job, counts, 4);
        loch_stream_close(job.stream);
        job.stream = NULL;
        end();
    }
}

static void figures_are_told(void **state)
{
    (void)state;
    loch_comm *comm;
    CHECK_OK(loch_comm_create(NULL, &comm));
    loch_comm_info info = {.size = sizeof info};
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_int_equal(info.kind, LOCH_COMM_SELF);
    assert_int_equal(info.state, LOCH_COMM_READY);
    assert_int_equal(info.rank, 0);
    assert_int_equal(info.ranks, 1);
    assert_int_equal(info.local_rank, 0);
    assert_int_equal(info.local_ranks, 1);
    assert_string_equal(info.engine, "self");
    assert_string_equal(info.version, loch_version());
    assert_string_equal(loch_device_get_name(info.device), "cpu");
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(3), NULL, &tensor));
    CHECK_OK(loch_comm_broadcast(comm, tensor, 0, NULL));
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_int_equal(info.calls, 1);
    loch_tensor_release(tensor);
    assert_int_equal(loch_comm_get_seat_rank(comm, LOCH_SEAT(0)), 0);
    assert_int_equal(loch_comm_get_seat_rank(comm, LOCH_SEAT(1)), -1);
    assert_int_equal(loch_comm_get_seat_rank(NULL, LOCH_SEAT(0)), -1);
    loch_comm_info part = {.size = offsetof(loch_comm_info, ranks), .ranks = -7};
    CHECK_OK(loch_comm_get_info(comm, &part));
    assert_int_equal(part.ranks, -7);
    CHECK_FAILS(loch_comm_get_info(comm, NULL), INVALID);
    CHECK_FAILS(loch_comm_get_info(NULL, &info), INVALID);
    CHECK_FAILS(loch_comm_get_info(comm, &(loch_comm_info){.size = 1}), INVALID);
    loch_comm_destroy(comm);
    loch_comm_destroy(NULL);
}

static void seats_have_ranks(void **state)
{
    (void)state;
    loch_engine *engine;
    loch_comm *comm;
    const loch_engine_device seats[] = {{.size = sizeof seats[0], .name = "sim:64MiB,backed"},
                                        {.size = sizeof seats[0], .name = "sim:65MiB,backed"}};
    loch_engine_options engine_options = {.size = sizeof engine_options, .devices = seats, .devices_count = 2};
    CHECK_OK(loch_engine_open(&engine_options, &engine));
    loch_comm_options options = {.size = sizeof options, .engine = engine, .seat = LOCH_SEAT(2)};
    CHECK_FAILS(loch_comm_create(&options, &comm), INVALID);
    options.seat = LOCH_SEAT(1);
    CHECK_FAILS(loch_comm_create(&options, &comm), UNSUPPORTED); /* two seats are two ranks */
    options.kind = LOCH_COMM_MPI;
    CHECK_FAILS(loch_comm_create(&options, &comm), UNSUPPORTED);
    options.kind = LOCH_COMM_AUTO;
    options.device = loch_engine_get_device(engine, LOCH_SEAT(0));
    CHECK_FAILS(loch_comm_create(&options, &comm), INVALID);
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    engine_options.devices_count = 1;
    CHECK_OK(loch_engine_open(&engine_options, &engine));
    options = (loch_comm_options){.size = sizeof options, .engine = engine};
    CHECK_OK(loch_comm_create(&options, &comm));
    loch_comm_info info = {.size = sizeof info};
    CHECK_OK(loch_comm_get_info(comm, &info));
    assert_ptr_equal(info.device, loch_engine_get_device(engine, LOCH_SEAT(0)));
    assert_int_equal(loch_comm_get_seat_rank(comm, LOCH_SEAT(0)), 0);
    loch_comm_destroy(comm);
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}

static void options_are_checked(void **state)
{
    (void)state;
    const char id[LOCH_COMM_ID_BYTES] = {0};
    const loch_comm_options wrong[] = {
        {.size = 1},
        {.size = sizeof wrong[0], .kind = (loch_comm_kind)9},
        {.size = sizeof wrong[0], .registration = (loch_comm_registration)9},
        {.size = sizeof wrong[0], .rank = -1},
        {.size = sizeof wrong[0], .rank = 1},
        {.size = sizeof wrong[0], .ranks = -1},
        {.size = sizeof wrong[0], .rank = 2, .ranks = 2},
        {.size = sizeof wrong[0], .id_bytes = 3},
        {.size = sizeof wrong[0], .id = id, .id_bytes = 127, .ranks = 1},
        {.size = sizeof wrong[0], .id = id, .id_bytes = 128},
        {.size = sizeof wrong[0], .id = id, .id_bytes = 128, .ranks = 1}, /* not NCCL */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        loch_comm *comm = TEST_UNTOUCHED;
        CHECK_FAILS(loch_comm_create(&wrong[i], &comm), INVALID);
        assert_null(comm);
    }
    CHECK_FAILS(loch_comm_create(NULL, NULL), INVALID);
    loch_comm *comm;
    const loch_comm_options nccl = {.size = sizeof nccl, .kind = LOCH_COMM_NCCL};
    CHECK_FAILS(loch_comm_create(&nccl, &comm), UNSUPPORTED); /* the CPU is no CUDA device */
    const loch_comm_options self = {.size = sizeof self, .kind = LOCH_COMM_SELF, .ranks = 2};
    CHECK_FAILS(loch_comm_create(&self, &comm), UNSUPPORTED);
}

#define REFUSED(call, code)                                                                                            \
    do {                                                                                                               \
        CHECK_FAILS(call, code);                                                                                       \
        assert_int_equal(loch_comm_query(job.comm), LOCH_OK); /* a wrong argument does not break it */                 \
    } while (0)

static void arguments_are_checked(void **state)
{
    (void)state;
    begin("cpu");
    loch_tensor *a = make(&job, LOCH_F32, 12, 0, 0), *b = make(&job, LOCH_F32, 12, 0, 0);
    loch_tensor *ints = make(&job, LOCH_I32, 12, 0, 0), *longer = make(&job, LOCH_F32, 13, 0, 0);
    loch_tensor *bools = make(&job, LOCH_BOOL, 4, 0, 0), *part = part_of(longer, 1, 12), *apart, *locked;
    float memory[12] = {0};
    const loch_external external = {.size = sizeof external, .access = LOCH_READ_ONLY};
    LOCH_CHECK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(12), memory, &external, &locked));
    const int64_t strides[] = {2};
    LOCH_CHECK(loch_tensor_create_in(loch_tensor_get_buffer(longer), 0, LOCH_F32, LOCH_SHAPE(6), strides, &apart));
    loch_tensor *whole = part_of(longer, 0, 12);
    loch_comm *c = job.comm;

    REFUSED(loch_comm_all_reduce(NULL, a, b, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, NULL, b, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, a, NULL, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, a, ints, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, a, longer, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, a, b, (loch_comm_op)5, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, a, b, (loch_comm_op)-1, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, bools, bools, LOCH_COMM_SUM, NULL), UNSUPPORTED);
    REFUSED(loch_comm_all_reduce(c, apart, apart, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, locked, a, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_all_reduce(c, whole, part, LOCH_COMM_SUM, NULL), INVALID); /* they overlap by all but one */
    REFUSED(loch_comm_all_gather(c, longer, a, NULL), INVALID);
    REFUSED(loch_comm_all_gather(c, whole, part, NULL), INVALID);
    REFUSED(loch_comm_reduce_scatter(c, longer, a, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_reduce_scatter(c, NULL, NULL, LOCH_COMM_SUM, NULL), INVALID);
    REFUSED(loch_comm_broadcast(c, a, 1, NULL), INVALID);
    REFUSED(loch_comm_broadcast(c, a, -1, NULL), INVALID);
    REFUSED(loch_comm_broadcast(c, NULL, 0, NULL), INVALID);
    REFUSED(loch_comm_reduce(c, a, b, LOCH_COMM_SUM, 1, NULL), INVALID);
    REFUSED(loch_comm_reduce(c, NULL, b, LOCH_COMM_SUM, 0, NULL), INVALID); /* the root needs a target */
    REFUSED(loch_comm_all_to_all(c, a, a, NULL), INVALID);
    REFUSED(loch_comm_send(c, a, 0, NULL), INVALID);
    REFUSED(loch_comm_send(c, a, 7, NULL), INVALID);
    REFUSED(loch_comm_receive(c, a, -1, NULL), INVALID);
    REFUSED(loch_comm_receive(c, locked, 0, NULL), INVALID);
    REFUSED(loch_comm_barrier(NULL), INVALID);
    REFUSED(loch_comm_begin_group(NULL), INVALID);
    REFUSED(loch_comm_end_group(NULL), INVALID);
    REFUSED(loch_comm_end_group(c), INVALID);
    REFUSED(loch_comm_sync(NULL, NULL), INVALID);
    CHECK_FAILS(loch_comm_query(NULL), INVALID);
    REFUSED(loch_comm_add_window(c, loch_tensor_get_buffer(a)), UNSUPPORTED);
    REFUSED(loch_comm_add_window(c, NULL), INVALID);
    REFUSED(loch_comm_add_window(NULL, loch_tensor_get_buffer(a)), INVALID);
    REFUSED(loch_comm_remove_window(NULL, NULL), INVALID);

    loch_tensor *const all[] = {a, b, ints, longer, bools, part, apart, locked, whole};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        loch_tensor_release(all[i]);
    end();
}

static void parts_of_an_all_to_all_are_checked(void **state)
{
    (void)state;
    begin("cpu");
    loch_tensor *a = make(&job, LOCH_F32, 12, 0, 0), *b = make(&job, LOCH_F32, 12, 0, 0);
    loch_tensor *ints = make(&job, LOCH_I32, 12, 0, 0);
    const size_t five[] = {5}, seven[] = {7}, eight[] = {8}, most[] = {SIZE_MAX}, none[] = {0};
    loch_comm *c = job.comm;
    REFUSED(loch_comm_all_to_all_v(c, a, NULL, five, b, five, five, NULL), INVALID);
    REFUSED(loch_comm_all_to_all_v(c, a, five, NULL, b, five, five, NULL), INVALID);
    REFUSED(loch_comm_all_to_all_v(c, a, five, five, b, NULL, five, NULL), INVALID);
    REFUSED(loch_comm_all_to_all_v(c, a, five, five, b, five, NULL, NULL), INVALID);
    REFUSED(loch_comm_all_to_all_v(c, a, five, eight, b, five, five, NULL), OUT_OF_RANGE);
    REFUSED(loch_comm_all_to_all_v(c, a, five, five, b, five, eight, NULL), OUT_OF_RANGE);
    REFUSED(loch_comm_all_to_all_v(c, a, five, most, b, five, five, NULL), OUT_OF_RANGE);
    REFUSED(loch_comm_all_to_all_v(c, a, most, five, b, five, five, NULL), OUT_OF_RANGE);
    REFUSED(loch_comm_all_to_all_v(c, a, five, five, b, seven, five, NULL), INVALID);
    REFUSED(loch_comm_all_to_all_v(c, a, five, five, ints, five, five, NULL), INVALID);
    REFUSED(loch_comm_all_to_all_v(c, a, five, five, a, five, five, NULL), INVALID);
    REFUSED(loch_comm_all_to_all_v(c, NULL, five, five, a, five, five, NULL), INVALID);
    CHECK_OK(loch_comm_all_to_all_v(c, a, five, seven, b, five, seven, NULL));
    CHECK_OK(loch_comm_all_to_all_v(c, a, none, none, b, none, none, NULL));
    loch_tensor_release(a);
    loch_tensor_release(b);
    loch_tensor_release(ints);
    end();
}

static void groups_are_checked(void **state)
{
    (void)state;
    begin("cpu");
    loch_tensor *a = make(&job, LOCH_F32, 12, 0, 0), *b = make(&job, LOCH_F32, 13, 0, 0);
    loch_comm *c = job.comm;
    CHECK_OK(loch_comm_begin_group(c));
    REFUSED(loch_comm_begin_group(c), INVALID);
    CHECK_OK(loch_comm_send(c, a, 0, NULL));
    REFUSED(loch_comm_end_group(c), INVALID); /* a send without a receive */
    CHECK_OK(loch_comm_begin_group(c));
    CHECK_OK(loch_comm_send(c, a, 0, NULL));
    REFUSED(loch_comm_receive(c, b, 0, NULL), INVALID); /* of another size */
    REFUSED(loch_comm_end_group(c), INVALID);
    CHECK_OK(loch_comm_begin_group(c)); /* many messages, receives first */
    loch_tensor *to[40], *from[40];
    for (size_t i = 0; i < 40; i++) {
        to[i] = make(&job, LOCH_I32, i + 1, -1, 0);
        from[i] = make(&job, LOCH_I32, i + 1, 0, i);
        CHECK_OK(loch_comm_receive(c, to[i], 0, NULL));
    }
    for (size_t i = 0; i < 40; i++)
        CHECK_OK(loch_comm_send(c, from[i], 0, NULL));
    CHECK_OK(loch_comm_end_group(c));
    for (size_t i = 0; i < 40; i++) {
        double *is = read_all(&job, to[i]);
        for (size_t j = 0; j <= i; j++)
            assert_true(is[j] == value_of(LOCH_I32, 0, i + j));
        free(is);
        loch_tensor_release(to[i]);
        loch_tensor_release(from[i]);
    }
    CHECK_OK(loch_comm_begin_group(c)); /* left open */
    CHECK_OK(loch_comm_all_reduce(c, a, a, LOCH_COMM_SUM, NULL));
    loch_tensor_release(a);
    loch_tensor_release(b);
    end();
}

static void a_closed_stream_is_refused(void **state)
{
    (void)state;
    begin("sim:64MiB,backed");
    loch_stream *stream;
    CHECK_OK(loch_stream_create(job.device, NULL, &stream));
    loch_stream *held = loch_stream_retain(stream);
    loch_stream_close(stream);
    loch_tensor *a = make(&job, LOCH_F32, 12, 0, 0);
    REFUSED(loch_comm_broadcast(job.comm, a, 0, held), INVALID);
    loch_tensor_release(a);
    loch_stream_release(held);
    end();
}

static void a_child_has_no_communicators(void **state)
{
    (void)state;
    begin("cpu");
    loch_tensor *a = make(&job, LOCH_F32, 12, 0, 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool is_good = loch_comm_all_reduce(job.comm, a, a, LOCH_COMM_SUM, NULL) == LOCH_E_FORKED;
        is_good = is_good && loch_comm_query(job.comm) == LOCH_E_FORKED;
        is_good = is_good && loch_comm_barrier(job.comm) == LOCH_E_FORKED;
        is_good = is_good && loch_comm_begin_group(job.comm) == LOCH_E_FORKED;
        is_good = is_good && loch_comm_end_group(job.comm) == LOCH_E_FORKED;
        is_good = is_good && loch_comm_sync(job.comm, NULL) == LOCH_E_FORKED;
        is_good = is_good && loch_comm_add_window(job.comm, loch_tensor_get_buffer(a)) == LOCH_E_FORKED;
        loch_comm_destroy(job.comm);
        loch_comm *own = NULL; /* and can have its own */
        is_good = is_good && loch_comm_create(NULL, &own) == LOCH_OK && loch_comm_query(own) == LOCH_OK;
        loch_comm_destroy(own);
        _exit(is_good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    CHECK_OK(loch_comm_all_reduce(job.comm, a, a, LOCH_COMM_SUM, NULL));
    loch_tensor_release(a);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_copies),
        cmocka_unit_test(figures_are_told),
        cmocka_unit_test(seats_have_ranks),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(parts_of_an_all_to_all_are_checked),
        cmocka_unit_test(groups_are_checked),
        cmocka_unit_test(a_closed_stream_is_refused),
        cmocka_unit_test(a_child_has_no_communicators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

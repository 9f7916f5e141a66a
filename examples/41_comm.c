/* SPDX-License-Identifier: MIT */
/* Collectives between processes. Runs as one process, and as several:
 *
 *     ./41_comm
 *     mpirun -n 4 ./41_comm
 *     torchrun --no-python --nproc-per-node 2 ./41_comm cuda      one GPU for each process, over NCCL
 */
#include <loch/check.h>
#include <loch/comm.h>
#include <stdio.h>
#include <string.h>

static loch_comm_info me = {.size = sizeof me};

static loch_tensor *make(int64_t count, float value)
{
    loch_tensor *tensor;
    const loch_tensor_options options = {.size = sizeof options, .device = me.device, .alignment = 4096};
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(count), &options, &tensor));
    LOCH_CHECK(loch_tensor_fill(tensor, loch_scalar_of(value), NULL));
    return tensor;
}

static void show(const char *what, loch_tensor *tensor)
{
    float values[8] = {0};
    const size_t count = loch_tensor_get_elements(tensor);
    if (me.rank != 0 || count > 8) return;
    LOCH_CHECK(loch_tensor_read(tensor, values, count * sizeof *values, NULL));
    printf("%-32s", what);
    for (size_t i = 0; i < count; i++)
        printf(" %g", (double)values[i]);
    printf("\n");
}

/* Every rank has a gradient, and all need the sum. */
static void sum_up(loch_comm *comm)
{
    loch_tensor *gradient = make(4, (float)(me.rank + 1)), *total = make(4, 0);
    LOCH_CHECK(loch_comm_all_reduce(comm, total, gradient, LOCH_COMM_SUM, NULL));
    show("sum of all gradients:", total);
    LOCH_CHECK(loch_comm_reduce(comm, total, gradient, LOCH_COMM_MAX, 0, NULL)); /* on rank 0 alone */
    show("greatest gradient:", total);
    LOCH_CHECK(loch_comm_broadcast(comm, total, 0, NULL));
    loch_tensor_release(gradient);
    loch_tensor_release(total);
}

/* Weights are cut over the ranks: each has two rows of them. */
static void cut(loch_comm *comm)
{
    loch_tensor *own = make(2, (float)me.rank), *all = make(2 * me.ranks, 0);
    LOCH_CHECK(loch_comm_all_gather(comm, all, own, NULL));
    show("weights of all ranks:", all);
    LOCH_CHECK(loch_comm_reduce_scatter(comm, own, all, LOCH_COMM_SUM, NULL));
    show("the part of rank 0, summed up:", own);
    loch_tensor_release(own);
    loch_tensor_release(all);
}

/* Tokens go to the experts that other ranks have: one to each, then as many as the rank's number says. */
static void route(loch_comm *comm)
{
    loch_tensor *from = make(me.ranks, (float)(me.rank * 10)), *to = make(me.ranks, 0);
    size_t counts[64], expected[64], offsets[64];
    LOCH_CHECK(loch_comm_all_to_all(comm, to, from, NULL));
    show("one token of each rank:", to);
    for (int i = 0; i < me.ranks && i < 64; i++) {
        counts[i] = me.rank % 2; /* ranks with an odd number send, the others have nothing to send */
        expected[i] = (size_t)(i % 2);
        offsets[i] = (size_t)i;
    }
    if (me.ranks <= 64) LOCH_CHECK(loch_comm_all_to_all_v(comm, to, expected, offsets, from, counts, offsets, NULL));
    loch_tensor_release(from);
    loch_tensor_release(to);
}

/* A ring: the calls of a group do not wait for each other. */
static void pass_on(loch_comm *comm)
{
    loch_stream *stream;
    const int ranks = me.ranks > 0 ? me.ranks : 1;
    loch_tensor *mine = make(1, (float)me.rank), *theirs = make(1, 0);
    LOCH_CHECK(loch_stream_create(me.device, NULL, &stream));
    LOCH_CHECK(loch_comm_begin_group(comm));
    LOCH_CHECK(loch_comm_send(comm, mine, (me.rank + 1) % ranks, stream));
    LOCH_CHECK(loch_comm_receive(comm, theirs, (me.rank + ranks - 1) % ranks, stream));
    LOCH_CHECK(loch_comm_end_group(comm));
    LOCH_CHECK(loch_comm_sync(comm, stream)); /* tells whether all ranks are still there */
    show("what the rank before sent:", theirs);
    loch_stream_close(stream);
    loch_tensor_release(mine);
    loch_tensor_release(theirs);
}

/* Memory that all ranks reach at once, where the engine below has such a thing. */
static void open_window(loch_comm *comm)
{
    loch_tensor *tensor = make(1024, 1);
    const loch_status status = loch_comm_add_window(comm, loch_tensor_get_buffer(tensor));
    if (status == LOCH_OK) LOCH_CHECK(loch_comm_remove_window(comm, loch_tensor_get_buffer(tensor)));
    if (me.rank == 0) printf("%-32s %s\n", "window:", status == LOCH_OK ? "yes" : loch_error_get()->sentence);
    loch_tensor_release(tensor);
}

int main(int argc, char **argv)
{
    loch_comm *comm;
    loch_device *device = NULL;
    char name[32] = "cpu", id[LOCH_COMM_ID_BYTES];
    loch_comm_place place = {.size = sizeof place};
    LOCH_CHECK(loch_comm_get_place(&place)); /* before MPI or NCCL: which GPU is this process's own? */
    if (argc > 1 && strcmp(argv[1], "cuda") == 0)
        snprintf(name, sizeof name, "cuda:%d", place.local_rank > 0 ? place.local_rank : 0);
    LOCH_CHECK(loch_device_open(name, &device));
    loch_comm_options options = {.size = sizeof options, .device = device};
    if (argc > 1 && place.ranks == 1) { /* a program with a way of its own to tell all ranks the id */
        LOCH_CHECK(loch_comm_read_id(id, sizeof id));
        options.ranks = 1;
        options.id = id;
        options.id_bytes = sizeof id;
    }
    LOCH_CHECK(loch_comm_create(&options, &comm));
    LOCH_CHECK(loch_comm_get_info(comm, &me));
    if (me.rank == 0)
        printf("%d ranks, %d on this machine, %s %s, seat 0 is rank %d\n", me.ranks, me.local_ranks, me.engine,
               me.version, loch_comm_get_seat_rank(comm, LOCH_SEAT(0)));
    sum_up(comm);
    cut(comm);
    route(comm);
    pass_on(comm);
    open_window(comm);
    LOCH_CHECK(loch_comm_barrier(comm));
    LOCH_CHECK(loch_comm_query(comm));
    loch_comm_destroy(comm);
    loch_device_release(device);
    return 0;
}

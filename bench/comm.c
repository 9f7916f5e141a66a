/* SPDX-License-Identifier: MIT */
/* Collectives of Loch beside those of the library below, in turns; medians.
 *
 *   comm cuda:0                      an all-reduce over one rank: loch_comm_all_reduce and ncclAllReduce. The rate is
 *                                    that on the device, by events; the overhead is the time of the calling thread
 *   mpirun -n 2 comm [MIB [ROUNDS]]  an all-reduce of f32 on the CPU (64 MiB): loch_comm_all_reduce and MPI_Allreduce.
 *                                    0 MiB are 8 bytes: the latency, with the check of LOCH_COMM_CHECK
 */
#include <dlfcn.h>
#include <loch/check.h>
#include <loch/comm.h>
#include <loch/engine.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 1001

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static loch_tensor *make(loch_device *device, loch_stream *stream, size_t bytes)
{
    loch_tensor *tensor;
    const loch_tensor_options options = {.size = sizeof options, .device = device, .stream = stream};
    LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)(bytes / 4)), &options, &tensor));
    LOCH_CHECK(loch_tensor_fill(tensor, loch_scalar_of(1.0f), stream));
    return tensor;
}

static void *address_of(loch_tensor *tensor)
{
    void *address;
    LOCH_CHECK(loch_tensor_get_address(tensor, &address));
    return address;
}

/* --- NCCL, one rank --- */

enum { NCCL_FLOAT = 7, NCCL_SUM = 0, NCCL_ROUNDS = 101, NCCL_CALLS = 20 };

typedef int nccl_all_reduce(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream);

typedef struct nccl_bench {
    loch_comm *comm;
    loch_stream *stream;
    loch_tensor *to, *from, *gate;
    nccl_all_reduce *call;
    void *native;
    loch_event *start, *end;
} nccl_bench;

static void nccl_calls(const nccl_bench *b, bool is_loch)
{
    void *queue = loch_stream_get_native(b->stream), *to = address_of(b->to);
    const void *from = address_of(b->from);
    const size_t count = loch_tensor_get_elements(b->to);
    for (int i = 0; i < NCCL_CALLS; i++)
        if (is_loch)
            LOCH_CHECK(loch_comm_all_reduce(b->comm, b->to, b->from, LOCH_COMM_SUM, b->stream));
        else if (b->call(from, to, count, NCCL_FLOAT, NCCL_SUM, b->native, queue) != 0)
            exit(1);
}

/* Measures microseconds of one call: on the device, and of the calling thread. A fill goes first, so that the queue is
 * full while the events pass. */
static void nccl_round(const nccl_bench *b, bool is_loch, double *device_us, double *host_us)
{
    uint64_t elapsed_ns;
    LOCH_CHECK(loch_tensor_fill(b->gate, loch_scalar_of(0.0f), b->stream));
    LOCH_CHECK(loch_event_record(b->start, b->stream));
    const double start = now_us();
    nccl_calls(b, is_loch);
    *host_us = (now_us() - start) / NCCL_CALLS;
    LOCH_CHECK(loch_event_record(b->end, b->stream));
    LOCH_CHECK(loch_stream_sync(b->stream));
    LOCH_CHECK(loch_event_elapsed(b->start, b->end, &elapsed_ns));
    *device_us = (double)elapsed_ns * 1e-3 / NCCL_CALLS;
}

static void nccl_measure(nccl_bench *b, loch_device *device, size_t bytes)
{
    double own[NCCL_ROUNDS], own_host[NCCL_ROUNDS], bare[NCCL_ROUNDS], bare_host[NCCL_ROUNDS], unused[2];
    b->to = make(device, b->stream, bytes);
    b->from = make(device, b->stream, bytes);
    nccl_round(b, true, &unused[0], &unused[1]);
    nccl_round(b, false, &unused[0], &unused[1]);
    for (int i = 0; i < NCCL_ROUNDS; i++) {
        nccl_round(b, i % 2 == 0, i % 2 ? &bare[i] : &own[i], i % 2 ? &bare_host[i] : &own_host[i]);
        nccl_round(b, i % 2 == 1, i % 2 ? &own[i] : &bare[i], i % 2 ? &own_host[i] : &bare_host[i]);
    }
    const double loch_us = median(own, NCCL_ROUNDS), nccl_us = median(bare, NCCL_ROUNDS);
    printf("%4zu MiB  Loch %8.2f us %7.1f GB/s   NCCL %8.2f us %7.1f GB/s   ratio of rates %.3f   "
           "calling thread %+.2f us (%.2f, %.2f)\n",
           bytes >> 20, loch_us, (double)bytes * 1e-3 / loch_us, nccl_us, (double)bytes * 1e-3 / nccl_us,
           nccl_us / loch_us, median(own_host, NCCL_ROUNDS) - median(bare_host, NCCL_ROUNDS),
           median(own_host, NCCL_ROUNDS), median(bare_host, NCCL_ROUNDS));
    loch_tensor_release(b->to);
    loch_tensor_release(b->from);
}

static void bench_nccl(const char *name)
{
    nccl_bench b = {0};
    loch_engine *engine;
    loch_nccl *nccl;
    void *call;
    loch_comm_info info = {.size = sizeof info};
    const loch_engine_device seat = {.size = sizeof seat, .name = name};
    const loch_engine_options one = {.size = sizeof one, .devices = &seat, .devices_count = 1};
    LOCH_CHECK(loch_engine_open(&one, &engine));
    loch_device *device = loch_engine_get_device(engine, LOCH_SEAT(0));
    const loch_comm_options options = {.size = sizeof options, .device = device, .ranks = 1};
    LOCH_CHECK(loch_comm_create(&options, &b.comm));
    LOCH_CHECK(loch_engine_require_nccl(engine, &nccl));
    LOCH_CHECK(loch_nccl_get_native(nccl, 0, &b.native));
    LOCH_CHECK(loch_library_find(LOCH_LIBRARY_NCCL, "ncclAllReduce", &call));
    memcpy(&b.call, &call, sizeof call);
    LOCH_CHECK(loch_stream_create(device, NULL, &b.stream));
    LOCH_CHECK(loch_event_create(device, LOCH_EVENT_TIMED, &b.start));
    LOCH_CHECK(loch_event_create(device, LOCH_EVENT_TIMED, &b.end));
    b.gate = make(device, b.stream, (size_t)2 << 30);
    LOCH_CHECK(loch_comm_get_info(b.comm, &info));
    printf("all-reduce of f32 over one rank, not in place, NCCL %s, medians of %d rounds of %d calls\n", info.version,
           NCCL_ROUNDS, NCCL_CALLS);
    for (size_t mib = 1; mib <= 256; mib *= 4)
        nccl_measure(&b, device, mib << 20);
    LOCH_CHECK(loch_comm_get_info(b.comm, &info));
    printf("%zu ranges registered, %llu of %llu calls on registered memory\n", info.registered_ranges,
           (unsigned long long)info.calls_registered, (unsigned long long)info.calls);
    loch_tensor_release(b.gate);
    loch_event_destroy(b.start);
    loch_event_destroy(b.end);
    loch_comm_destroy(b.comm);
    loch_stream_close(b.stream);
    LOCH_CHECK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}

/* --- MPI --- */

typedef int mpi_all_reduce(const void *from, void *to, int count, uintptr_t type, uintptr_t op, uintptr_t comm);

typedef struct mpi_bench {
    mpi_all_reduce *call;
    uintptr_t type, op, world; /* handles: addresses in Open MPI, numbers in MPICH */
} mpi_bench;

/* Finds the library that the communicator has loaded. */
static void mpi_find(mpi_bench *b, const char *engine)
{
    const bool is_open_mpi = strcmp(engine, "Open MPI") == 0;
    void *library = dlopen(is_open_mpi ? "libmpi.so.40" : "libmpich.so.12", RTLD_NOW | RTLD_NOLOAD);
    void *call = library ? dlsym(library, "MPI_Allreduce") : NULL;
    if (!call) {
        fprintf(stderr, "there is no MPI library to compare with\n");
        exit(1);
    }
    memcpy(&b->call, &call, sizeof call);
    b->type = is_open_mpi ? (uintptr_t)dlsym(library, "ompi_mpi_float") : 0x4c00040a;
    b->op = is_open_mpi ? (uintptr_t)dlsym(library, "ompi_mpi_op_sum") : 0x58000003;
    b->world = is_open_mpi ? (uintptr_t)dlsym(library, "ompi_mpi_comm_world") : 0x44000000;
}

static void bench_mpi(size_t bytes, int rounds)
{
    static double own[ROUNDS_MAX], bare[ROUNDS_MAX];
    loch_comm *comm;
    loch_comm_info info = {.size = sizeof info};
    mpi_bench b;
    LOCH_CHECK(loch_comm_create(&(loch_comm_options){.size = sizeof(loch_comm_options), .kind = LOCH_COMM_MPI}, &comm));
    LOCH_CHECK(loch_comm_get_info(comm, &info));
    mpi_find(&b, info.engine);
    loch_tensor *to = make(info.device, NULL, bytes), *from = make(info.device, NULL, bytes);
    for (int turn = 0; turn < 2 * rounds + 2; turn++) {
        const bool is_loch = turn % 2 != turn / 2 % 2; /* in turns, and each is first as often */
        LOCH_CHECK(loch_comm_barrier(comm));
        const double start = now_us();
        if (is_loch)
            LOCH_CHECK(loch_comm_all_reduce(comm, to, from, LOCH_COMM_SUM, NULL));
        else if (b.call(address_of(from), address_of(to), (int)(bytes / 4), b.type, b.op, b.world) != 0)
            exit(1);
        if (turn >= 2) (is_loch ? own : bare)[turn / 2 - 1] = now_us() - start; /* the first two warm up */
    }
    const double loch_us = median(own, rounds), mpi_us = median(bare, rounds);
    if (info.rank == 0)
        printf(
            "%zu bytes, %d ranks, %s %s, check %s: Loch %.1f us, MPI_Allreduce %.1f us, ratio of rates %.3f (medians "
            "of %d)\n",
            bytes, info.ranks, info.engine, info.version, info.check == LOCH_COMM_CHECK_ON ? "on" : "off", loch_us,
            mpi_us, mpi_us / loch_us, rounds);
    loch_tensor_release(to);
    loch_tensor_release(from);
    loch_comm_destroy(comm);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strncmp(argv[1], "cuda", 4) == 0) {
        bench_nccl(argv[1]);
        return 0;
    }
    const long mib = argc > 1 ? atol(argv[1]) : 64, rounds = argc > 2 ? atol(argv[2]) : 51;
    if (mib < 0 || mib > 4096 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: comm cuda:N, or mpirun -n 2 comm [MIB [ROUNDS]]\n");
        return 2;
    }
    bench_mpi(mib ? (size_t)mib << 20 : 8, (int)rounds);
    return 0;
}

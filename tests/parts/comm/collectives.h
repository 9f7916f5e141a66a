/* SPDX-License-Identifier: MIT */
/* Every collective with many types and sizes, in place and not, against a plain computation. Each rank of a job runs
 * this, on the CPU (ranks.c) and on a GPU (tests/gpu/test_cuda_comm.c). Numbers are small, so that sums and products of
 * all ranks are exact in every type. */
#ifndef LOCH_TEST_COLLECTIVES_H
#define LOCH_TEST_COLLECTIVES_H

#include <loch/check.h>
#include <loch/comm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank of the job. */
typedef struct collectives {
    loch_comm *comm;
    loch_device *device;
    loch_stream *stream; /* NULL: calls wait */
    int rank, ranks;
    size_t checks;
} collectives;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #condition, loch_error_get()->sentence); \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define EXPECT_FAILS(call, code)                                                                                       \
    do {                                                                                                               \
        const loch_status expected_status = (call);                                                                    \
        if (expected_status != LOCH_E_##code) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s instead of E_%s\n", __FILE__, __LINE__, #call,                              \
                    loch_status_name(expected_status), #code);                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The number at index i of rank r: 1 to 3; of bools 0 and 1. */
static inline double value_of(loch_dtype dtype, int rank, size_t i)
{
    const size_t mixed = (size_t)rank * 7 + i * 5 + i / 3;
    return dtype == LOCH_BOOL ? (double)(mixed % 2) : (double)(mixed % 3 + 1);
}

/* What a reduction of all ranks gives at index i. */
static inline double reduced(loch_dtype dtype, loch_comm_op op, int ranks, size_t i)
{
    double all = value_of(dtype, 0, i);
    for (int rank = 1; rank < ranks; rank++) {
        const double one = value_of(dtype, rank, i);
        switch (op) {
        case LOCH_COMM_SUM:
        case LOCH_COMM_AVERAGE: all += one; break;
        case LOCH_COMM_PRODUCT: all *= one; break;
        case LOCH_COMM_MIN: all = one < all ? one : all; break;
        case LOCH_COMM_MAX: all = one > all ? one : all; break;
        }
    }
    return op == LOCH_COMM_AVERAGE ? all / ranks : all;
}

static inline void store(loch_dtype dtype, char *to, size_t i, double value)
{
    LOCH_CHECK(loch_scalar_store(loch_scalar_from_double(value), dtype, to + i * loch_dtype_bytes(dtype)));
}

/* Makes a tensor of `count` elements: the numbers of `rank` from index `first` on, or 8 if the rank is negative. */
static inline loch_tensor *make(const collectives *c, loch_dtype dtype, size_t count, int rank, size_t first)
{
    loch_tensor *tensor;
    char *host = malloc(count * loch_dtype_bytes(dtype) + 1);
    EXPECT(host);
    for (size_t i = 0; i < count; i++)
        store(dtype, host, i, rank < 0 ? 8 : value_of(dtype, rank, first + i));
    const loch_tensor_options options = {.size = sizeof options, .device = c->device, .stream = c->stream};
    LOCH_CHECK(loch_tensor_create_from(dtype, LOCH_SHAPE((int64_t)count), host, &options, &tensor));
    free(host);
    return tensor;
}

/* A part of a one-dimensional tensor. */
static inline loch_tensor *part_of(loch_tensor *whole, size_t first, size_t count)
{
    loch_tensor *part;
    LOCH_CHECK(loch_tensor_create_in(loch_tensor_get_buffer(whole),
                                     first * loch_dtype_bytes(loch_tensor_get_dtype(whole)),
                                     loch_tensor_get_dtype(whole), LOCH_SHAPE((int64_t)count), NULL, &part));
    return part;
}

/* Reads a tensor as doubles; the caller frees them. Waits for the stream of the calls, which makes them visible. */
static inline double *read_all(collectives *c, loch_tensor *tensor)
{
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    const size_t count = loch_tensor_get_elements(tensor), bytes = loch_tensor_get_bytes(tensor);
    char *host = malloc(bytes + 1);
    double *numbers = calloc(count + 1, sizeof *numbers);
    EXPECT(host && numbers);
    if (c->stream) LOCH_CHECK(loch_comm_sync(c->comm, c->stream));
    LOCH_CHECK(loch_tensor_read(tensor, host, bytes, c->stream));
    for (size_t i = 0; i < count; i++) {
        loch_scalar scalar;
        LOCH_CHECK(loch_scalar_load(dtype, host + i * loch_dtype_bytes(dtype), &scalar));
        numbers[i] = scalar.dtype == LOCH_F64   ? scalar.value.f
                     : scalar.dtype == LOCH_I64 ? (double)scalar.value.i
                                                : (double)scalar.value.u;
    }
    free(host);
    return numbers;
}

static inline void expect_number(const collectives *c, const char *what, loch_dtype dtype, size_t i, double is,
                                 double want)
{
    if (is == want) return;
    fprintf(stderr, "rank %d: %s of %s: element %zu is %g and not %g\n", c->rank, what, loch_dtype_name(dtype), i, is,
            want);
    exit(1);
}

/* --- one collective each: `count` elements of one rank, in place or not --- */

static inline void check_all_reduce(collectives *c, loch_dtype dtype, loch_comm_op op, size_t count, bool in_place)
{
    loch_tensor *from = make(c, dtype, count, c->rank, 0);
    loch_tensor *to = in_place ? loch_tensor_retain(from) : make(c, dtype, count, -1, 0);
    LOCH_CHECK(loch_comm_all_reduce(c->comm, to, from, op, c->stream));
    double *is = read_all(c, to);
    for (size_t i = 0; i < count; i++)
        expect_number(c, "all-reduce", dtype, i, is[i], reduced(dtype, op, c->ranks, i));
    free(is);
    loch_tensor_release(from);
    loch_tensor_release(to);
    c->checks++;
}

static inline void check_reduce(collectives *c, loch_dtype dtype, loch_comm_op op, size_t count, bool in_place,
                                int root)
{
    loch_tensor *from = make(c, dtype, count, c->rank, 0);
    loch_tensor *to = in_place ? loch_tensor_retain(from) : c->rank == root ? make(c, dtype, count, -1, 0) : NULL;
    LOCH_CHECK(loch_comm_reduce(c->comm, to, from, op, root, c->stream));
    if (c->rank == root) {
        double *is = read_all(c, to);
        for (size_t i = 0; i < count; i++)
            expect_number(c, "reduce", dtype, i, is[i], reduced(dtype, op, c->ranks, i));
        free(is);
    }
    loch_tensor_release(from);
    loch_tensor_release(to);
    c->checks++;
}

static inline void check_reduce_scatter(collectives *c, loch_dtype dtype, loch_comm_op op, size_t count, bool in_place)
{
    loch_tensor *from = make(c, dtype, count * (size_t)c->ranks, c->rank, 0);
    loch_tensor *to = in_place ? part_of(from, count * (size_t)c->rank, count) : make(c, dtype, count, -1, 0);
    LOCH_CHECK(loch_comm_reduce_scatter(c->comm, to, from, op, c->stream));
    double *is = read_all(c, to);
    for (size_t i = 0; i < count; i++)
        expect_number(c, "reduce-scatter", dtype, i, is[i], reduced(dtype, op, c->ranks, (size_t)c->rank * count + i));
    free(is);
    loch_tensor_release(from);
    loch_tensor_release(to);
    c->checks++;
}

static inline void check_all_gather(collectives *c, loch_dtype dtype, size_t count, bool in_place)
{
    loch_tensor *to = make(c, dtype, count * (size_t)c->ranks, -1, 0);
    loch_tensor *from = in_place ? part_of(to, count * (size_t)c->rank, count) : make(c, dtype, count, c->rank, 0);
    if (in_place && count) {
        loch_tensor *numbers = make(c, dtype, count, c->rank, 0);
        const loch_tensor_copy_options copy = {.size = sizeof copy, .stream = c->stream};
        LOCH_CHECK(loch_tensor_copy(from, numbers, &copy));
        loch_tensor_release(numbers);
    }
    LOCH_CHECK(loch_comm_all_gather(c->comm, to, from, c->stream));
    double *is = read_all(c, to);
    for (int rank = 0; rank < c->ranks; rank++)
        for (size_t i = 0; i < count; i++)
            expect_number(c, "all-gather", dtype, i, is[(size_t)rank * count + i], value_of(dtype, rank, i));
    free(is);
    loch_tensor_release(from);
    loch_tensor_release(to);
    c->checks++;
}

static inline void check_broadcast(collectives *c, loch_dtype dtype, size_t count, int root)
{
    loch_tensor *tensor = make(c, dtype, count, c->rank == root ? root : -1, 0);
    LOCH_CHECK(loch_comm_broadcast(c->comm, tensor, root, c->stream));
    double *is = read_all(c, tensor);
    for (size_t i = 0; i < count; i++)
        expect_number(c, "broadcast", dtype, i, is[i], value_of(dtype, root, i));
    free(is);
    loch_tensor_release(tensor);
    c->checks++;
}

static inline void check_all_to_all(collectives *c, loch_dtype dtype, size_t count)
{
    loch_tensor *from = make(c, dtype, count * (size_t)c->ranks, c->rank, 0);
    loch_tensor *to = make(c, dtype, count * (size_t)c->ranks, -1, 0);
    LOCH_CHECK(loch_comm_all_to_all(c->comm, to, from, c->stream));
    double *is = read_all(c, to);
    for (int rank = 0; rank < c->ranks; rank++)
        for (size_t i = 0; i < count; i++)
            expect_number(c, "all-to-all", dtype, i, is[(size_t)rank * count + i],
                          value_of(dtype, rank, (size_t)c->rank * count + i));
    free(is);
    loch_tensor_release(from);
    loch_tensor_release(to);
    c->checks++;
}

/* How many elements rank a sends to rank b: some are 0, and they differ both ways. */
static inline size_t part_count(int a, int b, size_t count)
{
    return ((size_t)(a + 2 * b) % 3) * count / 2;
}

/* Parts lie in reverse order of ranks, with one element between them that must not change. */
static inline void check_all_to_all_v(collectives *c, loch_dtype dtype, size_t count)
{
    const size_t ranks = (size_t)c->ranks;
    size_t *numbers = calloc(4 * ranks, sizeof *numbers);
    EXPECT(numbers);
    size_t *to_counts = numbers, *to_offsets = numbers + ranks, *from_counts = numbers + 2 * ranks;
    size_t *from_offsets = numbers + 3 * ranks, to_all = 0, from_all = 0;
    for (int rank = c->ranks - 1; rank >= 0; rank--) {
        to_counts[rank] = part_count(rank, c->rank, count);
        from_counts[rank] = part_count(c->rank, rank, count);
        to_offsets[rank] = to_all;
        from_offsets[rank] = from_all;
        to_all += to_counts[rank] + 1;
        from_all += from_counts[rank] + 1;
    }
    loch_tensor *from = make(c, dtype, from_all, c->rank, 0);
    loch_tensor *to = make(c, dtype, to_all, -1, 0);
    for (int rank = 0; rank < c->ranks; rank++)
        if (from_counts[rank]) { /* what goes to a rank begins with the number of that rank */
            loch_tensor *part = part_of(from, from_offsets[rank], from_counts[rank]);
            loch_tensor *filled = make(c, dtype, from_counts[rank], c->rank, (size_t)rank * 10);
            const loch_tensor_copy_options copy = {.size = sizeof copy, .stream = c->stream};
            LOCH_CHECK(loch_tensor_copy(part, filled, &copy));
            loch_tensor_release(part);
            loch_tensor_release(filled);
        }
    LOCH_CHECK(loch_comm_all_to_all_v(c->comm, to, to_counts, to_offsets, from, from_counts, from_offsets, c->stream));
    double *is = read_all(c, to);
    for (int rank = 0; rank < c->ranks; rank++) {
        for (size_t i = 0; i < to_counts[rank]; i++)
            expect_number(c, "all-to-all-v", dtype, i, is[to_offsets[rank] + i],
                          value_of(dtype, rank, (size_t)c->rank * 10 + i));
        const double between = dtype == LOCH_BOOL ? 1 : 8;
        expect_number(c, "all-to-all-v, between", dtype, 0, is[to_offsets[rank] + to_counts[rank]], between);
    }
    free(is);
    free(numbers);
    loch_tensor_release(from);
    loch_tensor_release(to);
    c->checks++;
}

/* A ring: every rank sends to the next one and receives from the one before, in one group. */
static inline void check_ring(collectives *c, loch_dtype dtype, size_t count)
{
    const int next = (c->rank + 1) % c->ranks, before = (c->rank + c->ranks - 1) % c->ranks;
    loch_tensor *from = make(c, dtype, count, c->rank, 0), *to = make(c, dtype, count, -1, 0);
    loch_tensor *second = make(c, dtype, count, c->rank, 50), *second_to = make(c, dtype, count, -1, 0);
    LOCH_CHECK(loch_comm_begin_group(c->comm));
    LOCH_CHECK(loch_comm_send(c->comm, from, next, c->stream));
    LOCH_CHECK(loch_comm_send(c->comm, second, next, c->stream));
    LOCH_CHECK(loch_comm_receive(c->comm, to, before, c->stream));
    LOCH_CHECK(loch_comm_receive(c->comm, second_to, before, c->stream));
    LOCH_CHECK(loch_comm_end_group(c->comm));
    double *is = read_all(c, to), *second_is = read_all(c, second_to);
    for (size_t i = 0; i < count; i++) {
        expect_number(c, "ring", dtype, i, is[i], value_of(dtype, before, i));
        expect_number(c, "ring, second message", dtype, i, second_is[i], value_of(dtype, before, 50 + i));
    }
    free(is);
    free(second_is);
    loch_tensor_release(from);
    loch_tensor_release(to);
    loch_tensor_release(second);
    loch_tensor_release(second_to);
    c->checks++;
}

/* Rank 0 sends to each rank in turn, outside of a group. */
static inline void check_messages(collectives *c, loch_dtype dtype, size_t count)
{
    for (int rank = 1; rank < c->ranks; rank++) {
        if (c->rank != 0 && c->rank != rank) continue;
        loch_tensor *tensor = make(c, dtype, count, c->rank ? -1 : 0, (size_t)rank);
        LOCH_CHECK(c->rank ? loch_comm_receive(c->comm, tensor, 0, c->stream)
                           : loch_comm_send(c->comm, tensor, rank, c->stream));
        double *is = read_all(c, tensor);
        for (size_t i = 0; i < count; i++)
            expect_number(c, "message", dtype, i, is[i], value_of(dtype, 0, (size_t)rank + i));
        free(is);
        loch_tensor_release(tensor);
    }
    c->checks++;
}

/* Collectives and messages in one group. */
static inline void check_mixed_group(collectives *c, size_t count)
{
    loch_tensor *from = make(c, LOCH_F32, count, c->rank, 0), *to = make(c, LOCH_F32, count, -1, 0);
    loch_tensor *all = make(c, LOCH_I32, count * (size_t)c->ranks, -1, 0);
    loch_tensor *own = make(c, LOCH_I32, count, c->rank, 3);
    LOCH_CHECK(loch_comm_begin_group(c->comm));
    LOCH_CHECK(loch_comm_all_reduce(c->comm, to, from, LOCH_COMM_SUM, c->stream));
    LOCH_CHECK(loch_comm_all_gather(c->comm, all, own, c->stream));
    LOCH_CHECK(loch_comm_end_group(c->comm));
    double *is = read_all(c, to), *all_is = read_all(c, all);
    for (size_t i = 0; i < count; i++)
        expect_number(c, "all-reduce in a group", LOCH_F32, i, is[i], reduced(LOCH_F32, LOCH_COMM_SUM, c->ranks, i));
    for (int rank = 0; rank < c->ranks; rank++)
        for (size_t i = 0; i < count; i++)
            expect_number(c, "all-gather in a group", LOCH_I32, i, all_is[(size_t)rank * count + i],
                          value_of(LOCH_I32, rank, 3 + i));
    free(is);
    free(all_is);
    loch_tensor_release(from);
    loch_tensor_release(to);
    loch_tensor_release(all);
    loch_tensor_release(own);
    c->checks++;
}

/* --- all of them --- */

/* Whether the engine below reduces a type: it must say so itself, on every rank. */
static inline bool reduces(collectives *c, loch_dtype dtype, loch_comm_op op)
{
    loch_tensor *tensor = make(c, dtype, 0, c->rank, 0);
    const loch_status status = loch_comm_all_reduce(c->comm, tensor, tensor, op, c->stream);
    EXPECT(status == LOCH_OK || status == LOCH_E_UNSUPPORTED);
    loch_tensor_release(tensor);
    return status == LOCH_OK;
}

/* Whether the results of a reduction of small numbers fit a type: an f8 has room for three or four bits. */
static inline bool is_exact(loch_dtype dtype, loch_comm_op op, int ranks)
{
    const bool is_f8 = dtype == LOCH_F8E4M3 || dtype == LOCH_F8E5M2;
    if (op == LOCH_COMM_AVERAGE) return dtype == LOCH_F64 && ranks != 3;
    if (op == LOCH_COMM_PRODUCT) return !is_f8 || ranks == 1;
    return op != LOCH_COMM_SUM || !is_f8 || ranks <= 2;
}

static inline void check_reductions(collectives *c, loch_dtype dtype, size_t count)
{
    for (int op = LOCH_COMM_SUM; op <= LOCH_COMM_AVERAGE; op++) {
        if (!reduces(c, dtype, (loch_comm_op)op)) continue;
        if (!is_exact(dtype, (loch_comm_op)op, c->ranks)) continue; /* how it rounds is a matter of the engine below */
        for (int in_place = 0; in_place < 2; in_place++) {
            check_all_reduce(c, dtype, (loch_comm_op)op, count, in_place);
            check_reduce(c, dtype, (loch_comm_op)op, count, in_place, c->ranks - 1);
            check_reduce_scatter(c, dtype, (loch_comm_op)op, count, in_place);
        }
    }
}

static inline void check_everything(collectives *c, const size_t *counts, size_t counts_count)
{
    for (size_t i = 0; i < counts_count; i++) {
        for (int dtype = LOCH_DTYPE_NONE + 1; dtype < LOCH_DTYPE_COUNT; dtype++) {
            check_reductions(c, (loch_dtype)dtype, counts[i]);
            check_all_gather(c, (loch_dtype)dtype, counts[i], false);
            check_all_gather(c, (loch_dtype)dtype, counts[i], true);
            check_broadcast(c, (loch_dtype)dtype, counts[i], 0);
            check_broadcast(c, (loch_dtype)dtype, counts[i], c->ranks - 1);
            check_all_to_all(c, (loch_dtype)dtype, counts[i]);
            check_all_to_all_v(c, (loch_dtype)dtype, counts[i]);
            check_ring(c, (loch_dtype)dtype, counts[i]);
            check_messages(c, (loch_dtype)dtype, counts[i]);
        }
        check_mixed_group(c, counts[i]);
        LOCH_CHECK(loch_comm_barrier(c->comm));
    }
}

#endif

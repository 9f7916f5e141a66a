/* SPDX-License-Identifier: MIT */
/* What one rank of a job checks. It runs under mpirun (ranks_handover.c) and over NCCL (gpu/test_cuda_handover.c). The
 * first argument says what:
 *
 *     handover       hand-overs between neighbours: mapped, copied, sent, refused; then along all ranks
 *     sent           hand-overs between ranks that cannot map each other's memory: on several machines
 *     cut FOLDER     tensors of files cut over the ranks, and gathered
 *     kill-giver     the giver is killed in the middle; the job has to end
 *     kill-receiver  the receiver is killed in the middle; the job has to end
 *
 * LOCH_TEST_DEVICE names another device than cpu. */
#ifndef LOCH_TEST_HANDOVER_RANKS_H
#define LOCH_TEST_HANDOVER_RANKS_H

#include "handover_partner.h"
#include <loch/context.h>
#include <loch/cut.h>
#include <loch/npy.h>
#include <loch/safetensors.h>

static loch_comm *comm;
static loch_device *own; /* the device of the rank */
static bool is_on_cpu;
static int rank, ranks;

#define EXPECT(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: rank %d of %d: %s is not so\n", __FILE__, __LINE__, rank, ranks, #what);           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void ranks_begin(void)
{
    const char *name = getenv("LOCH_TEST_DEVICE");
    loch_comm_info info = {.size = sizeof info};
    is_on_cpu = !name || strcmp(name, "cpu") == 0;
    CHECK_OK(loch_device_open(name ? name : "cpu", &own));
    CHECK_OK(loch_comm_create(&(loch_comm_options){.size = sizeof(loch_comm_options), .device = own}, &comm));
    CHECK_OK(loch_comm_get_info(comm, &info));
    rank = info.rank;
    ranks = info.ranks;
    EXPECT(ranks > 1);
}

static loch_handover_peer peer_of(int other)
{
    return (loch_handover_peer){.size = sizeof(loch_handover_peer), .comm = comm, .rank = other};
}

/* --- hand-overs --- */

/* One case of a hand-over. */
typedef struct exchange {
    const char *name;
    uint32_t share;
    size_t bytes, page_bytes;
    loch_handover_way send_way, receive_way;
    size_t limit_bytes; /* of the receiver's memory; 0 for no limit */
    loch_status expected;
    loch_handover_way way; /* if it succeeds */
} exchange;

#define MAPPABLE LOCH_SHARE_FD

static const exchange exchanges[] = {
    {"mapped", MAPPABLE, 5 * TEST_MIB + 3, 0, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_AUTO, 0, LOCH_OK, LOCH_HANDOVER_MAPPED},
    {"pages", MAPPABLE, TEST_MIB, 65536, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_AUTO, 0, LOCH_OK, LOCH_HANDOVER_MAPPED},
    {"copied", MAPPABLE, TEST_MIB, 65536, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_COPIED, 0, LOCH_OK, LOCH_HANDOVER_COPIED},
    {"sent", 0, 66 * TEST_MIB + 7, 0, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_AUTO, 0, LOCH_OK, LOCH_HANDOVER_COPIED},
    {"pages sent", 0, TEST_MIB, 65536, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_AUTO, 0, LOCH_OK, LOCH_HANDOVER_COPIED},
    {"one byte sent", MAPPABLE, 1, 0, LOCH_HANDOVER_COPIED, LOCH_HANDOVER_AUTO, 0, LOCH_OK, LOCH_HANDOVER_COPIED},
    {"nothing", MAPPABLE, 0, 0, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_AUTO, 0, LOCH_OK, LOCH_HANDOVER_MAPPED},
    {"wants mapping", 0, 9000, 0, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_MAPPED, 0, LOCH_E_UNSUPPORTED, LOCH_HANDOVER_AUTO},
    {"insists on mapping", 0, 9000, 0, LOCH_HANDOVER_MAPPED, LOCH_HANDOVER_AUTO, 0, LOCH_E_UNSUPPORTED,
     LOCH_HANDOVER_AUTO},
    {"no room", 0, 8 * TEST_MIB, 0, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_AUTO, 4 * TEST_MIB, LOCH_E_LIMIT,
     LOCH_HANDOVER_AUTO},
    {"again", MAPPABLE, 70000, 0, LOCH_HANDOVER_AUTO, LOCH_HANDOVER_AUTO, 0, LOCH_OK, LOCH_HANDOVER_MAPPED},
};

static const size_t exchange_pages[] = {5, 6, 7, 1, 12};
#define PAGES (sizeof exchange_pages / sizeof *exchange_pages)

static void expect_status(const exchange *one, loch_status status)
{
    if (status == one->expected) return;
    fprintf(stderr, "rank %d of %d: \"%s\" gave %s: %s\n", rank, ranks, one->name, loch_status_name(status),
            loch_error_get()->sentence);
    exit(1);
}

static void give_one(const exchange *one, int other, uint64_t seed)
{
    const loch_handover_peer peer = peer_of(other);
    const partner_note note = {.seed = seed};
    loch_handover_send_options options = {
        .size = sizeof options, .way = one->send_way, .note = &note, .note_bytes = sizeof note};
    loch_allocator *pool = partner_pool(own, 0, one->share);
    loch_buffer *buffers[2] = {partner_buffer(pool, one->bytes, seed), partner_buffer(pool, one->bytes, seed + 1)};
    if (one->page_bytes) {
        options.pages = exchange_pages, options.pages_count = PAGES, options.page_bytes = one->page_bytes;
        for (size_t k = 0; k < 2 * PAGES; k++)
            CHECK_OK(partner_put(buffers[k / PAGES], exchange_pages[k % PAGES] * one->page_bytes, one->page_bytes,
                                 seed + k / PAGES + 1000 * (k % PAGES)));
    }
    loch_handover *given;
    loch_handover_info info = {.size = sizeof info};
    expect_status(one, loch_handover_send(&peer, buffers, 2, NULL, &options, &given));
    if (given) {
        CHECK_OK(loch_handover_get_info(given, &info));
        EXPECT(info.way == one->way);
    }
    loch_handover_destroy(given);
    loch_buffer_release(buffers[0]);
    loch_buffer_release(buffers[1]);
    partner_end_pool(pool); /* waits until the receiver has let go */
}

static void take_one(const exchange *one, int other)
{
    const loch_handover_peer peer = peer_of(other);
    const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = one->limit_bytes};
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(own, "copies", &limited, &pool));
    const loch_handover_receive_options options = {.size = sizeof options, .way = one->receive_way, .allocator = pool};
    loch_handover *taken;
    loch_handover_info info = {.size = sizeof info};
    expect_status(one, loch_handover_receive(&peer, own, NULL, &options, &taken));
    if (taken) {
        CHECK_OK(loch_handover_get_info(taken, &info));
        EXPECT(info.way == one->way);
        EXPECT(info.count == 2);
        EXPECT(partner_is_right(taken));
    }
    loch_handover_destroy(taken);
    partner_end_pool(pool);
}

/* A cache that goes through all ranks: each hands on what it was given, and the memory of rank 0 lives until the last
 * one has let go. */
static void hand_along(void)
{
    const partner_note note = {.seed = 77};
    const loch_handover_send_options options = {
        .size = sizeof options, .way = LOCH_HANDOVER_MAPPED, .note = &note, .note_bytes = sizeof note};
    loch_allocator *pool = partner_pool(own, 0, LOCH_SHARE_FD);
    loch_handover *taken = NULL;
    loch_buffer *cache;
    if (rank == 0) {
        cache = partner_buffer(pool, 3 * TEST_MIB, 77);
    } else {
        const loch_handover_peer before = peer_of(rank - 1);
        loch_handover_info info = {.size = sizeof info};
        CHECK_OK(loch_handover_receive(&before, own, NULL, NULL, &taken));
        CHECK_OK(loch_handover_get_info(taken, &info));
        EXPECT(info.way == LOCH_HANDOVER_MAPPED);
        cache = loch_buffer_retain(info.buffers[0]);
        loch_handover_destroy(taken);
    }
    if (rank + 1 < ranks) {
        const loch_handover_peer next = peer_of(rank + 1);
        CHECK_OK(loch_handover_send(&next, &cache, 1, NULL, &options, NULL));
    }
    if (rank + 1 == ranks) EXPECT(partner_is(cache, 0, 3 * TEST_MIB, 77));
    loch_buffer_release(cache);
    partner_end_pool(pool);
}

static void check_arguments(void)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create_for_device(own, 100, NULL, &buffer));
    loch_handover *taken = TEST_UNTOUCHED;
    const int wrong[] = {-1, rank, ranks};
    for (size_t i = 0; i < 3; i++) {
        const loch_handover_peer peer = peer_of(wrong[i]);
        EXPECT(loch_handover_send(&peer, &buffer, 1, NULL, NULL, NULL) == LOCH_E_INVALID);
        EXPECT(loch_handover_receive(&peer, own, NULL, NULL, &taken) == LOCH_E_INVALID);
        EXPECT(!taken);
    }
    loch_buffer_release(buffer);
}

/* Pairs of ranks exchange in both directions: neighbours, or with `only_sent` one of the first half and one of the
 * second, which is on another machine. */
static void run_handover(bool only_sent)
{
    const int half = ranks / 2;
    const int side = only_sent ? rank >= half : rank % 2;
    const int other = rank + (side ? -1 : 1) * (only_sent ? half : 1);
    for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++) {
        exchange one = exchanges[i];
        if (only_sent) {
            if (one.bytes > 20 * TEST_MIB) one.bytes = 20 * TEST_MIB + 7;
            if (one.expected == LOCH_OK && one.bytes) one.way = LOCH_HANDOVER_COPIED;
        }
        for (int turn = 0; turn < 2 && other < ranks; turn++) {
            if (side == turn)
                give_one(&one, other, 10 * i + (uint64_t)rank);
            else
                take_one(&one, other);
        }
    }
    CHECK_OK(loch_comm_barrier(comm));
    if (!only_sent) hand_along();
    CHECK_OK(loch_comm_barrier(comm));
}

/* --- cuts --- */

#define CUT_PATH_BYTES 256

/* A tensor whose element with number i has the value i modulo 251. */
static loch_tensor *make_whole(loch_dtype dtype, size_t dimensions, const int64_t *shape)
{
    loch_tensor *bytes, *whole;
    CHECK_OK(loch_tensor_create(LOCH_U8, dimensions, shape, NULL, &bytes));
    unsigned char *at;
    CHECK_OK(loch_tensor_get_address(bytes, (void **)&at));
    for (size_t i = 0; i < loch_tensor_get_elements(bytes); i++)
        at[i] = (unsigned char)(i % 251);
    CHECK_OK(loch_tensor_create(dtype, dimensions, shape, NULL, &whole));
    if (loch_tensor_get_elements(bytes)) CHECK_OK(loch_tensor_copy(whole, bytes, NULL));
    loch_tensor_release(bytes);
    return whole;
}

static bool is_equal(loch_tensor *one, loch_tensor *other)
{
    const size_t bytes = loch_tensor_get_bytes(one);
    if (bytes != loch_tensor_get_bytes(other)) return false;
    if (!bytes) return true;
    void *a = malloc(bytes), *b = malloc(bytes);
    CHECK_OK(loch_tensor_read(one, a, bytes, NULL));
    CHECK_OK(loch_tensor_read(other, b, bytes, NULL));
    const bool is_same = memcmp(a, b, bytes) == 0;
    free(a);
    free(b);
    return is_same;
}

static loch_tensor_options memory_of_rank(void)
{
    return (loch_tensor_options){.size = sizeof(loch_tensor_options), .device = own, .flags = LOCH_ALLOC_ZEROED};
}

/* Gathers a part, and compares the result with the whole; also into memory with other strides, and in place. */
static void gather_all_ways(loch_tensor *whole, loch_tensor *part, int axis)
{
    const size_t dimensions = loch_tensor_get_dimensions(whole);
    const int64_t *shape = loch_tensor_get_shape(whole);
    loch_tensor *to, *base, *turned, *place;
    const loch_tensor_options memory = memory_of_rank();
    CHECK_OK(loch_tensor_create(loch_tensor_get_dtype(whole), dimensions, shape, &memory, &to));
    CHECK_OK(loch_cut_gather(comm, to, part, axis, NULL));
    EXPECT(is_equal(to, whole));
    /* In place: this rank's part of the target, where the parts of all ranks are contiguous. */
    CHECK_OK(loch_cut_slice(comm, to, axis, &place));
    bool is_first = true;
    for (int i = 0; i < (axis < 0 ? axis + (int)dimensions : axis); i++)
        is_first = is_first && shape[i] == 1;
    if (is_first) {
        CHECK_OK(loch_tensor_fill(to, loch_scalar_of(3), NULL));
        if (loch_tensor_get_elements(part)) CHECK_OK(loch_tensor_copy(place, part, NULL));
        CHECK_OK(loch_cut_gather(comm, to, place, axis, NULL));
        EXPECT(is_equal(to, whole));
    }
    loch_tensor_release(place);
    if (dimensions > 1) { /* a target with its axes in another order */
        int64_t other[LOCH_DIMENSIONS_MAX];
        memcpy(other, shape, dimensions * sizeof *other);
        other[0] = shape[1], other[1] = shape[0];
        CHECK_OK(loch_tensor_create(loch_tensor_get_dtype(whole), dimensions, other, &memory, &base));
        CHECK_OK(loch_tensor_transpose(base, 0, 1, &turned));
        CHECK_OK(loch_cut_gather(comm, turned, part, axis, NULL));
        EXPECT(is_equal(turned, whole));
        loch_tensor_release(turned);
        loch_tensor_release(base);
    }
    loch_tensor_release(to);
}

static void check_cut_of(const char *folder, loch_dtype dtype, size_t dimensions, const int64_t *shape)
{
    char paths[2][CUT_PATH_BYTES];
    const char *const name = "weight";
    loch_tensor *whole = make_whole(dtype, dimensions, shape), *mapped, *expected;
    loch_safetensors *file;
    snprintf(paths[0], CUT_PATH_BYTES, "%s/cut.npy", folder);
    snprintf(paths[1], CUT_PATH_BYTES, "%s/cut.safetensors", folder);
    const loch_npy_save_options as_bits = {.size = sizeof as_bits, .as_bits = 1};
    if (rank == 0) {
        CHECK_OK(loch_npy_save(whole, paths[0], &as_bits));
        CHECK_OK(loch_safetensors_save(paths[1], &name, &whole, 1, NULL));
    }
    CHECK_OK(loch_comm_barrier(comm));
    const loch_npy_load_options load = {.size = sizeof load, .dtype = dtype};
    CHECK_OK(loch_npy_load(paths[0], &load, &mapped));
    CHECK_OK(loch_safetensors_open(paths[1], NULL, &file));
    for (int axis = -(int)dimensions; axis < (int)dimensions; axis++) {
        loch_tensor *parts[2];
        loch_cut_part mine = {.size = sizeof mine};
        CHECK_OK(loch_cut_get_part(comm, loch_tensor_get_size(whole, axis), rank, &mine));
        const loch_tensor_options memory = memory_of_rank();
        const loch_cut_load_options copied = {.size = sizeof copied, .memory = &memory};
        CHECK_OK(loch_cut_load(comm, mapped, axis, &copied, &parts[0]));
        const loch_safetensors_load_options slice = {
            .size = sizeof slice, .axis = axis, .start = mine.start, .count = mine.count, .memory = &memory};
        CHECK_OK(loch_safetensors_load(file, name, &slice, &parts[1]));
        CHECK_OK(loch_tensor_slice(whole, axis, mine.start, mine.start + mine.count, 1, &expected));
        for (size_t i = 0; i < 2; i++) {
            EXPECT(loch_tensor_get_size(parts[i], axis) == mine.count);
            EXPECT(is_equal(parts[i], expected));
            gather_all_ways(whole, parts[i], axis);
            loch_tensor_release(parts[i]);
        }
        loch_tensor_release(expected);
    }
    loch_safetensors_close(file);
    loch_tensor_release(mapped);
    loch_tensor_release(whole);
    CHECK_OK(loch_comm_barrier(comm));
}

/* A parameter of this rank's own: declared with the shape of its part, loaded from the mapped file, spread over the
 * seats of this process as any other, and gathered. */
static void check_parameter(const char *folder)
{
    char path[CUT_PATH_BYTES];
    const char *const name = "weight";
    loch_tensor *whole = make_whole(LOCH_F32, LOCH_SHAPE(10, 6)), *mapped, *mine, *loaded, *to;
    loch_engine *engine;
    loch_context *context;
    loch_parameter *parameter;
    loch_safetensors *file;
    snprintf(path, sizeof path, "%s/parameter.safetensors", folder);
    if (rank == 0) CHECK_OK(loch_safetensors_save(path, &name, &whole, 1, NULL));
    CHECK_OK(loch_comm_barrier(comm));
    const loch_engine_device seat = {.size = sizeof seat, .name = "cpu", .limit_bytes = 64 * TEST_MIB};
    const loch_engine_options seats = {.size = sizeof seats, .devices = &seat, .devices_count = 1};
    CHECK_OK(loch_engine_open(&seats, &engine));
    CHECK_OK(loch_context_open(engine, NULL, &context));
    CHECK_OK(loch_safetensors_open(path, NULL, &file));
    CHECK_OK(loch_safetensors_acquire_tensor(file, name, &mapped));
    CHECK_OK(loch_cut_slice(comm, mapped, 0, &mine));
    CHECK_OK(loch_context_declare(context, name, LOCH_F32, 2, loch_tensor_get_shape(mine), LOCH_SPREAD_PARTS, 0, 0,
                                  &parameter));
    CHECK_OK(loch_context_load(context, parameter, mine));
    CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(0), &loaded));
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(10, 6), NULL, &to));
    CHECK_OK(loch_cut_gather(comm, to, loaded, 0, NULL));
    EXPECT(is_equal(to, whole));
    loch_tensor_release(to);
    loch_tensor_release(loaded);
    loch_parameter_release(parameter);
    loch_tensor_release(mine);
    loch_tensor_release(mapped);
    loch_safetensors_close(file);
    CHECK_OK(loch_context_close(context));
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    loch_tensor_release(whole);
}

static void check_cut_arguments(void)
{
    loch_tensor *whole = make_whole(LOCH_F32, LOCH_SHAPE(9, 4)), *part, *other, *none = TEST_UNTOUCHED;
    loch_cut_part mine = {.size = sizeof mine};
    EXPECT(loch_cut_get_part(comm, -1, 0, &mine) == LOCH_E_INVALID);
    EXPECT(loch_cut_get_part(comm, 9, ranks, &mine) == LOCH_E_INVALID);
    EXPECT(loch_cut_get_part(comm, 9, -1, &mine) == LOCH_E_INVALID);
    EXPECT(loch_cut_get_part(NULL, 9, 0, &mine) == LOCH_E_INVALID);
    EXPECT(loch_cut_get_part(comm, 9, 0, NULL) == LOCH_E_INVALID);
    mine.size = 0;
    EXPECT(loch_cut_get_part(comm, 9, 0, &mine) == LOCH_E_INVALID);
    EXPECT(loch_cut_slice(comm, whole, 2, &none) == LOCH_E_INVALID && !none);
    EXPECT(loch_cut_slice(comm, whole, -3, &none) == LOCH_E_INVALID);
    EXPECT(loch_cut_slice(comm, NULL, 0, &none) == LOCH_E_INVALID);
    EXPECT(loch_cut_load(comm, NULL, 0, NULL, &none) == LOCH_E_INVALID);
    EXPECT(loch_cut_load(comm, whole, 0, NULL, NULL) == LOCH_E_INVALID);
    CHECK_OK(loch_cut_load(comm, whole, 0, NULL, &part));
    CHECK_OK(loch_tensor_slice(whole, 0, 1, 4, 1, &other)); /* not the place of the part */
    EXPECT(loch_cut_gather(comm, whole, NULL, 0, NULL) == LOCH_E_INVALID);
    EXPECT(loch_cut_gather(comm, NULL, part, 0, NULL) == LOCH_E_INVALID);
    EXPECT(loch_cut_gather(comm, whole, part, 1, NULL) == LOCH_E_INVALID);
    EXPECT(loch_cut_gather(comm, whole, whole, 0, NULL) == LOCH_E_INVALID);
    EXPECT(loch_cut_gather(comm, whole, other, 0, NULL) == LOCH_E_INVALID);
    loch_tensor_release(other);
    CHECK_OK(loch_tensor_create(LOCH_F16, LOCH_SHAPE(9, 4), NULL, &other));
    EXPECT(loch_cut_gather(comm, other, part, 0, NULL) == LOCH_E_INVALID);
    loch_tensor_release(other);
    loch_tensor_release(part);
    loch_tensor_release(whole);
}

static void run_cut(const char *folder)
{
    int64_t total = 0;
    for (int i = 0; i < ranks; i++) {
        loch_cut_part part = {.size = sizeof part};
        CHECK_OK(loch_cut_get_part(comm, 11, i, &part));
        EXPECT(part.start == total);
        total += part.count;
    }
    EXPECT(total == 11);
    check_cut_of(folder, LOCH_F32, LOCH_SHAPE(8, 4));
    check_cut_of(folder, LOCH_F32, LOCH_SHAPE(7, 5, 3));
    check_cut_of(folder, LOCH_BF16, LOCH_SHAPE(1, 8, 6));
    check_cut_of(folder, LOCH_U8, LOCH_SHAPE(13));
    check_cut_of(folder, LOCH_F64, LOCH_SHAPE(2, 3));
    check_cut_of(folder, LOCH_I64, LOCH_SHAPE(1, 1));
    check_cut_of(folder, LOCH_F32, LOCH_SHAPE(0, 4));
    if (is_on_cpu) check_parameter(folder);
    check_cut_arguments();
    CHECK_OK(loch_comm_barrier(comm));
}

/* --- deaths --- */

/* Ranks 0 and 1 hand over without end until one of them is killed. The others wait. */
static void run_kill(int victim)
{
    const loch_handover_peer peer = peer_of(1 - rank);
    loch_allocator *pool = partner_pool(own, 0, LOCH_SHARE_FD);
    test_random random = {(uint64_t)time(NULL) * 7919 + (uint64_t)getpid()};
    const size_t last = test_random_below(&random, 30);
    for (size_t i = 0; rank < 2; i++) {
        loch_status status;
        EXPECT(!partner_has_names());
        if (rank == victim && i == last) {
            fprintf(stderr, "rank %d is killed in hand-over %zu\n", rank, i);
            const struct timespec pause = {.tv_nsec = (long)test_random_below(&random, 300000)};
            const pid_t killer = fork();
            if (killer == 0) {
                nanosleep(&pause, NULL);
                kill(getppid(), SIGKILL);
                _exit(0);
            }
        }
        if (rank == 0) {
            const loch_handover_send_options options = {.size = sizeof options, .way = (loch_handover_way)(i % 3)};
            loch_buffer *buffer = partner_buffer(pool, 200000, i);
            status = loch_handover_send(&peer, &buffer, 1, NULL, &options, NULL);
            loch_buffer_release(buffer);
        } else {
            loch_handover *taken;
            status = loch_handover_receive(&peer, own, NULL, NULL, &taken);
            loch_handover_destroy(taken);
        }
        if (status != LOCH_OK) {
            fprintf(stderr, "rank %d hears: %s\n", rank, loch_error_get()->sentence);
            exit(3);
        }
    }
    LOCH_IGNORE(loch_comm_barrier(comm)); /* never comes back */
}

/* Runs as a rank. Returns the exit code. */
static int ranks_main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    ranks_begin();
    if (strcmp(what, "handover") == 0) {
        check_arguments();
        run_handover(false);
    } else if (strcmp(what, "sent") == 0) {
        run_handover(true);
    } else if (strcmp(what, "cut") == 0 && count > 2) {
        run_cut(arguments[2]);
    } else if (strncmp(what, "kill-", 5) == 0) {
        run_kill(strcmp(what, "kill-giver") != 0);
    } else {
        fprintf(stderr, "handover | sent | cut FOLDER | kill-giver | kill-receiver\n");
        return 2;
    }
    loch_comm_destroy(comm);
    loch_device_release(own);
    if (rank == 0) printf("%s: %d ranks\n", what, ranks);
    return 0;
}

#endif

/* SPDX-License-Identifier: MIT */
/* A program that leaks, for test_leaks.c: leaks_program CASE. Functions are exported, so that the report names them.
 * Uses the shared library, as programs do. */
#include <loch/loch.h>
#include <loch/sim.h>
#include <loch/tensor.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMED __attribute__((noinline, noclone, visibility("default")))
#define STAY() __asm__ volatile("" ::: "memory") /* after a call: it is no jump */
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != LOCH_OK) {                                                                                       \
            fprintf(stderr, "%s: %s\n", #call, loch_error_get()->sentence);                                            \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

static loch_device *cpu;
static loch_allocator *pool;
static void *blocks[64];

void allocate_here(loch_allocator *allocator, size_t bytes, void **out);
void allocate_tagged(loch_allocator *allocator, size_t bytes, const char *tag, void **out);
void create_buffer_here(loch_allocator *allocator, size_t bytes, uint32_t flags, loch_buffer **out);
void create_tensor_here(loch_allocator *allocator, int64_t elements, loch_tensor **out);

NAMED void allocate_here(loch_allocator *allocator, size_t bytes, void **out)
{
    TRY(loch_alloc(allocator, bytes, out));
    STAY();
}

NAMED void allocate_tagged(loch_allocator *allocator, size_t bytes, const char *tag, void **out)
{
    loch_request request = {.size = sizeof request, .bytes = bytes};
    TRY(loch_tag_create(tag, &request.tag));
    TRY(loch_allocator_alloc(allocator, &request, out));
    STAY();
}

NAMED void create_buffer_here(loch_allocator *allocator, size_t bytes, uint32_t flags, loch_buffer **out)
{
    const loch_request request = {.size = sizeof request, .flags = flags};
    TRY(loch_buffer_create(allocator, bytes, &request, out));
    STAY();
}

NAMED void create_tensor_here(loch_allocator *allocator, int64_t elements, loch_tensor **out)
{
    const loch_tensor_options options = {.size = sizeof options, .allocator = allocator};
    TRY(loch_tensor_create(LOCH_F32, 1, &elements, &options, out));
    STAY();
}

/* --- cases without a leak --- */

static void none(void)
{
    for (int i = 0; i < 64; i++)
        allocate_here(pool, 1000 + (size_t)i * 5000, &blocks[i]);
    for (int i = 0; i < 64; i++)
        TRY(loch_free(pool, blocks[i]));
}

static void ended(void)
{
    loch_session *session;
    loch_buffer *buffer;
    loch_tensor *tensor;
    TRY(loch_session_begin(pool, "request", &session));
    allocate_here(loch_session_get_allocator(session), 3000, &blocks[0]);
    TRY(loch_session_end(session, NULL, NULL));
    create_buffer_here(pool, 3000, 0, &buffer);
    TRY(loch_buffer_resize(buffer, 300000, LOCH_CONTENTS_KEEP, NULL));
    loch_buffer_release(buffer);
    create_tensor_here(pool, 100, &tensor);
    loch_tensor_release(tensor);
}

/* A range of a child, and what a sleeping pool keeps on the host, are the library's own. */
static void own(void)
{
    static loch_allocator *child, *far;
    static loch_device *sim;
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = 4 * MIB};
    const loch_sleep_options sleep = {.size = sizeof sleep, .contents = LOCH_SLEEP_HOST};
    TRY(loch_pool_create_child(pool, "range", &range, &child));
    allocate_here(child, 1000, &blocks[0]);
    TRY(loch_free(child, blocks[0]));
    TRY(loch_device_open("sim:1GiB", &sim));
    TRY(loch_pool_create(sim, "far", NULL, &far));
    allocate_here(far, 8 * MIB, &blocks[1]);
    TRY(loch_pool_sleep(far, &sleep, NULL));
    /* The block of the pool is listed, its saved contents are not. */
}

/* A buffer without owners that work of another device still reads. */
static void waiting(void)
{
    loch_device *sim;
    loch_stream *stream;
    loch_buffer *from, *to;
    size_t count;
    const loch_sim_kernel kernel = {.size = sizeof kernel, .duration_ns = 1000000000};
    TRY(loch_device_open("sim:1GiB", &sim));
    TRY(loch_stream_create(sim, NULL, &stream));
    create_buffer_here(pool, 20 * KIB, 0, &from);
    TRY(loch_buffer_create_for_device(sim, 20 * KIB, NULL, &to));
    TRY(loch_sim_launch(stream, &kernel));
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = stream};
    TRY(loch_buffer_copy(to, from, &options));
    loch_buffer_release(from);
    loch_buffer_release(to);
    TRY(loch_buffer_collect(LOCH_WAIT_QUEUED, &count));
    if (!count) exit(8);
}

static void free_at_exit(void)
{
    TRY(loch_free(pool, blocks[0]));
}

static void moved(bool is_freed)
{
    enum { COUNT = 24 };
    loch_device *sim;
    static loch_allocator *narrow;
    static loch_buffer *buffers[COUNT];
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    loch_compact_report report = {.size = sizeof report};
    TRY(loch_device_open("sim:1GiB", &sim));
    TRY(loch_pool_create(sim, "narrow", &options, &narrow));
    for (int i = 0; i < COUNT; i++)
        create_buffer_here(narrow, 2 * MIB + 70 * KIB, LOCH_ALLOC_MOVABLE, &buffers[i]);
    for (int i = 0; i < COUNT; i += 2)
        loch_buffer_release(buffers[i]);
    TRY(loch_device_sync(sim));
    TRY(loch_pool_compact(narrow, NULL, &report));
    if (!report.moves) exit(8);
    for (int i = 1; i < COUNT && is_freed; i += 2)
        loch_buffer_release(buffers[i]);
}

static void moved_and_freed(void)
{
    moved(true);
}

/* --- cases with leaks --- */

static void some(void)
{
    allocate_tagged(pool, 300 * KIB, "weights", &blocks[0]);
    for (int i = 1; i <= 10; i++)
        allocate_here(pool, 4096, &blocks[i]);
    for (int i = 1; i <= 7; i++)
        TRY(loch_free(pool, blocks[i]));
    printf("printed before\n"); /* buffered */
}

static void by_exit(void)
{
    some();
    exit(5);
}

static void kinds(void)
{
    /* Static: checkers of the host's memory find them. */
    static loch_session *session;
    static loch_buffer *buffer;
    static loch_tensor *tensor;
    static loch_allocator *limit, *tracking, *direct, *child;
    const loch_child_options quota = {.size = sizeof quota, .kind = LOCH_CHILD_QUOTA, .limit_bytes = 4 * MIB};
    TRY(loch_session_begin(pool, "request", &session));
    allocate_tagged(loch_session_get_allocator(session), 10 * KIB, "of the session", &blocks[0]);
    create_buffer_here(pool, 20 * KIB, 0, &buffer);
    create_tensor_here(pool, 7680, &tensor); /* 30 KiB */
    const loch_request request = {.size = sizeof request, .bytes = 40 * KIB};
    TRY(loch_pool_alloc_growable(pool, MIB, &request, &blocks[1]));
    TRY(loch_pool_resize_growable(pool, blocks[1], 50 * KIB));
    TRY(loch_limit_create(pool, "limit", NULL, &limit));
    TRY(loch_tracking_create(limit, "tracking", NULL, &tracking));
    allocate_tagged(tracking, 60 * KIB, "through wrappers", &blocks[2]);
    TRY(loch_direct_create(cpu, "direct", NULL, &direct));
    allocate_tagged(direct, 70 * KIB, "without a pool", &blocks[3]);
    TRY(loch_pool_create_child(pool, "child", &quota, &child));
    allocate_tagged(child, 80 * KIB, "of a child", &blocks[4]);
    allocate_tagged(pool, 100, "resized", &blocks[5]);
    TRY(loch_allocator_realloc(pool, blocks[5], 90 * KIB, NULL, &blocks[5]));
    if (loch_free(pool, &cpu) == LOCH_OK) exit(7); /* a free that fails changes nothing */
    loch_allocator_release(limit);
    loch_allocator_release(tracking);
    loch_allocator_release(direct);
    loch_allocator_release(child);
}

static void moved_and_kept(void)
{
    moved(false);
}

#define PLACE(n)                                                                                                       \
    NAMED void place_##n(void);                                                                                        \
    NAMED void place_##n(void)                                                                                         \
    {                                                                                                                  \
        TRY(loch_alloc(pool, KIB *(1##n - 100), &blocks[1##n - 100]));                                                 \
        STAY();                                                                                                        \
    }
/* clang-format off */
PLACE(01) PLACE(02) PLACE(03) PLACE(04) PLACE(05) PLACE(06) PLACE(07) PLACE(08) PLACE(09) PLACE(10) PLACE(11)
PLACE(12) PLACE(13) PLACE(14) PLACE(15) PLACE(16) PLACE(17) PLACE(18) PLACE(19) PLACE(20) PLACE(21) PLACE(22)
    /* clang-format on */

    static void places(void)
{
    void (*const all[])(void) = {place_01, place_02, place_03, place_04, place_05, place_06, place_07, place_08,
                                 place_09, place_10, place_11, place_12, place_13, place_14, place_15, place_16,
                                 place_17, place_18, place_19, place_20, place_21, place_22};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]();
}

static atomic_bool is_busy;

static void *keep_busy(void *unused)
{
    (void)unused;
    for (;;) {
        void *block;
        TRY(loch_alloc(pool, 100, &block));
        TRY(loch_free(pool, block));
        atomic_store(&is_busy, true);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    allocate_tagged(pool, 300 * KIB, "weights", &blocks[0]);
    for (int i = 0; i < 3; i++)
        if (pthread_create(&thread, NULL, keep_busy, NULL) != 0) exit(9);
    while (!atomic_load(&is_busy))
        continue;
}

static void forked(void)
{
    allocate_tagged(pool, 300 * KIB, "of the parent", &blocks[0]);
    const pid_t child = fork();
    if (!child) {
        allocate_tagged(pool, 5 * KIB, "of the child", &blocks[1]);
        exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) exit(9);
    printf("child: %d\n", WEXITSTATUS(status));
    fflush(stdout);
    TRY(loch_free(pool, blocks[0]));
}

static const struct {
    const char *name;
    void (*function)(void);
} cases[] = {{"none", none},
             {"ended", ended},
             {"own", own},
             {"waiting", waiting},
             {"moved-and-freed", moved_and_freed},
             {"some", some},
             {"by-exit", by_exit},
             {"kinds", kinds},
             {"moved-and-kept", moved_and_kept},
             {"places", places},
             {"threads", threads},
             {"forked", forked}};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "at-exit")) atexit(free_at_exit); /* registered before the library is used: called late */
    TRY(loch_device_open("cpu", &cpu));
    TRY(loch_pool_create(cpu, "mine", NULL, &pool));
    if (!strcmp(name, "at-exit")) {
        allocate_here(pool, 1000, &blocks[0]);
        return 0;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(name, cases[i].name) != 0) continue;
        cases[i].function();
        loch_allocator_release(pool);
        loch_device_release(cpu);
        return 0;
    }
    fprintf(stderr, "no case \"%s\"\n", name);
    return 2;
}

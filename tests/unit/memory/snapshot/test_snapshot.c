/* SPDX-License-Identifier: MIT */
/* Snapshots: what they say of blocks, handles, streams and allocators; that other threads go on; and that a failed
 * request leaves one behind. */
#include "json_check.h"
#include "pool_fixture.h"
#include "worker.h"
#include <inttypes.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/loch-snapshot-XXXXXX";
static char path[64];

static int open_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/one.json", folder);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* Reads a file, which it removes. The caller frees the text. */
static char *take_file(const char *file)
{
    FILE *stream = fopen(file, "r");
    assert_non_null(stream);
    struct stat about;
    assert_int_equal(fstat(fileno(stream), &about), 0);
    char *text = malloc((size_t)about.st_size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)about.st_size, stream), about.st_size);
    text[about.st_size] = '\0';
    fclose(stream);
    unlink(file);
    assert_true(json_is_valid(text));
    return text;
}

static char *take(void)
{
    CHECK_OK(loch_snapshot_save(path));
    return take_file(path);
}

/* Copies the line of the block in a state at an address; "" if there is none. */
static const char *block(const char *text, const void *address, const char *state)
{
    static char line[512];
    char start[64], in[32];
    snprintf(start, sizeof start, "{\"address\": \"0x%" PRIxPTR "\"", (uintptr_t)address);
    snprintf(in, sizeof in, "\"state\": \"%s\"", state);
    line[0] = '\0';
    for (const char *at = text; (at = strstr(at, start)); at++) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (strstr(line, in)) return line;
    }
    return "";
}

static bool has(const char *line, const char *part)
{
    if (strstr(line, part)) return true;
    print_error("\"%s\" is not in: %s\n", part, line);
    return false;
}

/* --- states --- */

static long count_cached(const void *slab)
{
    char *text = take();
    const char *at = strstr(block(text, slab, "slab"), "\"small_cached\": ");
    assert_non_null(at);
    const long count = strtol(at + strlen("\"small_cached\": "), NULL, 10);
    free(text);
    return count;
}

/* A small block that waits for a stream is neither handed out nor cached. */
static void a_small_block_that_waits_is_not_counted_as_cached(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,clock=stepped");
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    void *first = pool_alloc(pool, 100), *small = pool_alloc(pool, 100);
    CHECK_OK(sim_busy(stream, 1000));
    CHECK_OK(loch_allocator_record_use(pool, small, stream));
    const long before = count_cached(first);
    CHECK_OK(loch_free(pool, small));
    assert_int_equal(count_cached(first), before);
    char *text = take();
    assert_int_equal(strlen(block(text, small, "used")) + strlen(block(text, small, "waiting")), 0);
    free(text);
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_free(pool, first));
    loch_stream_close(stream);
    pool_end(pool, device);
}

static void every_state_of_a_block_is_told(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,clock=stepped,granule=2MiB,backed");
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_tag tag;
    CHECK_OK(loch_tag_create("snapshot", &tag));
    char want[96];
    /* Handed out: large, small, growable, with a tag and on a stream. */
    const loch_request tagged = {.size = sizeof tagged, .bytes = 3 * TEST_MIB + 1, .tag = tag, .stream = stream};
    void *large, *growable, *waiting, *small = pool_alloc(pool, 100);
    CHECK_OK(loch_allocator_alloc(pool, &tagged, &large));
    CHECK_OK(loch_pool_alloc_growable(pool, 8 * TEST_MIB, NULL, &growable));
    CHECK_OK(loch_pool_resize_growable(pool, growable, TEST_MIB));
    /* Freed, and another stream uses it. */
    waiting = pool_alloc_on(pool, 4 * TEST_MIB, stream);
    CHECK_OK(loch_allocator_record_use(pool, waiting, NULL));
    CHECK_OK(sim_busy(loch_stream_get_default(device), 1000));
    CHECK_OK(loch_free(pool, waiting));
    /* Freed and cached by this thread. */
    void *cached = pool_alloc(pool, 200 * TEST_KIB);
    CHECK_OK(loch_free(pool, cached));
    /* Movable, pinned, frozen. */
    loch_buffer *movable;
    const loch_request options = {.size = sizeof options, .flags = LOCH_ALLOC_MOVABLE};
    void *pinned;
    CHECK_OK(loch_buffer_create(pool, 300 * TEST_KIB, &options, &movable));
    CHECK_OK(loch_buffer_pin(movable, NULL, &pinned));
    char *text = take();
    snprintf(want, sizeof want, "\"requested_bytes\": %zu, \"stream\": %llu, \"tag\": %u, \"id\": ", 3 * TEST_MIB + 1,
             (unsigned long long)loch_stream_get_id(stream), (unsigned)tag);
    assert_true(has(block(text, large, "used"), want));
    assert_true(has(block(text, small, "used"), "\"bytes\": 512, "));
    assert_true(has(block(text, small, "used"), "\"requested_bytes\": 100"));
    assert_true(has(block(text, small, "slab"), "\"small_bytes\": 512"));
    assert_true(has(block(text, growable, "growable"), "\"requested_bytes\": 1048576, \"committed_bytes\": 2097152"));
    assert_true(has(block(text, waiting, "waiting"), "\"bytes\": 4194304"));
    assert_true(has(block(text, cached, "cached"), "\"bytes\": 204800"));
    assert_true(has(block(text, pinned, "used"), "\"movable\": true, \"pinned\": true"));
    assert_true(has(text, "\"state\": \"unmapped\""));
    assert_true(has(text, "\"name\": \"snapshot\""));
    free(text);
    CHECK_OK(loch_buffer_unpin(movable, NULL));
    loch_buffer_release(movable);
    CHECK_OK(loch_free(pool, growable));
    CHECK_OK(loch_free(pool, large));
    CHECK_OK(loch_free(pool, small));
    CHECK_OK(loch_device_sync(device));
    assert_null(pool_check(pool)); /* the invariants hold after an image was taken */
    loch_allocator_release(pool);
    loch_stream_release(stream);
    loch_device_release(device);
}

static void memory_that_sleeps_or_is_frozen_is_told(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB,backed");
    loch_allocator *pool = pool_make(device, NULL);
    void *address = pool_alloc(pool, TEST_MIB), *freed = pool_alloc(pool, TEST_MIB);
    CHECK_OK(loch_free(pool, freed));
    CHECK_OK(loch_pool_freeze(pool, NULL, NULL));
    char *text = take();
    assert_true(has(block(text, address, "used"), "\"frozen\": true"));
    free(text);
    const loch_sleep_options sleep = {.size = sizeof sleep, .contents = LOCH_SLEEP_DROP};
    CHECK_OK(loch_pool_sleep(pool, &sleep, NULL));
    text = take();
    assert_true(has(block(text, address, "used"), "\"asleep\": true"));
    assert_true(has(text, "\"mapped\": false, \"address\": "));
    free(text);
    CHECK_OK(loch_pool_wake(pool, NULL));
    text = take();
    assert_false(strstr(text, "\"asleep\": true"));
    free(text);
    CHECK_OK(loch_free(pool, address));
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void captures_and_free_memory_in_use_are_told(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,clock=stepped");
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    /* An idle cap keeps threads from caching large blocks. */
    CHECK_OK(loch_pool_set_idle(pool, 32 * TEST_MIB));
    void *pending = pool_alloc_on(pool, 4 * TEST_MIB, stream);
    CHECK_OK(sim_busy(stream, 1000));
    CHECK_OK(loch_free(pool, pending));
    char *text = take();
    assert_true(has(block(text, pending, "free"), "\"pending\": true"));
    free(text);
    CHECK_OK(loch_device_sync(device));
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_begin(stream));
    void *captured = pool_alloc_on(pool, 2 * TEST_MIB, stream);
    text = take();
    assert_true(has(block(text, captured, "used"), "\"captured\": true"));
    assert_true(has(text, "\"capture\": "));
    free(text);
    CHECK_OK(loch_free(pool, captured));
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    loch_sim_graph_destroy(graph);
    loch_allocator_release(pool);
    loch_stream_release(stream);
    loch_device_release(device);
}

/* --- allocators --- */

static void wrappers_children_and_direct_allocators_are_listed(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB");
    loch_allocator *pool = pool_make(device, NULL), *child, *limit, *direct, *unused;
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = 4 * TEST_MIB};
    CHECK_OK(loch_pool_create_child(pool, "tenant", &range, &child));
    const loch_limit_options cap = {.size = sizeof cap, .hard_bytes = 8 * TEST_MIB};
    CHECK_OK(loch_limit_create(pool, "capped", &cap, &limit));
    CHECK_OK(loch_direct_create(device, "straight", NULL, &direct));
    CHECK_OK(loch_direct_create(device, "never used", NULL, &unused));
    void *blocks[] = {pool_alloc(child, 1000), pool_alloc(limit, 2000), pool_alloc(direct, 3000)};
    char *text = take();
    assert_true(has(text, "\"name\": \"tenant\", \"kind\": \"pool\""));
    assert_true(has(text, "\"memory_of_parent\": \"range\""));
    assert_true(has(text, "\"range\": true"));
    assert_true(has(text, "\"name\": \"capped\", \"kind\": \"limit\", \"device\": 0, \"wraps\": "));
    assert_true(has(block(text, blocks[2], "used"), "\"requested_bytes\": 3000"));
    assert_false(strstr(text, "never used"));
    free(text);
    CHECK_OK(loch_free(child, blocks[0]));
    CHECK_OK(loch_free(limit, blocks[1]));
    CHECK_OK(loch_free(direct, blocks[2]));
    loch_allocator_release(unused);
    loch_allocator_release(direct);
    loch_allocator_release(limit);
    loch_allocator_release(child);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void a_path_that_cannot_be_written_is_refused(void **state)
{
    (void)state;
    CHECK_FAILS(loch_snapshot_save(NULL), INVALID);
    CHECK_FAILS(loch_snapshot_save(""), IO);
    CHECK_FAILS(loch_snapshot_save("/proc/no/such/folder"), IO);
    CHECK_FAILS(loch_snapshot_save(folder), IO);
    CHECK_FAILS(loch_snapshot_save("/dev/full"), IO);
}

/* --- threads --- */

typedef struct worker {
    loch_allocator *pool;
    atomic_bool *is_over;
    char failure[256];
} worker;

static void work(worker *w)
{
    void *blocks[64] = {NULL};
    for (unsigned i = 0; !atomic_load(w->is_over); i++) {
        const size_t bytes = i % 3 ? 100 + i % 5000 : (size_t)(i % 40) << 15;
        TRY(loch_free(w->pool, blocks[i % 64]));
        blocks[i % 64] = NULL;
        TRY(loch_alloc(w->pool, bytes, &blocks[i % 64]));
    }
    for (size_t i = 0; i < 64; i++)
        TRY(loch_free(w->pool, blocks[i]));
}

static void *work_thread(void *argument)
{
    work(argument);
    return NULL;
}

static void snapshots_of_a_busy_pool_are_whole(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,granule=2MiB");
    loch_allocator *pool = pool_make(device, NULL);
    atomic_bool is_over = false;
    worker workers[3];
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        workers[i] = (worker){.pool = pool, .is_over = &is_over};
        assert_int_equal(pthread_create(&threads[i], NULL, work_thread, &workers[i]), 0);
    }
    for (int i = 0; i < 30; i++)
        free(take());
    atomic_store(&is_over, true);
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(workers[i].failure, "");
    }
    assert_null(pool_check(pool));
    loch_allocator_release(pool);
    loch_device_release(device);
}

/* --- failures --- */

/* Runs last: the process writes one such file. */
static void the_first_request_that_fails_leaves_a_snapshot(void **state)
{
    (void)state;
    char option[80], expected[96];
    loch_device *device = sim_open("sim:16MiB,granule=64KiB");
    loch_allocator *pool = pool_make(device, NULL);
    loch_tag tag;
    void *kept = pool_alloc(pool, 8 * TEST_MIB), *none;
    CHECK_OK(loch_tag_create("greedy", &tag));
    const loch_request request = {.size = sizeof request, .bytes = 64 * TEST_MIB, .tag = tag};
    CHECK_FAILS(loch_allocator_alloc(pool, &request, &none), DEVICE_MEMORY); /* nothing was asked for */
    snprintf(option, sizeof option, "%s/oom-%%p.json", folder);
    snprintf(expected, sizeof expected, "%s/oom-%ld.json", folder, (long)getpid());
    CHECK_OK(loch_option_set("snapshot", option));
    CHECK_FAILS(loch_allocator_alloc(pool, &request, &none), DEVICE_MEMORY);
    char sentence[LOCH_ERROR_SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", loch_error_get()->sentence); /* of the request, not of the snapshot */
    assert_true(has(sentence, "64 MiB"));
    char *text = take_file(expected), want[128];
    snprintf(want, sizeof want, "\"failure\": {\"bytes\": 67108864, \"allocator\": ");
    assert_true(has(text, want));
    snprintf(want, sizeof want, "\"tag\": %u, \"status\": \"E_DEVICE_MEMORY\"", (unsigned)tag);
    assert_true(has(text, want));
    assert_true(has(block(text, kept, "used"), "\"bytes\": 8388608"));
    free(text);
    CHECK_FAILS(loch_allocator_alloc(pool, &request, &none), DEVICE_MEMORY); /* once is enough */
    assert_int_equal(access(expected, F_OK), -1);
    CHECK_OK(loch_option_set("snapshot", NULL));
    CHECK_OK(loch_free(pool, kept));
    loch_allocator_release(pool);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(every_state_of_a_block_is_told),
        POOL_TEST(a_small_block_that_waits_is_not_counted_as_cached),
        POOL_TEST(memory_that_sleeps_or_is_frozen_is_told),
        POOL_TEST(captures_and_free_memory_in_use_are_told),
        POOL_TEST(wrappers_children_and_direct_allocators_are_listed),
        POOL_TEST(a_path_that_cannot_be_written_is_refused),
        POOL_TEST(snapshots_of_a_busy_pool_are_whole),
        POOL_TEST(the_first_request_that_fails_leaves_a_snapshot),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}

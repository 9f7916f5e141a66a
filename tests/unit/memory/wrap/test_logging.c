/* SPDX-License-Identifier: MIT */
/* The logging wrapper: what it writes, and that it never stands in the way. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"
#include <unistd.h>

/* --- files --- */

static char log_path[] = "/tmp/loch-test-XXXXXX";

static loch_allocator *logging_around(loch_allocator *wrapped, loch_logging_format format, loch_logging_filter filter)
{
    const loch_logging_options options = {.size = sizeof options, .format = format, .path = log_path, .filter = filter};
    loch_allocator *logging;
    CHECK_OK(loch_logging_create(wrapped, NULL, &options, &logging));
    loch_allocator_release(wrapped);
    return logging;
}

/* The file as it is now, with its lines in `lines`; returns their number. */
static size_t read_lines(char *text, size_t bytes, char **lines, size_t capacity)
{
    FILE *file = fopen(log_path, "r");
    assert_non_null(file);
    const size_t length = fread(text, 1, bytes - 1, file);
    fclose(file);
    text[length] = '\0';
    assert_true(length == 0 || text[length - 1] == '\n');
    size_t count = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        assert_true(count < capacity);
        lines[count++] = line;
    }
    return count;
}

/* Whether a line matches a pattern in which @ stands for a number. */
static bool matches(const char *line, const char *pattern)
{
    if (!line) return false;
    for (; *pattern; pattern++) {
        if (*pattern == '@') {
            char *end;
            (void)strtoull(line, &end, 0);
            if (end == line) return false;
            line = end;
        } else if (*line++ != *pattern) {
            return false;
        }
    }
    return !*line;
}

#define CHECK_LINE(line, pattern)                                                                                      \
    do {                                                                                                               \
        if (!matches((line), (pattern))) fail_msg("\"%s\" is not \"%s\"", (line), (pattern));                          \
    } while (0)

/* What both files are written from. */
static void make_events(const test_bed *bed, loch_allocator *logging)
{
    loch_stream *first = wrap_stream(bed), *second = wrap_stream(bed);
    loch_tag tag;
    CHECK_OK(loch_tag_create("a tag, \"quoted\"", &tag));
    const loch_request request = {
        .size = sizeof request, .bytes = 300, .alignment = 64, .stream = first, .tag = tag, .flags = LOCH_ALLOC_LOGGED};
    void *a, *b = wrap_alloc(logging, 20);
    CHECK_OK(loch_allocator_alloc(logging, &request, &a));
    CHECK_OK(loch_allocator_record_use(logging, a, second));
    CHECK_OK(loch_allocator_record_use(logging, b, NULL));
    CHECK_OK(loch_allocator_free_on(logging, a, second));
    CHECK_FAILS(loch_free(logging, a), DOUBLE_FREE);
    CHECK_OK(loch_free(logging, b));
    CHECK_FAILS(loch_alloc(logging, 5000, &b), LIMIT);
    CHECK_OK(loch_logging_flush(logging));
    loch_stream_close(first);
    loch_stream_close(second);
}

static loch_allocator *small_direct(const test_bed *bed)
{
    const loch_direct_options options = {.size = sizeof options, .limit_bytes = 4000};
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(bed->device, NULL, &options, &direct));
    return direct;
}

static void a_trace_has_a_line_for_each_event(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static char text[4096];
    char *lines[32] = {NULL};
    loch_allocator *logging = logging_around(small_direct(bed), LOCH_LOGGING_TRACE, 0);
    assert_string_equal(logging->ops.kind, "logging");
    make_events(bed, logging);
    assert_int_equal(read_lines(text, sizeof text, lines, 32), 7);
    assert_string_equal(lines[0], "# loch-trace 1");
    CHECK_LINE(lines[1], "a 1 20 0 @");
    CHECK_LINE(lines[2], "a 2 300 1 @ align=64 tag=a_tag___quoted_");
    CHECK_LINE(lines[3], "u 2 2 @");
    CHECK_LINE(lines[4], "u 1 0 @");
    CHECK_LINE(lines[5], "f 2 @ 2");
    CHECK_LINE(lines[6], "f 1 @");
    loch_allocator_release(logging);
}

static void a_table_has_a_row_for_each_event(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static char text[4096];
    char *lines[32] = {NULL};
    loch_allocator *logging = logging_around(small_direct(bed), LOCH_LOGGING_CSV, 0);
    make_events(bed, logging);
    assert_int_equal(read_lines(text, sizeof text, lines, 32), 9);
    assert_string_equal(lines[0], "time_ns,event,id,address,bytes,stream,tag,status");
    CHECK_LINE(lines[1], "@,alloc,1,@,20,0,,OK");
    CHECK_LINE(lines[2], "@,alloc,2,@,300,1,a_tag___quoted_,OK");
    CHECK_LINE(lines[3], "@,use,2,@,300,2,a_tag___quoted_,OK");
    CHECK_LINE(lines[4], "@,use,1,@,20,0,,OK");
    CHECK_LINE(lines[5], "@,free,2,@,300,2,a_tag___quoted_,OK");
    CHECK_LINE(lines[6], "@,free,0,@,0,0,,E_DOUBLE_FREE");
    CHECK_LINE(lines[7], "@,free,1,@,20,0,,OK");
    CHECK_LINE(lines[8], "@,alloc,0,0x0,5000,0,,E_LIMIT");
    loch_allocator_release(logging);
}

static void flags_choose_what_is_written(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static char text[4096];
    char *lines[32] = {NULL};
    loch_allocator *logging = logging_around(small_direct(bed), LOCH_LOGGING_TRACE, 1);
    make_events(bed, logging);
    assert_int_equal(read_lines(text, sizeof text, lines, 32), 4);
    CHECK_LINE(lines[1], "a 1 300 1 @ align=64 tag=a_tag___quoted_");
    CHECK_LINE(lines[2], "u 1 2 @");
    CHECK_LINE(lines[3], "f 1 @ 2");
    loch_allocator_release(logging);
}

static void times_follow_the_clock(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static char text[4096];
    char *lines[8] = {NULL};
    const uint64_t start = loch_host_now_ns();
    loch_allocator *logging = logging_around(small_direct(bed), LOCH_LOGGING_TRACE, 0);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_free(logging, wrap_alloc(logging, 1)));
    const uint64_t spent_us = (loch_host_now_ns() - start) / 1000 + 1;
    loch_allocator_release(logging); /* which writes out the rest */
    assert_int_equal(read_lines(text, sizeof text, lines, 8), 7);
    uint64_t before = 0;
    for (size_t i = 1; i < 7; i++) {
        char *last = strrchr(lines[i], ' ');
        const uint64_t us = strtoull(last + 1, NULL, 10);
        assert_true(us >= before && us <= spent_us);
        before = us;
    }
    CHECK_LINE(lines[5], "a 3 1 0 @"); /* the address may be the same, the id is not */
}

/* A block that a free could not give back is still there for the next one. */
static void failed_frees_are_not_written_as_frees(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static char text[4096];
    char *lines[8] = {NULL};
    wrap_plain plain;
    loch_allocator *logging =
        logging_around(wrap_plain_create(bed, &plain, LOCH_TRAIT_THREAD_SAFE), LOCH_LOGGING_TRACE, 0);
    void *block = wrap_alloc(logging, 10);
    if (bed->is_sim) {
        const loch_sim_fault fault = {.size = sizeof fault, .call = "device_sync"};
        CHECK_OK(loch_sim_set_fault(bed->device, &fault));
        CHECK_FAILS(loch_free(logging, block), DRIVER);
        CHECK_OK(loch_sim_set_fault(bed->device, NULL));
    }
    CHECK_OK(loch_free(logging, block));
    CHECK_OK(loch_logging_flush(logging));
    assert_int_equal(read_lines(text, sizeof text, lines, 8), 3);
    CHECK_LINE(lines[2], "f 1 @");
    loch_allocator_release(logging);
}

/* What was freed behind the wrapper's back ends when its address comes again: the trace stays one that can be read. */
static void a_free_behind_its_back_ends_when_the_address_comes_again(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static char text[4096];
    char *lines[8] = {NULL};
    wrap_plain plain;
    loch_allocator *base = wrap_plain_create(bed, &plain, LOCH_TRAIT_THREAD_SAFE);
    loch_allocator *logging = logging_around(base, LOCH_LOGGING_TRACE, 0);
    plain.keeps = true;
    void *block = wrap_alloc(logging, 10);
    CHECK_OK(loch_raw_free(block));
    void *again = wrap_alloc(logging, 10);
    CHECK_OK(loch_logging_flush(logging));
    const bool is_same = again == block;
    assert_int_equal(read_lines(text, sizeof text, lines, 8), is_same ? 4 : 3);
    if (is_same) CHECK_LINE(lines[2], "f 1 @");
    CHECK_LINE(lines[is_same ? 3 : 2], "a 2 10 0 @");
    CHECK_OK(loch_free(logging, again));
    CHECK_OK(loch_raw_free(again));
    /* Corrects the count of the allocator that still has the block recorded: with `keeps`, this call frees nothing. */
    CHECK_OK(loch_free(is_same ? base : logging, block));
    loch_allocator_release(logging);
}

static void a_guard_below_is_believed(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static char text[4096];
    char *lines[8] = {NULL};
    loch_allocator *direct = wrap_direct(bed), *guard;
    CHECK_OK(loch_redzone_create(direct, NULL, NULL, &guard));
    loch_allocator_release(direct);
    loch_allocator *logging = logging_around(guard, LOCH_LOGGING_TRACE, 0);
    char *block = wrap_alloc(logging, 10);
    wrap_poke(loch_stream_get_default(bed->device), block + 10, 1);
    assert_int_equal(loch_free(logging, block), bed->has_data ? LOCH_E_CORRUPT : LOCH_OK);
    CHECK_OK(loch_logging_flush(logging));
    assert_int_equal(read_lines(text, sizeof text, lines, 8), 3);
    CHECK_LINE(lines[2], "f 1 @");
    loch_allocator_release(logging);
}

/* --- trouble --- */

static void a_full_disk_disturbs_nobody(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed), *logging;
    const loch_logging_options options = {.size = sizeof options, .format = LOCH_LOGGING_TRACE, .path = "/dev/full"};
    const loch_status status = loch_logging_create(direct, NULL, &options, &logging);
    if (status == LOCH_E_IO) { /* a system without it */
        loch_allocator_release(direct);
        return;
    }
    CHECK_OK(status);
    for (size_t i = 0; i < 3000; i++)
        CHECK_OK(loch_free(logging, wrap_alloc(logging, 8)));
    CHECK_FAILS(loch_logging_flush(logging), IO);
    CHECK_FAILS(loch_logging_flush(logging), IO); /* the file stays incomplete */
    CHECK_OK(loch_free(logging, wrap_alloc(logging, 8)));
    loch_allocator_release(logging);
    loch_allocator_release(direct);
}

static void arguments_are_checked(void **state)
{
    loch_allocator *direct = wrap_direct(wrap_bed(state)), *logging = TEST_UNTOUCHED;
    CHECK_FAILS(loch_logging_create(NULL, NULL, NULL, &logging), INVALID);
    assert_null(logging);
    CHECK_FAILS(loch_logging_create(direct, NULL, NULL, NULL), INVALID);
    loch_logging_options options = {.size = 1};
    CHECK_FAILS(loch_logging_create(direct, NULL, &options, &logging), INVALID);
    options = (loch_logging_options){.size = sizeof options, .format = (loch_logging_format)9};
    CHECK_FAILS(loch_logging_create(direct, NULL, &options, &logging), INVALID);
    options = (loch_logging_options){.size = sizeof options, .format = LOCH_LOGGING_CSV};
    CHECK_FAILS(loch_logging_create(direct, NULL, &options, &logging), INVALID);
    options.path = "/nowhere/at/all";
    CHECK_FAILS(loch_logging_create(direct, NULL, &options, &logging), IO);
    assert_null(logging);
    CHECK_FAILS(loch_logging_flush(direct), INVALID);
    CHECK_FAILS(loch_logging_flush(NULL), INVALID);
    loch_allocator_release(direct);
}

/* --- the hook --- */

typedef struct heard {
    unsigned lines;
    char last[256];
} heard;

static void hear(loch_log_level level, const char *line, void *user)
{
    heard *it = user;
    if (level != LOCH_LOG_INFO) return;
    it->lines++;
    snprintf(it->last, sizeof it->last, "%s", line);
}

static void without_a_file_the_log_hook_gets_the_lines(void **state)
{
    const test_bed *bed = wrap_bed(state);
    heard it = {.lines = 0};
    loch_allocator *direct = small_direct(bed), *logging;
    CHECK_OK(loch_logging_create(direct, "spoken", NULL, &logging));
    loch_allocator_release(direct);
    CHECK_OK(loch_free(logging, wrap_alloc(logging, 3))); /* no log hook is set */
    loch_log_set_hook(hear, &it, LOCH_LOG_INFO);
    void *block = wrap_alloc(logging, 77);
    assert_int_equal(it.lines, 1);
    assert_non_null(strstr(it.last, "spoken: alloc of 77 bytes"));
    CHECK_OK(loch_allocator_record_use(logging, block, NULL));
    CHECK_OK(loch_free(logging, block));
    assert_int_equal(it.lines, 3);
    assert_non_null(strstr(it.last, "spoken: free of 77 bytes"));
    CHECK_FAILS(loch_alloc(logging, 5000, &block), LIMIT);
    assert_int_equal(it.lines, 4);
    assert_non_null(strstr(it.last, "E_LIMIT"));
    CHECK_OK(loch_logging_flush(logging));
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    loch_allocator_release(logging);
}

/* --- forwarding --- */

static void what_is_not_logged_is_forwarded(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = small_direct(bed);
    loch_allocator *logging = logging_around(direct, LOCH_LOGGING_CSV, 0);
    assert_int_equal(loch_allocator_get_traits(logging), loch_allocator_get_traits(direct));
    void *block = wrap_alloc(logging, 100);
    loch_block above = {.size = sizeof above}, below = {.size = sizeof below};
    CHECK_OK(loch_allocator_find(logging, block, &above));
    CHECK_OK(loch_allocator_find(direct, block, &below));
    assert_memory_equal(&above, &below, sizeof above);
    assert_int_equal(wrap_stats(logging).requested_bytes, 100);
    assert_int_equal(wrap_stats(logging).limit_bytes, 4000);
    CHECK_FAILS(loch_allocator_free_sized(logging, block, 99), INVALID);
    CHECK_OK(loch_allocator_free_sized(logging, block, 100));
    loch_allocator_release(logging);
}

/* --- threads --- */

#define THREADS 8
#define ROUNDS 300

typedef struct worker {
    loch_allocator *logging;
    loch_stream *stream;
    uint64_t seed, allocs;
    const char *failed;
} worker;

static void *work(void *user)
{
    worker *it = user;
    test_random random = {it->seed};
    void *blocks[8] = {NULL};
    for (int round = 0; round < ROUNDS; round++) {
        const size_t at = test_random_below(&random, 8);
        if (blocks[at]) {
            if (loch_free(it->logging, blocks[at]) != LOCH_OK) it->failed = "free";
            blocks[at] = NULL;
            continue;
        }
        const loch_request request = {
            .size = sizeof request, .bytes = 1 + test_random_below(&random, 300), .stream = it->stream};
        if (loch_allocator_alloc(it->logging, &request, &blocks[at]) != LOCH_OK) it->failed = "alloc";
        it->allocs++;
    }
    for (size_t i = 0; i < 8; i++)
        if (loch_free(it->logging, blocks[i]) != LOCH_OK) it->failed = "free";
    return NULL;
}

/* Reads the trace as a replayer would: ids once, frees of what is there, times that do not go back. */
static void check_trace(uint64_t allocs)
{
    static signed char seen[THREADS * ROUNDS + 1]; /* 0 not yet, 1 live, 2 freed */
    memset(seen, 0, sizeof seen);
    FILE *file = fopen(log_path, "r");
    assert_non_null(file);
    char line[256];
    unsigned long long id, bytes, stream, us, before = 0;
    uint64_t made = 0, freed = 0;
    assert_non_null(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        const bool is_alloc = line[0] == 'a';
        const int fields = is_alloc ? sscanf(line, "a %llu %llu %llu %llu", &id, &bytes, &stream, &us)
                                    : sscanf(line, "f %llu %llu", &id, &us);
        assert_int_equal(fields, is_alloc ? 4 : 2);
        assert_true(id >= 1 && id <= THREADS * ROUNDS);
        assert_int_equal(seen[id], is_alloc ? 0 : 1);
        assert_true(us >= before);
        if (is_alloc) assert_true(stream >= 1 && stream <= THREADS && bytes >= 1 && bytes <= 300);
        seen[id] = is_alloc ? 1 : 2;
        before = us;
        made += is_alloc;
        freed += !is_alloc;
    }
    fclose(file);
    assert_int_equal(made, allocs);
    assert_int_equal(freed, allocs);
}

static void eight_threads_write_one_trace(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const uint64_t seed = test_seed(97);
    loch_allocator *logging = logging_around(wrap_direct(bed), LOCH_LOGGING_TRACE, 0);
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.logging = logging, .stream = wrap_stream(bed), .seed = seed + i};
    TEST_THREADS_RUN(work, workers);
    uint64_t allocs = 0;
    for (size_t i = 0; i < THREADS; i++) {
        if (workers[i].failed) fail_msg("thread %zu: %s", i, workers[i].failed);
        allocs += workers[i].allocs;
    }
    loch_allocator_release(logging);
    for (size_t i = 0; i < THREADS; i++)
        loch_stream_close(workers[i].stream);
    check_trace(allocs);
}

/* --- failing host allocations --- */

static loch_status create(loch_allocator *wrapped, loch_allocator **out)
{
    const loch_logging_options options = {.size = sizeof options, .format = LOCH_LOGGING_TRACE, .path = log_path};
    return loch_logging_create(wrapped, NULL, &options, out);
}

/* What cannot be noted is missing from the file, and flush says so; allocations go on. */
static void a_logging_wrapper_survives_failing_host_memory(void **state)
{
    wrap_sweep(state, (wrap_subject){.create = create, .use = loch_logging_flush});
}

int main(void)
{
    const int file = mkstemp(log_path);
    if (file < 0) {
        print_error("no file can be made in /tmp\n");
        return 1;
    }
    close(file);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_has_a_line_for_each_event),
        cmocka_unit_test(a_table_has_a_row_for_each_event),
        cmocka_unit_test(flags_choose_what_is_written),
        cmocka_unit_test(times_follow_the_clock),
        cmocka_unit_test(failed_frees_are_not_written_as_frees),
        cmocka_unit_test(a_free_behind_its_back_ends_when_the_address_comes_again),
        cmocka_unit_test(a_guard_below_is_believed),
        cmocka_unit_test(a_full_disk_disturbs_nobody),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(without_a_file_the_log_hook_gets_the_lines),
        cmocka_unit_test(what_is_not_logged_is_forwarded),
        cmocka_unit_test(eight_threads_write_one_trace),
        cmocka_unit_test(a_logging_wrapper_survives_failing_host_memory),
    };
    const int status = WRAP_RUN(tests);
    unlink(log_path);
    return status;
}

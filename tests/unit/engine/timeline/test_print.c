/* SPDX-License-Identifier: MIT */
/* Printing timelines: tree, bars and trace, for all names, widths and sizes of buffers; saving them. */
#include "json_check.h"
#include "timeline_fixture.h"
#include <locale.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static void span(loch_timeline *timeline, const char *name, uint64_t ns)
{
    loch_span one = loch_span_begin(timeline, name, NULL);
    tl_now_ns += ns;
    loch_span_end(&one);
}

static void *span_elsewhere(void *user)
{
    pthread_setname_np(pthread_self(), "elsewhere");
    span(user, "other", 500);
    return NULL;
}

typedef struct filled {
    loch_device *device;
    loch_stream *stream;
    loch_allocator *allocator;
    loch_timeline *timeline;
    void *kept;
} filled;

/* A bit of everything: two threads, a device, memory, work. */
static filled filled_open(void)
{
    filled f = {.device = sim_open("sim:64MiB,clock=stepped"), .timeline = tl_create(1, 0)};
    f.stream = sim_stream(f.device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(loch_direct_create(f.device, "pool \"a\"", NULL, &f.allocator));
    for (int i = 0; i < 2; i++) {
        void *block;
        LOCH_SPAN(f.timeline, "step", .allocator = f.allocator);
        CHECK_OK(loch_alloc(f.allocator, 1536, &block));
        {
            LOCH_SPAN(f.timeline, "attention", .level = 1, .stream = f.stream, .flops = 8000, .bytes = 500);
            CHECK_OK(sim_busy(f.stream, 1000));
            tl_now_ns += 100;
        }
        span(f.timeline, "mlp", 300);
        span(f.timeline, "mlp", 500);
        if (i)
            CHECK_OK(loch_free(f.allocator, block));
        else
            f.kept = block;
        tl_now_ns += 100;
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, span_elsewhere, f.timeline), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return f;
}

static void filled_close(filled *f)
{
    CHECK_OK(loch_free(f->allocator, f->kept));
    loch_timeline_destroy(f->timeline);
    loch_allocator_release(f->allocator);
    loch_stream_close(f->stream);
    loch_device_release(f->device);
}

/* --- what is printed --- */

static void a_tree_merges_what_has_one_name(void **state)
{
    (void)state;
    filled f = filled_open();
    char *text = tl_print(f.timeline, LOCH_TIMELINE_TREE, 0);
    assert_string_equal(text, "span              count          time  on         share\n"
                              "thread 0\n"
                              "  step                2      2.000 us  host      100.0%  +1.50 KiB\n"
                              "    attention         2      2.000 us  device    100.0%  8.00 GFLOP/s  0.50 GB/s\n"
                              "    mlp               4      1.600 us  host       80.0%\n"
                              "thread 1\n"
                              "  other               1        500 ns  host      100.0%\n");
    free(text);
    filled_close(&f);
}

static void bars_lie_where_spans_do(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 5);
    loch_span outer = loch_span_begin(timeline, "outer", NULL);
    span(timeline, "first", 250);
    span(timeline, "second", 500);
    tl_now_ns += 250;
    loch_span_end(&outer);
    loch_span open = loch_span_begin(timeline, "open", NULL);
    tl_now_ns += 1000;
    span(timeline, "point", 0);
    assert_null(loch_span_begin(timeline, "lost", NULL).timeline);
    char *text = tl_print(timeline, LOCH_TIMELINE_BARS, 16);
    assert_string_equal(text, "thread 0\n"
                              "outer         1.000 us |########        |\n"
                              "  first         250 ns |##              |\n"
                              "  second        500 ns |  ####          |\n"
                              "open          1.000 us |        ########| open\n"
                              "  point           0 ns |               #|\n"
                              "1 spans were lost: 5 are kept for each thread\n");
    free(text);
    loch_span_end(&open);
    loch_timeline_destroy(timeline);
}

static void nothing_is_printed_as_nothing(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    for (loch_timeline_format format = LOCH_TIMELINE_TREE; format <= LOCH_TIMELINE_BARS; format++) {
        char *text = tl_print(timeline, format, 0);
        assert_string_equal(text, "no spans\n");
        free(text);
    }
    char *text = tl_print(timeline, LOCH_TIMELINE_TRACE, 0);
    assert_true(json_is_valid(text));
    free(text);
    assert_int_equal(test_timeline_print(timeline, (loch_timeline_format)7, 0, NULL, 0), 0);
    loch_timeline_destroy(timeline);
}

static size_t occurrences(const char *text, const char *part)
{
    size_t count = 0;
    while ((text = strstr(text, part))) {
        count++;
        text++;
    }
    return count;
}

static void a_trace_has_rows_spans_and_counters(void **state)
{
    (void)state;
    filled f = filled_open();
    loch_span open = loch_span_begin(f.timeline, "open", NULL);
    char *text = tl_print(f.timeline, LOCH_TIMELINE_TRACE, 0);
    assert_true(json_is_valid(text));
    assert_int_equal(occurrences(text, "\"ph\":\"X\",\"pid\":1"), 9);
    assert_int_equal(occurrences(text, "\"ph\":\"X\",\"pid\":2"), 2);
    assert_int_equal(occurrences(text, "\"ph\":\"B\",\"pid\":1"), 1);
    assert_int_equal(occurrences(text, "\"name\":\"thread_name\""), 3);
    assert_non_null(strstr(text, "\"args\":{\"name\":\"sim:64MiB,clock=stepped stream "));
    assert_non_null(strstr(text, "\"args\":{\"name\":\"elsewhere\"}"));
    assert_non_null(strstr(text, "\"name\":\"step\",\"ts\":0.000,\"dur\":1.000,\"args\":{\"level\":0}"));
    assert_non_null(strstr(text, "\"args\":{\"level\":1,\"flops\":8000,\"bytes\":500,"
                                 "\"device\":\"sim:64MiB,clock=stepped\",\"device_us\":1.000}"));
    assert_int_equal(occurrences(text, "\"ph\":\"C\",\"pid\":1,\"tid\":0,\"name\":\"pool \\\"a\\\"\""), 4);
    assert_non_null(strstr(text, "\"ts\":1.000,\"args\":{\"bytes\":1536}"));
    free(text);
    loch_span_end(&open);
    filled_close(&f);
}

static void numbers_are_valid_json_whatever_they_are(void **state)
{
    (void)state;
    static const struct {
        double flops;
        const char *text;
    } cases[] = {
        {1, "1"},
        {1.5, "1.5"},
        {0.25, "0.25"},
        {0.0625, "0.062"},
        {-3, "-3"},
        {1e20, "1"
               "00000000000000000000"},
        {123456789012, "123456789012"},
        {1.0 / 0.0, "null"},
        {0.0 / 0.0, "null"},
        {1000.125, "1000.125"},
    };
    (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is there, its comma must not show */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loch_timeline *timeline = tl_create(0, 0);
        {
            LOCH_SPAN(timeline, "s", .flops = cases[i].flops, .bytes = 1);
            tl_now_ns += 1;
        }
        char *text = tl_print(timeline, LOCH_TIMELINE_TRACE, 0), expected[400];
        snprintf(expected, sizeof expected, "\"flops\":%s,\"bytes\":1}", cases[i].text);
        assert_true(json_is_valid(text));
        assert_non_null(strstr(text, expected));
        free(text);
        text = tl_print(timeline, LOCH_TIMELINE_TREE, 0);
        assert_non_null(strstr(text, "1.00 GB/s"));
        free(text);
        loch_timeline_destroy(timeline);
    }
    (void)setlocale(LC_ALL, "C");
}

/* --- any name, any width, any buffer --- */

/* Prints into a buffer of every size: what fits, a zero, and nothing beyond. */
static void check_buffers(loch_timeline *timeline, loch_timeline_format format, size_t width)
{
    char *whole = tl_print(timeline, format, width);
    const size_t length = strlen(whole), step = length / 3000 + 1;
    char *text = malloc(length + 16);
    assert_non_null(text);
    for (size_t bytes = 0; bytes <= length + 1; bytes += bytes + step <= length + 1 || bytes == length + 1 ? step : 1) {
        memset(text, 0x5a, length + 16);
        assert_int_equal(test_timeline_print(timeline, format, width, text, bytes), length);
        const size_t fits = bytes ? bytes - 1 : 0;
        if (bytes) assert_memory_equal(text, whole, fits);
        if (bytes) assert_int_equal(text[fits], 0);
        assert_int_equal(text[bytes], 0x5a);
        assert_int_equal(text[bytes + 1], 0x5a);
    }
    free(text);
    free(whole);
}

static void a_buffer_of_any_size_gets_what_fits(void **state)
{
    (void)state;
    filled f = filled_open();
    for (loch_timeline_format format = LOCH_TIMELINE_TREE; format <= LOCH_TIMELINE_TRACE; format++)
        check_buffers(f.timeline, format, 30);
    filled_close(&f);
}

/* Returns whether all characters can be shown: UTF-8 without controls, except those of two bytes, which JSON allows.
 * `columns` receives the length of the longest line in characters. */
static bool is_clean(const char *text, bool is_json, size_t *columns)
{
    size_t line = 0;
    *columns = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '\n') {
            if (line > *columns) *columns = line;
            line = 0;
            continue;
        }
        if (*at < 0x20 || *at == 0x7f) return false;
        const int more = *at < 0x80 ? 0 : *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : *at >= 0xc2 ? 1 : -1;
        if (more < 0 || (!is_json && *at == 0xc2 && at[1] < 0xa0)) return false;
        for (int i = 0; i < more; i++)
            if ((*++at & 0xc0) != 0x80) return false;
        line++;
    }
    return true;
}

static void names_of_all_bytes_are_escaped(void **state)
{
    (void)state;
    test_random random = {test_seed(26)};
    static const char *const parts[] = {"\"",
                                        "\\",
                                        "\n",
                                        "\x7f",
                                        "\xc3\xa9",
                                        "\xe2\x82\xac",
                                        "\xf0\x9f\x98\x80",
                                        "\xc2\x85",
                                        "\xed\xa0\x80",
                                        "\xf4\x90\x80\x80",
                                        "\xc3",
                                        "</script>"};
    loch_timeline *timeline = tl_create(0, 0);
    for (int i = 0; i < 400; i++) {
        char name[600];
        const size_t length = i == 0 ? 0 : test_random_below(&random, i % 10 ? 90 : 590);
        size_t at = 0;
        while (at < length) {
            const char *part = parts[test_random_below(&random, sizeof parts / sizeof *parts)];
            if (test_random_below(&random, 3) || at + strlen(part) > length)
                name[at++] = (char)(1 + test_random_below(&random, 255));
            else
                at += (size_t)sprintf(name + at, "%s", part);
        }
        name[length] = '\0';
        loch_span one = loch_span_begin(timeline, name, NULL);
        tl_now_ns += 1 + test_random_below(&random, 100000);
        if (test_random_below(&random, 3)) loch_span_end(&one); /* others stay open: it gets deep */
    }
    char *text = tl_print(timeline, LOCH_TIMELINE_TRACE, 0);
    assert_true(json_is_valid(text));
    size_t columns;
    assert_true(is_clean(text, true, &columns));
    free(text);
    text = tl_print(timeline, LOCH_TIMELINE_TREE, 0);
    assert_true(is_clean(text, false, &columns));
    assert_true(columns < 140);
    free(text);
    text = tl_print(timeline, LOCH_TIMELINE_BARS, 50);
    assert_true(is_clean(text, false, &columns));
    assert_true(columns <= 40 + 1 + 13 + 2 + 50 + 1 + 5);
    free(text);
    check_buffers(timeline, LOCH_TIMELINE_TREE, 0);
    loch_timeline_destroy(timeline);
}

/* Of the original: a name of 58 characters, or bars wider than 200, were written behind the end of a buffer. */
static void long_names_and_wide_bars_overrun_nothing(void **state)
{
    (void)state;
    static const size_t widths[] = {0, 1, 2, 3, 99, 200, 201, 202, 216, 1000, 9999, 10000, 10001, SIZE_MAX};
    loch_timeline *timeline = tl_create(0, 0);
    char name[301];
    for (size_t length = 0; length <= 300; length += length < 70 ? 1 : 46) {
        memset(name, 'n', length);
        name[length] = '\0';
        span(timeline, name, length);
    }
    size_t kept;
    loch_timeline_count(timeline, &kept, NULL);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const size_t width = !widths[i] ? 100 : widths[i] > 10000 ? 10000 : widths[i];
        char *text = tl_print(timeline, LOCH_TIMELINE_BARS, widths[i]);
        assert_int_equal(strlen(text), strlen("thread 0\n") + kept * (40 + 1 + 13 + 2 + width + 2));
        free(text);
    }
    for (size_t width = 0; width <= 300; width++)
        free(tl_print(timeline, LOCH_TIMELINE_BARS, width));
    check_buffers(timeline, LOCH_TIMELINE_BARS, 250);
    free(tl_print(timeline, LOCH_TIMELINE_TREE, 0));
    loch_timeline_destroy(timeline);
}

static void every_width_is_exact(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    tl_now_ns += 1;
    span(timeline, "a", 3);
    span(timeline, "b", 0);
    span(timeline, "c", 7777777);
    span(timeline, "d", 0);
    static char text[50000];
    for (size_t width = 1; width <= 10000; width += width < 300 ? 1 : 97) {
        const size_t length = test_timeline_print(timeline, LOCH_TIMELINE_BARS, width, text, sizeof text);
        assert_int_equal(length, strlen("thread 0\n") + 4 * (1 + 1 + 13 + 2 + width + 2));
        assert_int_equal(strlen(text), length);
        assert_int_equal(text[length - 3], '#'); /* d: the last column */
    }
    loch_timeline_destroy(timeline);
}

static void depth_has_no_limit(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    loch_span first = loch_span_begin(timeline, "0", NULL);
    for (int i = 1; i < 5000; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        (void)loch_span_begin(timeline, name, NULL);
    }
    tl_now_ns += 10;
    loch_span_end(&first);
    size_t kept;
    loch_timeline_count(timeline, &kept, NULL);
    assert_int_equal(kept, 5000);
    for (loch_timeline_format format = LOCH_TIMELINE_TREE; format <= LOCH_TIMELINE_TRACE; format++) {
        char *text = tl_print(timeline, format, 10);
        assert_non_null(strstr(text, "4999"));
        assert_true(strlen(text) < 5000 * 150);
        free(text);
    }
    loch_timeline_destroy(timeline);
}

/* --- files --- */

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    (void)!fread(text, 1, (1 << 16) - 1, file);
    (void)fclose(file);
    return text;
}

static void a_file_holds_what_is_printed(void **state)
{
    (void)state;
    char folder[] = "loch-timeline-XXXXXX", path[64], *text, *read;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace.json", folder);
    filled f = filled_open();
    for (loch_timeline_format format = LOCH_TIMELINE_TREE; format <= LOCH_TIMELINE_TRACE; format++) {
        CHECK_OK(loch_timeline_save(f.timeline, path, format, 40));
        text = tl_print(f.timeline, format, 40);
        read = read_whole(path);
        assert_string_equal(text, read);
        free(read);
        free(text);
    }
    CHECK_FAILS(loch_timeline_save(NULL, path, LOCH_TIMELINE_TREE, 0), INVALID);
    CHECK_FAILS(loch_timeline_save(f.timeline, NULL, LOCH_TIMELINE_TREE, 0), INVALID);
    CHECK_FAILS(loch_timeline_save(f.timeline, path, (loch_timeline_format)3, 0), INVALID);
    filled_close(&f);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
}

static void a_file_that_cannot_be_written_is_left_as_it_was(void **state)
{
    (void)state;
    char folder[] = "loch-timeline-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    loch_timeline *timeline = tl_create(0, 0);
    span(timeline, "a", 1);
    snprintf(path, sizeof path, "%s/no/trace.json", folder);
    CHECK_FAILS(loch_timeline_save(timeline, path, LOCH_TIMELINE_TRACE, 0), IO);
    assert_non_null(strstr(loch_error_get()->sentence, path));
    CHECK_FAILS(loch_timeline_save(timeline, folder, LOCH_TIMELINE_TRACE, 0), IO);
    assert_non_null(strstr(loch_error_get()->sentence, folder));
    CHECK_FAILS(loch_timeline_save(timeline, "", LOCH_TIMELINE_TRACE, 0), IO);
    if (access("/dev/full", W_OK) == 0)
        CHECK_FAILS(loch_timeline_save(timeline, "/dev/full", LOCH_TIMELINE_TREE, 0), IO);
    loch_timeline_destroy(timeline);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TL_TEST(a_tree_merges_what_has_one_name),
        TL_TEST(bars_lie_where_spans_do),
        TL_TEST(nothing_is_printed_as_nothing),
        TL_TEST(a_trace_has_rows_spans_and_counters),
        TL_TEST(numbers_are_valid_json_whatever_they_are),
        TL_TEST(a_buffer_of_any_size_gets_what_fits),
        TL_TEST(names_of_all_bytes_are_escaped),
        TL_TEST(long_names_and_wide_bars_overrun_nothing),
        TL_TEST(every_width_is_exact),
        TL_TEST(depth_has_no_limit),
        TL_TEST(a_file_holds_what_is_printed),
        TL_TEST(a_file_that_cannot_be_written_is_left_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

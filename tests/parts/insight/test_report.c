/* SPDX-License-Identifier: MIT */
/* The report: what the page contains decodes to the sums of the recording, and names cannot become scripts. */
#include "report.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- a page, read back --- */

typedef struct test_page {
    char *text;
    size_t bytes;
    char path[64];
} test_page;

static void page_path(test_page *out)
{
    *out = (test_page){.path = "/tmp/loch-report.XXXXXX"};
    const int file = mkstemp(out->path);
    assert_true(file >= 0);
    close(file);
}

static void page_make(test_page *out, loch_recording *const *recordings, size_t count,
                      const loch_report_options *options)
{
    page_path(out);
    CHECK_OK(loch_report_save((const loch_recording *const *)recordings, count, out->path, options));
    FILE *file = fopen(out->path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    out->bytes = (size_t)ftell(file);
    rewind(file);
    out->text = malloc(out->bytes + 1);
    assert_non_null(out->text);
    assert_int_equal(fread(out->text, 1, out->bytes, file), out->bytes);
    out->text[out->bytes] = 0;
    fclose(file);
}

static void page_free(test_page *page)
{
    unlink(page->path);
    free(page->text);
}

/* Reads a number of the page's JSON: the first with this name. */
static uint64_t page_number(const test_page *page, const char *name)
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\":", name);
    const char *found = strstr(page->text, pattern);
    assert_non_null(found);
    return strtoull(found + strlen(pattern), NULL, 10);
}

typedef struct test_packed {
    uint8_t *data;
    size_t bytes, at;
} test_packed;

static test_packed page_data(const test_page *page, const char *id)
{
    char pattern[64];
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    snprintf(pattern, sizeof pattern, "id=\"%s\">", id);
    const char *at = strstr(page->text, pattern);
    assert_non_null(at);
    at += strlen(pattern);
    test_packed out = {malloc(strcspn(at, "<") + 3), 0, 0};
    assert_non_null(out.data);
    uint32_t group = 0;
    for (unsigned bits = 0; *at != '<' && *at != '='; at++) {
        const char *digit = strchr(digits, *at);
        assert_non_null(digit);
        group = group << 6 | (uint32_t)(digit - digits);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        out.data[out.bytes++] = (uint8_t)(group >> bits);
    }
    return out;
}

static uint64_t packed_next(test_packed *packed)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(packed->at < packed->bytes && shift < 64);
        const uint8_t byte = packed->data[packed->at++];
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
}

static uint64_t packed_change(test_packed *packed)
{
    const uint64_t value = packed_next(packed);
    return value >> 1 ^ (0 - (value & 1));
}

typedef struct test_column {
    uint64_t time, moment, moment_time, most, least, last, reserved_most, reserved, reserved_last, blocks, call_ns,
        calls, allocations;
} test_column;

static void packed_column(test_packed *packed, test_column *column)
{
    column->time += packed_next(packed);
    column->moment += packed_next(packed);
    column->moment_time = column->time + packed_next(packed);
    column->most += packed_change(packed);
    column->least = column->most - packed_next(packed);
    column->last = column->most - packed_next(packed);
    column->reserved_most += packed_change(packed);
    column->reserved = column->reserved_most - packed_next(packed);
    column->reserved_last = column->reserved_most - packed_next(packed);
    column->blocks += packed_change(packed);
    column->call_ns = packed_next(packed);
    column->calls = packed_next(packed);
    column->allocations = packed_next(packed);
}

/* Advances the bands of a grouping by one column. Returns their sum at the column's moment. */
static uint64_t packed_bands(test_packed *packed, uint64_t *bands, size_t count)
{
    uint64_t sum = 0;
    const uint64_t changed = packed_next(packed);
    for (size_t i = 0; i < count; i++) {
        if (changed >> i & 1) bands[i] += packed_change(packed);
        sum += bands[i];
    }
    const uint64_t higher = packed_next(packed);
    for (size_t i = 0; i < count; i++)
        if (higher >> i & 1) assert_true(packed_next(packed) > 0);
    return sum;
}

typedef struct one_life {
    uint64_t begin, begin_ns, length, length_ns, address, bytes, id, flags, tag, site, stream, allocator, stack;
} one_life;

static void packed_life(test_packed *packed, one_life *life)
{
    life->begin += packed_next(packed);
    life->begin_ns += packed_next(packed);
    life->length = packed_next(packed);
    life->length_ns = life->length ? packed_next(packed) : 0;
    life->address += packed_change(packed);
    life->bytes = packed_next(packed);
    life->id += packed_change(packed);
    life->flags = packed_next(packed);
    life->tag = packed_next(packed);
    life->site = packed_next(packed);
    life->stream = packed_next(packed);
    life->allocator = packed_next(packed);
    life->stack = packed_next(packed);
}

/* --- recordings --- */

static loch_recording *start(void)
{
    loch_recording *recording;
    CHECK_OK(lochi_insight_recording_create("/folder/program.loch", LOCH_RECORDING_BINARY, &recording));
    recording->info.has_addresses = 1;
    return recording;
}

static uint32_t add_tag(loch_recording *recording, const char *tag)
{
    return lochi_insight_recording_add_name(recording, LOCH_RECORDING_TAG, tag, strlen(tag));
}

static uint32_t alloc(loch_recording *recording, uint64_t time, uint64_t address, uint64_t bytes, uint32_t tag)
{
    const loch_recording_event event = {.time_ns = time, .stack = LOCH_RECORDING_NONE};
    const loch_recording_block block = {
        .id = recording->blocks.count + 100, .bytes = bytes, .address = address, .tag = tag};
    return lochi_insight_recording_add_alloc(recording, &block, &event);
}

static void release(loch_recording *recording, uint64_t time, uint32_t block)
{
    const loch_recording_event event = {.time_ns = time, .stack = LOCH_RECORDING_NONE};
    assert_true(lochi_insight_recording_add_free(recording, block, &event) != LOCH_RECORDING_NONE);
}

static void event(loch_recording *recording, uint64_t time, loch_recording_kind kind, uint32_t subject, uint64_t value)
{
    const loch_recording_event one = {
        .time_ns = time, .kind = (uint16_t)kind, .subject = subject, .value = value, .stack = LOCH_RECORDING_NONE};
    assert_true(lochi_insight_recording_add_event(recording, &one) != LOCH_RECORDING_NONE);
}

/* Two tags, one range, a resized and a moved block, a driver call. */
static loch_recording *make_small(void)
{
    loch_recording *recording = start();
    const uint32_t weights = add_tag(recording, "weights"), cache = add_tag(recording, "cache");
    const loch_recording_range range = {
        .address = 0x10000, .bytes = 0x8000, .take_event = 0, .give_event = LOCH_RECORDING_NONE};
    assert_int_equal(lochi_insight_recording_add_range(recording, &range), 0);
    assert_int_equal(lochi_insight_recording_add_name(recording, LOCH_RECORDING_CALL, "alloc", 5), 0);
    event(recording, 1000, LOCH_RECORDED_TAKE, 0, 0x8000);
    event(recording, 1500, LOCH_RECORDED_CALL, 0, 400);
    const uint32_t one = alloc(recording, 2000, 0x10000, 0x1000, weights);
    const uint32_t two = alloc(recording, 3000, 0x11000, 0x2000, cache);
    event(recording, 4000, LOCH_RECORDED_RESIZE, two, 0x3000);
    event(recording, 5000, LOCH_RECORDED_MOVE, two, 0x14000);
    release(recording, 6000, two);
    (void)one;
    CHECK_OK(lochi_insight_recording_finish(recording));
    return recording;
}

/* --- tests --- */

static void test_columns_of_a_small_recording_are_its_events(void **state)
{
    (void)state;
    static const uint64_t most[] = {0, 0, 0, 0x1000, 0x3000, 0x4000, 0x4000, 0x1000};
    loch_recording *recording = make_small();
    test_page page;
    page_make(&page, &recording, 1, NULL);
    assert_int_equal(page_number(&page, "columns"), 8); /* before the first event, and one for each event */
    test_packed curves = page_data(&page, "data-0-curves"), bands = page_data(&page, "data-0-bands-0");
    test_column column = {0};
    uint64_t of[REPORT_BANDS] = {0}, calls_ns = 0;
    for (size_t i = 0; i < 8; i++) {
        packed_column(&curves, &column);
        assert_int_equal(column.time, i < 1 ? 0 : i < 2 ? 1000 : i < 3 ? 1500 : (i - 1) * 1000);
        assert_int_equal(column.moment, i);
        assert_int_equal(column.most, most[i]);
        assert_int_equal(column.least, most[i]);
        assert_int_equal(column.last, most[i]);
        assert_int_equal(column.reserved, i ? 0x8000 : 0);
        assert_int_equal(column.blocks, i < 3 ? 0 : i == 3 || i == 7 ? 1 : 2);
        assert_int_equal(packed_bands(&bands, of, 2), most[i]);
        if (i == 5) assert_int_equal(of[0], 0x3000); /* the cache is the heavier tag */
        if (i == 5) assert_int_equal(of[1], 0x1000);
        calls_ns += column.call_ns;
    }
    assert_int_equal(curves.at, curves.bytes);
    assert_int_equal(bands.at, bands.bytes);
    assert_int_equal(calls_ns, 400);
    assert_non_null(strstr(page.text, "\"bands\":[\"cache\",\"weights\"]"));
    assert_int_equal(page_number(&page, "peak"), 0x4000);
    assert_int_equal(page_number(&page, "peakMoment"), 5);
    assert_int_equal(page_number(&page, "peakTime"), 4000);
    assert_int_equal(page_number(&page, "atEnd"), 0x1000);
    free(curves.data);
    free(bands.data);
    page_free(&page);
    loch_recording_destroy(recording);
}

static void test_a_block_that_is_resized_and_moved_has_three_lives(void **state)
{
    (void)state;
    static const struct {
        uint64_t begin, length, address, bytes, flags;
    } expected[] = {{2, 0, 0x10000, 0x1000, 0},
                    {3, 2, 0x11000, 0x2000, 0},
                    {4, 2, 0x11000, 0x3000, 4},
                    {5, 2, 0x14000, 0x3000, 12}};
    loch_recording *recording = make_small();
    test_page page;
    page_make(&page, &recording, 1, NULL);
    assert_int_equal(page_number(&page, "lives"), 4);
    test_packed lives = page_data(&page, "data-0-lives"), ranges = page_data(&page, "data-0-ranges");
    one_life life = {0};
    for (size_t i = 0; i < 4; i++) {
        packed_life(&lives, &life);
        assert_int_equal(life.begin, expected[i].begin);
        assert_int_equal(life.length, expected[i].length);
        assert_int_equal(life.address, expected[i].address);
        assert_int_equal(life.bytes, expected[i].bytes);
        assert_int_equal(life.flags, expected[i].flags);
        assert_int_equal(life.id, i ? 101 : 100);
        assert_int_equal(life.tag, i ? 1 : 0); /* in the order of use */
        assert_int_equal(life.length_ns, i ? 1000 : 0);
    }
    assert_int_equal(lives.at, lives.bytes);
    static const uint64_t range[] = {0, 1000, 0, 0x20000, 0x8000, 0, 0, 0}; /* the address is a change: doubled */
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        assert_int_equal(packed_next(&ranges), range[i]);
    assert_int_equal(ranges.at, ranges.bytes);
    free(lives.data);
    free(ranges.data);
    page_free(&page);
    loch_recording_destroy(recording);
}

/* Returns bytes that look random. */
static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void test_columns_of_a_long_recording_keep_the_peak_and_all_sums(void **state)
{
    (void)state;
    enum { PAIRS = 200000, LIVE = 64 };
    loch_recording *recording = start();
    uint64_t seed = 7;
    uint32_t tags[12], live[LIVE];
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "tag %d", i);
        tags[i] = add_tag(recording, name);
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        const uint64_t time = (uint64_t)i * 1000 + (i > PAIRS / 2 ? 1000000000 : 0); /* a long pause in the middle */
        if (i >= LIVE) release(recording, time, live[i % LIVE]);
        live[i % LIVE] = alloc(recording, time, 0, 1 + next_random(&seed) % 100000, tags[next_random(&seed) % 12]);
    }
    CHECK_OK(lochi_insight_recording_finish(recording));
    loch_recording_info info = {.size = sizeof info};
    CHECK_OK(loch_recording_get_info(recording, &info));
    test_page page;
    page_make(&page, &recording, 1, NULL);
    const uint64_t columns = page_number(&page, "columns");
    assert_in_range(columns, 8192, REPORT_COLUMNS);
    assert_non_null(strstr(page.text, "\"other (3)\""));
    test_packed curves = page_data(&page, "data-0-curves"), bands = page_data(&page, "data-0-bands-0");
    test_column column = {0};
    uint64_t of[REPORT_BANDS] = {0}, most = 0, allocations = 0, longest = 0, before = 0;
    for (size_t i = 0; i < columns; i++) {
        packed_column(&curves, &column);
        if (column.most > most) most = column.most;
        allocations += column.allocations;
        assert_true(column.least <= column.last && column.last <= column.most);
        assert_int_equal(packed_bands(&bands, of, REPORT_BANDS), column.most);
        if (i && column.time - before > longest) longest = column.time - before;
        before = column.time;
    }
    assert_int_equal(column.last, info.live_bytes);
    assert_int_equal(most, info.peak_requested);
    assert_int_equal(allocations, PAIRS);
    assert_true(longest > 900000000); /* the pause is a column */
    free(curves.data);
    free(bands.data);
    page_free(&page);
    loch_recording_destroy(recording);
}

static void test_the_heaviest_lives_stay_and_all_of_the_peak_and_the_end(void **state)
{
    (void)state;
    enum { EXTRA = 1000, PAIRS = REPORT_LIVES + EXTRA };
    loch_recording *recording = start();
    for (uint32_t i = 0; i < PAIRS; i++) { /* one after the other, of different sizes, each for a microsecond */
        const uint32_t one = alloc(recording, (uint64_t)i * 2000, 0x1000, 1000 + (i * 7919u) % PAIRS, 0);
        release(recording, (uint64_t)i * 2000 + 1000, one);
    }
    const uint64_t end = (uint64_t)PAIRS * 2000;
    const uint32_t peak = alloc(recording, end, 0x1000, (uint64_t)1 << 30, 0); /* the peak, for no time at all */
    const uint32_t leak = alloc(recording, end, 0x1000, 1, 0);
    release(recording, end, peak);
    (void)leak;
    CHECK_OK(lochi_insight_recording_finish(recording));
    test_page page;
    page_make(&page, &recording, 1, NULL);
    assert_int_equal(page_number(&page, "lives"), REPORT_LIVES);
    assert_int_equal(page_number(&page, "livesAll"), PAIRS + 2);
    test_packed lives = page_data(&page, "data-0-lives");
    one_life life = {0};
    bool has_peak = false, has_leak = false;
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < REPORT_LIVES; i++) {
        packed_life(&lives, &life);
        if (life.bytes == 1)
            has_leak = true;
        else if (life.bytes >> 30)
            has_peak = true;
        else if (life.bytes < least)
            least = life.bytes;
    }
    assert_int_equal(lives.at, lives.bytes);
    assert_true(has_peak && has_leak);
    assert_int_equal(least, 1000 + EXTRA + 2); /* sizes are 1000 and up, each once; two places went to peak and leak */
    free(lives.data);
    page_free(&page);
    loch_recording_destroy(recording);
}

/* Stacks of the peak come before others, and the frames of all of them are limited. */
static void test_frames_of_stacks_are_limited(void **state)
{
    (void)state;
    enum { DEPTH = 64, STACKS = REPORT_FRAMES_MAX / DEPTH + 100 };
    loch_recording *recording = start();
    uint32_t frames[DEPTH];
    for (uint32_t i = 0; i < STACKS; i++) {
        char name[32];
        for (uint32_t j = 0; j < DEPTH; j++) {
            snprintf(name, sizeof name, "f%u", j ? j : 1000 + i);
            frames[j] = lochi_insight_recording_add_text(recording, name, strlen(name));
        }
        const loch_recording_event at = {.time_ns = i * UINT64_C(1000),
                                         .stack = lochi_insight_recording_add_stack(recording, frames, DEPTH)};
        const bool is_peak = i == STACKS - 1; /* the last one is the peak */
        const loch_recording_block block = {.id = i, .bytes = is_peak ? 1000000 : 100};
        release(recording, at.time_ns + 10, lochi_insight_recording_add_alloc(recording, &block, &at));
    }
    CHECK_OK(lochi_insight_recording_finish(recording));
    test_page page;
    page_make(&page, &recording, 1, NULL);
    assert_int_equal(page_number(&page, "stacksLeftOut"), 1);
    test_packed lives = page_data(&page, "data-0-lives");
    one_life life = {0};
    size_t with_stack = 0;
    for (size_t i = 0; i < STACKS; i++) {
        packed_life(&lives, &life);
        with_stack += life.stack > 0;
    }
    assert_int_equal(with_stack, REPORT_FRAMES_MAX / DEPTH);
    assert_int_equal(life.stack, 1); /* the first that got a number */
    free(lives.data);
    page_free(&page);
    loch_recording_destroy(recording);
}

static void test_names_cannot_become_scripts(void **state)
{
    (void)state;
    static const char hostile[] = "</script><script>alert(1)</script><!-- \" \\ ' & \x01 \xff\xc3";
    loch_recording *recording = start();
    uint32_t frame = lochi_insight_recording_add_text(recording, hostile, strlen(hostile));
    const loch_recording_event first = {.stack = lochi_insight_recording_add_stack(recording, &frame, 1)};
    const loch_recording_block block = {.id = 1, .bytes = 64, .tag = add_tag(recording, hostile)};
    assert_int_equal(lochi_insight_recording_add_alloc(recording, &block, &first), 0);
    alloc(recording, 5, 0, 64, 0);
    CHECK_OK(lochi_insight_recording_finish(recording));
    test_page page;
    const loch_report_options options = {
        .size = sizeof options, .title = hostile, .labels = {hostile}, .notes = {hostile}};
    page_make(&page, &recording, 1, &options);
    assert_null(strstr(page.text, "alert(1)</script>"));
    assert_null(strstr(page.text, "<script>alert"));
    assert_null(strstr(page.text, "<!-- "));
    assert_null(strstr(page.text, "\xff"));
    assert_non_null(strstr(page.text, "\\u003c/script\\u003e\\u003cscript\\u003ealert(1)"));
    assert_non_null(strstr(page.text, "<title>&#60;/script&#62;"));
    size_t scripts = 0, ends = 0;
    for (const char *at = page.text; (at = strstr(at, "<script")); at++)
        scripts++;
    for (const char *at = page.text; (at = strstr(at, "</script")); at++)
        ends++;
    assert_int_equal(scripts, ends);
    page_free(&page);
    loch_recording_destroy(recording);
}

static void test_a_window_starts_with_what_was_live_before(void **state)
{
    (void)state;
    loch_recording *recording = make_small();
    test_page page;
    const loch_report_options options = {.size = sizeof options, .begin_ns = 2500, .end_ns = 3500};
    page_make(&page, &recording, 1, &options);
    assert_int_equal(page_number(&page, "shown"), 1);
    assert_int_equal(page_number(&page, "begin"), 2500);
    assert_int_equal(page_number(&page, "end"), 3500);
    assert_int_equal(page_number(&page, "columns"), 2); /* before, and the event */
    assert_int_equal(page_number(&page, "peak"), 0x3000);
    assert_int_equal(page_number(&page, "lives"), 2);
    test_packed curves = page_data(&page, "data-0-curves");
    test_column column = {0};
    packed_column(&curves, &column);
    assert_int_equal(column.time, 2500);
    assert_int_equal(column.most, 0x1000);
    free(curves.data);
    page_free(&page);
    loch_recording_destroy(recording);
}

static void test_an_empty_recording_has_a_page(void **state)
{
    (void)state;
    loch_recording *recording = start();
    CHECK_OK(lochi_insight_recording_finish(recording));
    test_page page;
    page_make(&page, &recording, 1, NULL);
    assert_int_equal(page_number(&page, "columns"), 1);
    assert_int_equal(page_number(&page, "lives"), 0);
    page_free(&page);
    loch_recording_destroy(recording);
}

static void test_two_recordings_share_a_page(void **state)
{
    (void)state;
    loch_recording *recordings[2] = {make_small(), make_small()};
    test_page page;
    page_make(&page, recordings, 2, NULL);
    assert_non_null(strstr(page.text, "<title>program.loch and program.loch</title>"));
    test_packed first = page_data(&page, "data-0-lives"), second = page_data(&page, "data-1-lives");
    assert_int_equal(first.bytes, second.bytes);
    assert_memory_equal(first.data, second.data, first.bytes);
    free(first.data);
    free(second.data);
    page_free(&page);
    loch_recording_destroy(recordings[0]);
    loch_recording_destroy(recordings[1]);
}

static loch_status stop_at_once(double done, void *user)
{
    (void)done;
    (void)user;
    return LOCH_E_BUSY;
}

static void test_bad_input_is_refused_and_leaves_no_file(void **state)
{
    (void)state;
    loch_recording *recording = make_small();
    const loch_recording *const recordings[3] = {recording, recording, recording};
    const char *path = "/tmp/loch-report-that-is-refused.html";
    const loch_report_options backwards = {.size = sizeof backwards, .begin_ns = 5, .end_ns = 4},
                              late = {.size = sizeof late, .begin_ns = 7000}, unsized = {.title = "x"},
                              stopped = {.size = sizeof stopped, .progress = stop_at_once};
    unlink(path);
    assert_int_equal(loch_report_save(NULL, 1, path, NULL), LOCH_E_INVALID);
    assert_int_equal(loch_report_save(recordings, 0, path, NULL), LOCH_E_INVALID);
    assert_int_equal(loch_report_save(recordings, 3, path, NULL), LOCH_E_INVALID);
    assert_int_equal(loch_report_save(recordings, 1, NULL, NULL), LOCH_E_INVALID);
    assert_int_equal(loch_report_save(recordings, 1, path, &backwards), LOCH_E_INVALID);
    assert_int_equal(loch_report_save(recordings, 1, path, &late), LOCH_E_INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "7000"));
    assert_int_equal(loch_report_save(recordings, 1, path, &unsized), LOCH_E_INVALID);
    assert_int_equal(loch_report_save(recordings, 1, path, &stopped), LOCH_E_BUSY);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(loch_report_save(recordings, 1, "/no/such/folder/report.html", NULL), LOCH_E_IO);
    loch_recording_destroy(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_of_a_small_recording_are_its_events),
        cmocka_unit_test(test_a_block_that_is_resized_and_moved_has_three_lives),
        cmocka_unit_test(test_columns_of_a_long_recording_keep_the_peak_and_all_sums),
        cmocka_unit_test(test_the_heaviest_lives_stay_and_all_of_the_peak_and_the_end),
        cmocka_unit_test(test_frames_of_stacks_are_limited),
        cmocka_unit_test(test_names_cannot_become_scripts),
        cmocka_unit_test(test_a_window_starts_with_what_was_live_before),
        cmocka_unit_test(test_an_empty_recording_has_a_page),
        cmocka_unit_test(test_two_recordings_share_a_page),
        cmocka_unit_test(test_bad_input_is_refused_and_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

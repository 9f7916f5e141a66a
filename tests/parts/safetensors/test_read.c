/* SPDX-License-Identifier: MIT */
/* Loads that read the file: long runs by several threads, files that change, and many threads on one file. */
#include "safetensors_fixture.h"

#define LONG_BYTES ((40 << 20) + 5)

/* A file with one long tensor of bytes, at an odd place. */
static loch_safetensors *open_long(loch_access access)
{
    char header[200];
    loch_safetensors *file;
    const loch_safetensors_options options = {.size = sizeof options, .access = access};
    char *data = malloc(LONG_BYTES);
    assert_non_null(data);
    test_pattern_write(data, LONG_BYTES, 7);
    snprintf(header, sizeof header, "{\"long\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", LONG_BYTES,
             LONG_BYTES);
    fixture_make(fixture_path, header, strlen(header), data, LONG_BYTES);
    free(data);
    CHECK_OK(loch_safetensors_open(fixture_path, &options, &file));
    return file;
}

static void expect_long(loch_tensor *tensor, size_t bytes)
{
    void *at;
    CHECK_OK(loch_tensor_get_address(tensor, &at));
    assert_int_equal(loch_tensor_get_bytes(tensor), bytes);
    assert_int_equal(test_pattern_differs(at, bytes, 7), bytes);
}

static void long_runs_are_read_whole(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 2 << 20, (2 << 20) + 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 33 << 20};
    loch_safetensors *file = open_long(LOCH_READ_ONLY);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const loch_safetensors_load_options options = {.size = sizeof options, .count = counts[i]};
        loch_tensor *tensor;
        CHECK_OK(loch_safetensors_load(file, "long", &options, &tensor));
        expect_long(tensor, counts[i] ? (size_t)counts[i] : LONG_BYTES);
        loch_tensor_release(tensor);
    }
    loch_safetensors_close(file);
}

/* Loads see the file, not what the program wrote to the private pages of a view. */
static void loads_see_the_file(void **state)
{
    (void)state;
    loch_safetensors *file = open_long(LOCH_READ_WRITE);
    loch_tensor *view, *loaded, *halves;
    CHECK_OK(loch_safetensors_acquire_tensor(file, "long", &view));
    CHECK_OK(loch_tensor_fill(view, loch_scalar_of(3), NULL));
    CHECK_OK(loch_safetensors_load(file, "long", NULL, &loaded));
    expect_long(loaded, LONG_BYTES);
    const loch_safetensors_load_options options = {.size = sizeof options, .count = 1000, .dtype = LOCH_I16};
    CHECK_OK(loch_safetensors_load(file, "long", &options, &halves)); /* by the mapping */
    int16_t seen[1000];
    unsigned char wanted[1000];
    CHECK_OK(loch_tensor_read(halves, seen, sizeof seen, NULL));
    test_pattern_write(wanted, sizeof wanted, 7);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(seen[i], wanted[i]);
    loch_tensor_release(halves);
    loch_tensor_release(loaded);
    loch_tensor_release(view);
    loch_safetensors_close(file);
}

/* A file that becomes shorter while it is open: a load into host memory fails, and the program goes on. */
static void a_shortened_file_is_an_error_of_a_load(void **state)
{
    (void)state;
    loch_safetensors *file = open_long(LOCH_READ_ONLY);
    loch_tensor *tensor = TEST_UNTOUCHED;
    assert_int_equal(truncate(fixture_path, 20 << 20), 0);
    CHECK_FAILS(loch_safetensors_load(file, "long", NULL, &tensor), CORRUPT);
    CHECK_SAYS("became shorter while it was open: it ends at byte");
    assert_null(tensor);
    const loch_safetensors_load_options options = {.size = sizeof options, .count = 1 << 20};
    CHECK_OK(loch_safetensors_load(file, "long", &options, &tensor));
    expect_long(tensor, 1 << 20);
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
}

/* --- threads --- */

#define THREADS 4

typedef struct reader {
    const loch_safetensors *file;
    loch_tensor *shared; /* a view that all threads hold */
    int number;
    bool is_right;
} reader;

static void *read_in_thread(void *user)
{
    reader *r = user;
    loch_tensor *tensor, *view;
    void *at;
    loch_safetensors_info info = {.size = sizeof info};
    r->is_right = true;
    for (int i = 0; i < 5 && r->is_right; i++) {
        const loch_safetensors_load_options options = {.size = sizeof options, .count = (17 << 20) + r->number};
        const size_t bytes = (size_t)options.count;
        r->is_right = loch_safetensors_find(r->file, "long", &info) == LOCH_OK && info.bytes == LONG_BYTES &&
                      loch_safetensors_load(r->file, "long", &options, &tensor) == LOCH_OK;
        if (!r->is_right) break;
        r->is_right = loch_tensor_get_address(tensor, &at) == LOCH_OK && test_pattern_differs(at, bytes, 7) == bytes &&
                      loch_safetensors_acquire_tensor(r->file, "long", &view) == LOCH_OK;
        loch_tensor_release(tensor);
        if (!r->is_right) break;
        r->is_right = loch_tensor_get_buffer(view) == loch_tensor_get_buffer(r->shared);
        loch_tensor_release(view);
    }
    return NULL;
}

static void threads_share_a_file(void **state)
{
    (void)state;
    loch_safetensors *file = open_long(LOCH_READ_ONLY);
    reader readers[THREADS];
    loch_tensor *view;
    CHECK_OK(loch_safetensors_acquire_tensor(file, "long", &view));
    for (int i = 0; i < THREADS; i++)
        readers[i] = (reader){.file = file, .shared = view, .number = i};
    test_threads_run(read_in_thread, readers, sizeof *readers, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_true(readers[i].is_right);
    loch_tensor_release(view);
    loch_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(long_runs_are_read_whole),
        FIXTURE_TEST(loads_see_the_file),
        FIXTURE_TEST(a_shortened_file_is_an_error_of_a_load),
        FIXTURE_TEST(threads_share_a_file),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}

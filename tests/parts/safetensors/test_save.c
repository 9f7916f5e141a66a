/* SPDX-License-Identifier: MIT */
/* Files that are written: their bytes, and how they take the place of others. */
#include "safetensors_fixture.h"

static loch_tensor *make(loch_dtype dtype, size_t elements)
{
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(dtype, LOCH_SHAPE((int64_t)elements), NULL, &tensor));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(1), NULL));
    return tensor;
}

static size_t read_file(const char *path, char *to, size_t room)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t got = fread(to, 1, room, file);
    assert_true(got < room);
    fclose(file);
    return got;
}

/* The bytes are those that the format's own library (0.8.0, from Python) writes for these tensors. */
static void the_bytes_are_those_of_the_format(void **state)
{
    (void)state;
    static const char expected[] = "\0\1\0\0\0\0\0\0{\"__metadata__\":{\"x\\\"y\":\"\xc3\xa9\\n\\u0001\"},"
                                   "\"c/\xc3\xbc\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                   "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
                                   "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]},"
                                   "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[19,19]}} "
                                   "\1\0\0\0\0\0\0\0\0\0\x80?\0\0\x80?\1\1\1";
    static const char *const names[] = {"z", "b", "a", "c/\xc3\xbc"}, *keys[] = {"x\"y"}, *values[] = {"\xc3\xa9\n\1"};
    loch_tensor *tensors[] = {make(LOCH_U8, 0), make(LOCH_F32, 2), make(LOCH_U8, 3), NULL}, *row = make(LOCH_I64, 1);
    const loch_safetensors_save_options options = {
        .size = sizeof options, .metadata_keys = keys, .metadata_values = values, .metadata_count = 1};
    CHECK_OK(loch_tensor_index(row, 0, 0, &tensors[3]));
    CHECK_OK(loch_safetensors_save(fixture_path, names, tensors, 4, &options));
    char bytes[400];
    assert_int_equal(read_file(fixture_path, bytes, sizeof bytes), sizeof expected - 1);
    assert_memory_equal(bytes, expected, sizeof expected - 1);
    for (int i = 0; i < 4; i++)
        loch_tensor_release(tensors[i]);
    loch_tensor_release(row);
}

static void every_type_comes_back(void **state)
{
    (void)state;
    enum { COUNT = LOCH_DTYPE_COUNT - 1 };
    const char *names[COUNT];
    loch_tensor *tensors[COUNT], *back;
    loch_safetensors *file;
    for (int i = 0; i < COUNT; i++) {
        names[i] = loch_dtype_name((loch_dtype)(i + 1));
        tensors[i] = make((loch_dtype)(i + 1), 5);
    }
    CHECK_OK(loch_safetensors_save(fixture_path, names, tensors, COUNT, NULL));
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    for (int i = 0; i < COUNT; i++) {
        char bytes[2][40];
        CHECK_OK(loch_safetensors_acquire_tensor(file, names[i], &back));
        assert_int_equal(loch_tensor_get_dtype(back), i + 1);
        assert_int_equal(loch_tensor_get_offset(back) % loch_dtype_bytes((loch_dtype)(i + 1)), 0); /* aligned: a view */
        CHECK_OK(loch_tensor_read(back, bytes[0], loch_tensor_get_bytes(back), NULL));
        CHECK_OK(loch_tensor_read(tensors[i], bytes[1], loch_tensor_get_bytes(back), NULL));
        assert_memory_equal(bytes[0], bytes[1], loch_tensor_get_bytes(back));
        loch_tensor_release(back);
        loch_tensor_release(tensors[i]);
    }
    loch_safetensors_close(file);
}

/* A file that is mapped may be replaced, also by its own tensors. */
static void a_file_replaces_itself(void **state)
{
    (void)state;
    static const char *const names[] = {"a"};
    loch_tensor *tensor = make(LOCH_I32, 1000), *back;
    loch_safetensors *file;
    struct stat about;
    CHECK_OK(loch_safetensors_save(fixture_path, names, &tensor, 1, NULL));
    loch_tensor_release(tensor);
    assert_int_equal(chmod(fixture_path, 0640), 0);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    CHECK_OK(loch_safetensors_acquire_tensor(file, "a", &tensor));
    CHECK_OK(loch_safetensors_save(fixture_path, names, &tensor, 1, NULL));
    loch_safetensors_close(file);
    assert_int_equal(stat(fixture_path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    CHECK_OK(loch_safetensors_acquire_tensor(file, "a", &back));
    int32_t numbers[2][1000];
    CHECK_OK(loch_tensor_read(tensor, numbers[0], sizeof numbers[0], NULL));
    CHECK_OK(loch_tensor_read(back, numbers[1], sizeof numbers[1], NULL));
    assert_memory_equal(numbers[0], numbers[1], sizeof numbers[0]);
    assert_int_equal(numbers[0][999], 1);
    loch_tensor_release(tensor);
    loch_tensor_release(back);
    loch_safetensors_close(file);
    assert_int_equal(fixture_clear(), 1); /* no temporary file is left */
}

static void links_are_followed(void **state)
{
    (void)state;
    static const char *const names[] = {"a"};
    loch_tensor *tensor = make(LOCH_U8, 1);
    char link[128];
    struct stat about;
    snprintf(link, sizeof link, "%s/link", fixture_folder);
    assert_int_equal(symlink("a.safetensors", link), 0);
    for (int i = 0; i < 2; i++) { /* a link to nothing, then to a file */
        CHECK_OK(loch_safetensors_save(link, names, &tensor, 1, NULL));
        assert_int_equal(lstat(link, &about), 0);
        assert_true(S_ISLNK(about.st_mode));
        assert_int_equal(lstat(fixture_path, &about), 0);
        assert_true(S_ISREG(about.st_mode) && about.st_size > 8);
    }
    loch_tensor_release(tensor);
}

static void wrong_saves_are_refused(void **state)
{
    (void)state;
    loch_tensor *tensors[] = {make(LOCH_U8, 1), make(LOCH_U8, 1)}, *none[] = {NULL};
    const char *names[] = {"a", "a"}, *null[] = {NULL}, *reserved[] = {"__metadata__"}, *latin[] = {"\xe9"};
    const char *keys[] = {"k", "k"}, *values[] = {"1", "2"};
    loch_safetensors_save_options options = {.size = sizeof options, .metadata_keys = keys, .metadata_count = 2};
    CHECK_FAILS(loch_safetensors_save(NULL, names, tensors, 1, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_save(fixture_path, NULL, tensors, 1, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, NULL, 1, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, none, 1, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_save(fixture_path, null, tensors, 1, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_save(fixture_path, reserved, tensors, 1, NULL), INVALID);
    CHECK_SAYS("which the format reserves");
    CHECK_FAILS(loch_safetensors_save(fixture_path, latin, tensors, 1, NULL), INVALID);
    CHECK_SAYS("is not UTF-8");
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, tensors, 2, NULL), INVALID);
    CHECK_SAYS("two tensors for");
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, tensors, 1, &options), INVALID);
    options.metadata_values = values;
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, tensors, 1, &options), INVALID);
    CHECK_SAYS("has the key \"k\" twice");
    keys[1] = "\xc0";
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, tensors, 1, &options), INVALID);
    keys[1] = "l";
    values[1] = NULL;
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, tensors, 1, &options), INVALID);
    options.size = 0;
    CHECK_FAILS(loch_safetensors_save(fixture_path, names, tensors, 1, &options), INVALID);
    CHECK_FAILS(loch_safetensors_save(fixture_folder, names, tensors, 1, NULL), IO);
    CHECK_FAILS(loch_safetensors_save("", names, tensors, 1, NULL), IO);
    CHECK_FAILS(loch_safetensors_save("/dev/null/a", names, tensors, 1, NULL), IO);
    CHECK_FAILS(loch_safetensors_save("/tmp/loch-no-such-folder/a", names, tensors, 1, NULL), IO);
    CHECK_FAILS(loch_safetensors_save("/dev/full", names, tensors, 1, NULL), IO);
    CHECK_SAYS("/dev/full cannot be written");
    assert_int_equal(fixture_clear(), 0); /* nothing was written */
    loch_tensor_release(tensors[0]);
    loch_tensor_release(tensors[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(the_bytes_are_those_of_the_format),
        FIXTURE_TEST(every_type_comes_back),
        FIXTURE_TEST(a_file_replaces_itself),
        FIXTURE_TEST(links_are_followed),
        FIXTURE_TEST(wrong_saves_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}

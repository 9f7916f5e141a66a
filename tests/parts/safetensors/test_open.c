/* SPDX-License-Identifier: MIT */
/* Files that are opened: what is in them, and their tensors. */
#include "safetensors_fixture.h"

static const char example[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"\\u00e4\\n\":\"\\ud83d\\ude00 \\\"\\/\"},"
    "\"late\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
    " \"scalar\" : { \"shape\" : [ ] , \"data_offsets\" : [ 0 , 8 ] , \"dtype\" : \"I64\" } ,\n"
    "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":[32,32]},"
    "\"bytes\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[32,35],\"more\":[{\"a\":[1.5e3,null,true]},\"x\"]}}   "
    "  ";

static loch_safetensors *open_example(loch_access access)
{
    loch_safetensors *file;
    const loch_safetensors_options options = {.size = sizeof options, .access = access};
    char *padded = strdup(example);
    padded[strlen(padded) - strlen(padded) % 8] = '\0'; /* aligned */
    fixture_make_counted(fixture_path, padded, 35);
    free(padded);
    CHECK_OK(loch_safetensors_open(fixture_path, &options, &file));
    return file;
}

static loch_status collect_names(const loch_safetensors_info *info, void *user)
{
    assert_int_equal(info->size, sizeof *info);
    strcat(strcat(user, info->name), " ");
    return LOCH_OK;
}

static loch_status stop_at_late(const loch_safetensors_info *info, void *user)
{
    ++*(int *)user;
    return strcmp(info->name, "late") == 0 ? LOCH_E_CANCELLED : LOCH_OK;
}

static loch_status collect_metadata(const char *key, const char *value, void *user)
{
    strcat(strcat(strcat(strcat(user, key), "="), value), ";");
    return LOCH_OK;
}

static void contents_are_told(void **state)
{
    (void)state;
    loch_safetensors *file = open_example(LOCH_READ_ONLY);
    char names[100] = "", metadata[100] = "";
    int visited = 0;
    assert_int_equal(fixture_count(file), 4);
    CHECK_OK(loch_safetensors_walk(file, collect_names, names));
    assert_string_equal(names, "scalar late empty bytes ");
    CHECK_STATUS(loch_safetensors_walk(file, stop_at_late, &visited), LOCH_E_CANCELLED);
    assert_int_equal(visited, 2);
    CHECK_OK(loch_safetensors_walk_metadata(file, collect_metadata, metadata));
    assert_string_equal(metadata, "format=pt;\xc3\xa4\n=\xf0\x9f\x98\x80 \"/;");
    assert_string_equal(loch_safetensors_get_metadata(file, "format"), "pt");
    assert_string_equal(loch_safetensors_get_metadata(file, "\xc3\xa4\n"), "\xf0\x9f\x98\x80 \"/");
    assert_null(loch_safetensors_get_metadata(file, "forma"));
    assert_null(loch_safetensors_get_metadata(NULL, "format"));
    loch_safetensors_close(file);
}

static void tensors_are_found_by_name(void **state)
{
    (void)state;
    loch_safetensors *file = open_example(LOCH_READ_ONLY);
    loch_safetensors_info info = {.size = sizeof info}, old = {.size = offsetof(loch_safetensors_info, dtype)};
    CHECK_OK(loch_safetensors_find(file, "late", &info));
    assert_string_equal(info.name, "late");
    assert_string_equal(info.type, "F32");
    assert_int_equal(info.dtype, LOCH_F32);
    assert_int_equal(info.dimensions, 2);
    assert_int_equal(info.shape[0], 2);
    assert_int_equal(info.shape[1], 3);
    assert_int_equal(info.bytes, 24);
    assert_string_equal(info.path, fixture_path);
    struct stat about;
    assert_int_equal(stat(fixture_path, &about), 0);
    assert_int_equal(info.offset, (uint64_t)about.st_size - 35 + 8);
    old.dtype = LOCH_BOOL;
    CHECK_OK(loch_safetensors_find(file, "late", &old)); /* an older program */
    assert_string_equal(old.type, "F32");
    assert_int_equal(old.dtype, LOCH_BOOL);
    CHECK_FAILS(loch_safetensors_find(file, "lat", &info), NOT_FOUND);
    CHECK_SAYS("has no tensor \"lat\" among its 4");
    info.size = 0;
    CHECK_FAILS(loch_safetensors_find(file, "late", &info), INVALID);
    loch_safetensors_close(file);
}

static void tensors_are_views_of_the_mapping(void **state)
{
    (void)state;
    loch_safetensors *file = open_example(LOCH_READ_ONLY);
    loch_tensor *late, *scalar, *empty, *bytes;
    void *late_at, *scalar_at;
    CHECK_OK(loch_safetensors_acquire_tensor(file, "late", &late));
    CHECK_OK(loch_safetensors_acquire_tensor(file, "scalar", &scalar));
    CHECK_OK(loch_safetensors_acquire_tensor(file, "empty", &empty));
    CHECK_OK(loch_safetensors_acquire_tensor(file, "bytes", &bytes));
    loch_safetensors_close(file); /* the tensors hold the mapping */
    assert_ptr_equal(loch_tensor_get_buffer(late), loch_tensor_get_buffer(scalar));
    CHECK_OK(loch_tensor_get_address(late, &late_at));
    CHECK_OK(loch_tensor_get_address(scalar, &scalar_at));
    assert_ptr_equal(late_at, (char *)scalar_at + 8);
    for (unsigned char i = 0; i < 35; i++)
        assert_int_equal(((unsigned char *)scalar_at)[i], i);
    assert_int_equal(loch_tensor_get_dimensions(scalar), 0);
    assert_int_equal(loch_tensor_get_elements(empty), 0);
    assert_int_equal(loch_tensor_get_size(empty, 1), 4);
    assert_int_equal(loch_tensor_get_dtype(empty), LOCH_F16);
    assert_int_equal(loch_tensor_get_access(late), LOCH_READ_ONLY);
    CHECK_FAILS(loch_tensor_fill(late, loch_scalar_of(1), NULL), INVALID);
    loch_tensor_release(late);
    loch_tensor_release(scalar);
    loch_tensor_release(empty);
    loch_tensor_release(bytes);
}

static void writes_never_reach_the_file(void **state)
{
    (void)state;
    loch_safetensors *file = open_example(LOCH_READ_WRITE);
    loch_tensor *tensor;
    CHECK_OK(loch_safetensors_acquire_tensor(file, "bytes", &tensor));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(200), NULL));
    unsigned char seen[3];
    CHECK_OK(loch_tensor_read(tensor, seen, sizeof seen, NULL));
    assert_int_equal(seen[2], 200);
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    CHECK_OK(loch_safetensors_acquire_tensor(file, "bytes", &tensor));
    CHECK_OK(loch_tensor_read(tensor, seen, sizeof seen, NULL));
    assert_int_equal(seen[2], 34);
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
}

static void all_types_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        loch_dtype dtype;
    } types[] = {{"BOOL", LOCH_BOOL},      {"U8", LOCH_U8},   {"I8", LOCH_I8},   {"F8_E5M2", LOCH_F8E5M2},
                 {"F8_E4M3", LOCH_F8E4M3}, {"I16", LOCH_I16}, {"U16", LOCH_U16}, {"F16", LOCH_F16},
                 {"BF16", LOCH_BF16},      {"I32", LOCH_I32}, {"U32", LOCH_U32}, {"F32", LOCH_F32},
                 {"F64", LOCH_F64},        {"I64", LOCH_I64}, {"U64", LOCH_U64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[100];
        loch_safetensors *file;
        loch_tensor *tensor;
        const size_t bytes = 2 * loch_dtype_bytes(types[i].dtype);
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%zu]}}",
                 types[i].name, bytes);
        fixture_make_counted(fixture_path, header, bytes);
        CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
        CHECK_OK(loch_safetensors_acquire_tensor(file, "x", &tensor));
        assert_int_equal(loch_tensor_get_dtype(tensor), types[i].dtype);
        unsigned char seen[16];
        CHECK_OK(loch_tensor_read(tensor, seen, bytes, NULL));
        for (size_t j = 0; j < bytes; j++)
            assert_int_equal(seen[j], j);
        loch_tensor_release(tensor);
        loch_safetensors_close(file);
    }
}

/* A tensor that Loch cannot have is refused when it is asked for, and the others of its file are not. */
static void foreign_types_are_refused_when_asked_for(void **state)
{
    (void)state;
    loch_safetensors *file;
    loch_tensor *tensor = TEST_UNTOUCHED;
    loch_safetensors_info info = {.size = sizeof info};
    fixture_make_counted(
        fixture_path,
        "{\"four\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]},"
        "\"six\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[3,6]},"
        "\"complex\":{\"dtype\":\"C64\",\"shape\":[],\"data_offsets\":[6,14]},"
        "\"future\":{\"dtype\":\"Q3_K\",\"shape\":[100],\"data_offsets\":[14,15]},"
        "\"deep\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
        "\"data_offsets\":[15,16]},\"good\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[16,17]}}",
        17);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, "four", &tensor), UNSUPPORTED);
    CHECK_SAYS("\"four\" has the type F4, which Loch lacks");
    assert_null(tensor);
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, "six", &tensor), UNSUPPORTED);
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, "complex", &tensor), UNSUPPORTED);
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, "future", &tensor), UNSUPPORTED);
    CHECK_SAYS("Q3_K");
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, "deep", &tensor), UNSUPPORTED);
    CHECK_SAYS("has 17 dimensions; a tensor has at most 16");
    CHECK_OK(loch_safetensors_find(file, "future", &info));
    assert_int_equal(info.dtype, LOCH_DTYPE_NONE);
    assert_int_equal(info.bytes, 1);
    CHECK_OK(loch_safetensors_find(file, "deep", &info));
    assert_int_equal(info.dimensions, 17);
    assert_int_equal(info.shape[16], 1);
    CHECK_OK(loch_safetensors_acquire_tensor(file, "good", &tensor));
    loch_tensor_release(tensor);
    loch_safetensors_close(file);
}

/* The format does not ask for alignment: a tensor at an odd place is copied. */
static void tensors_may_lie_anywhere(void **state)
{
    (void)state;
    char header[128] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[1,17]}}";
    for (int pad = 0; pad < 8; pad++, strcat(header, " ")) {
        loch_safetensors *file;
        loch_tensor *tensor;
        unsigned char seen[16];
        void *address;
        fixture_make_counted(fixture_path, header, 17);
        CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
        CHECK_OK(loch_safetensors_acquire_tensor(file, "b", &tensor));
        loch_safetensors_close(file);
        CHECK_OK(loch_tensor_get_address(tensor, &address));
        assert_int_equal((uintptr_t)address % 4, 0);
        CHECK_OK(loch_tensor_read(tensor, seen, sizeof seen, NULL));
        for (size_t i = 0; i < sizeof seen; i++)
            assert_int_equal(seen[i], i + 1);
        loch_tensor_release(tensor);
    }
}

static void a_file_without_tensors_is_a_file(void **state)
{
    (void)state;
    loch_safetensors *file;
    static const char *const headers[] = {"{}", "{  }  \n", "{\"__metadata__\":null}", "{\"__metadata__\":{}}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        fixture_make_counted(fixture_path, headers[i], 0);
        CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
        assert_int_equal(fixture_count(file), 0);
        assert_null(loch_safetensors_get_metadata(file, "a"));
        loch_safetensors_info info = {.size = sizeof info};
        CHECK_FAILS(loch_safetensors_find(file, "", &info), NOT_FOUND);
        loch_safetensors_close(file);
    }
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    loch_safetensors *file = TEST_UNTOUCHED;
    loch_tensor *tensor;
    loch_safetensors_options options = {.size = sizeof options, .access = (loch_access)7};
    CHECK_FAILS(loch_safetensors_open(NULL, NULL, &file), INVALID);
    assert_null(file);
    CHECK_FAILS(loch_safetensors_open(fixture_path, NULL, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_open(fixture_path, &options, &file), INVALID);
    options.size = 0;
    CHECK_FAILS(loch_safetensors_open(fixture_path, &options, &file), INVALID);
    CHECK_FAILS(loch_safetensors_open(fixture_path, NULL, &file), NOT_FOUND);
    CHECK_SAYS(fixture_path);
    CHECK_FAILS(loch_safetensors_open(fixture_folder, NULL, &file), UNSUPPORTED);
    assert_int_equal(mkfifo(fixture_path, 0600), 0); /* opening it must not wait for a writer */
    CHECK_FAILS(loch_safetensors_open(fixture_path, NULL, &file), UNSUPPORTED);
    fixture_clear();
    loch_safetensors_close(NULL);
    CHECK_FAILS(loch_safetensors_acquire_tensor(NULL, "a", &tensor), INVALID);
    CHECK_FAILS(loch_safetensors_walk(NULL, collect_names, NULL), INVALID);
    file = open_example(LOCH_READ_ONLY);
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, NULL, &tensor), INVALID);
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, "late", NULL), INVALID);
    CHECK_FAILS(loch_safetensors_acquire_tensor(file, "none", &tensor), NOT_FOUND);
    CHECK_FAILS(loch_safetensors_walk(file, NULL, NULL), INVALID);
    CHECK_FAILS(loch_safetensors_walk_metadata(file, NULL, NULL), INVALID);
    loch_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(contents_are_told),
        FIXTURE_TEST(tensors_are_found_by_name),
        FIXTURE_TEST(tensors_are_views_of_the_mapping),
        FIXTURE_TEST(writes_never_reach_the_file),
        FIXTURE_TEST(all_types_are_known),
        FIXTURE_TEST(foreign_types_are_refused_when_asked_for),
        FIXTURE_TEST(tensors_may_lie_anywhere),
        FIXTURE_TEST(a_file_without_tensors_is_a_file),
        FIXTURE_TEST(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}

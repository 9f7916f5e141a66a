/* SPDX-License-Identifier: MIT */
/* Models in several files, opened by their index. */
#include "safetensors_fixture.h"

static char index_path[96];

static void write_file(const char *name, const char *header, size_t data_bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fixture_folder, name);
    fixture_make_counted(path, header, data_bytes);
}

static void write_index(const char *text)
{
    snprintf(index_path, sizeof index_path, "%s/model.index", fixture_folder);
    fixture_write(index_path, text, strlen(text));
}

static void write_files(void)
{
    write_file("one",
               "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"
               "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
               6);
    write_file("two",
               "{\"c\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
               "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}",
               4);
}

static loch_status collect(const loch_safetensors_info *info, void *user)
{
    const char *name = strrchr(info->path, '/') + 1;
    strcat(strcat(strcat(strcat(user, name), ":"), info->name), " ");
    return LOCH_OK;
}

static loch_status collect_metadata(const char *key, const char *value, void *user)
{
    strcat(strcat(strcat(strcat(user, key), "="), value), ";");
    return LOCH_OK;
}

static void many_files_look_like_one(void **state)
{
    (void)state;
    loch_safetensors *model;
    loch_tensor *tensor;
    char seen[100] = "", metadata[100] = "";
    unsigned char bytes[3];
    write_files();
    write_index(" {\"metadata\":{\"total_size\":  12345 ,\"x\":{\"y\":[1,2]},\"w\":true,\"by\":\"loch\",\"n\":-1.5e3},"
                "\"other\":[{}],\"weight_map\":{\"c\":\"two\",\"a\":\"one\",\"b\":\"one\"}}\n");
    CHECK_OK(loch_safetensors_open(index_path, NULL, &model));
    assert_int_equal(fixture_count(model), 3);
    CHECK_OK(loch_safetensors_walk(model, collect, seen));
    assert_string_equal(seen, "one:b one:a two:c "); /* the `a` of the second file is not in the index */
    CHECK_OK(loch_safetensors_walk_metadata(model, collect_metadata, metadata));
    assert_string_equal(metadata, "total_size=12345;by=loch;n=-1.5e3;");
    assert_string_equal(loch_safetensors_get_metadata(model, "total_size"), "12345");
    assert_null(loch_safetensors_get_metadata(model, "x"));
    CHECK_OK(loch_safetensors_acquire_tensor(model, "a", &tensor));
    CHECK_OK(loch_tensor_read(tensor, bytes, 2, NULL));
    assert_int_equal(bytes[1], 5);
    loch_tensor_release(tensor);
    CHECK_OK(loch_safetensors_acquire_tensor(model, "c", &tensor));
    loch_safetensors_close(model);
    CHECK_OK(loch_tensor_read(tensor, bytes, 3, NULL));
    assert_int_equal(bytes[2], 2);
    loch_tensor_release(tensor);
}

/* A path without a folder names files of the present one. */
static void an_index_lies_beside_its_files(void **state)
{
    (void)state;
    loch_safetensors *model;
    char before[4096];
    write_files();
    write_index("{\"weight_map\":{\"c\":\"two\"}}");
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(fixture_folder), 0);
    const loch_status status = loch_safetensors_open("model.index", NULL, &model);
    assert_int_equal(chdir(before), 0);
    CHECK_OK(status);
    loch_safetensors_close(model);
    write_index("{\"weight_map\":{}}");
    CHECK_OK(loch_safetensors_open(index_path, NULL, &model));
    assert_int_equal(fixture_count(model), 0);
    loch_safetensors_close(model);
}

static const struct {
    const char *index, *says;
    loch_status status;
} cases[] = {
    {"{\"weight_map\":{\"a\":\"one\"}", "is wrong at byte 25: the text ends too early", LOCH_E_CORRUPT},
    {"{\"weights\":{}}", "there is no \"weight_map\"", LOCH_E_CORRUPT},
    {"{\"weight_map\":[]}", "\"weight_map\" is not an object", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":1}}", "text is expected", LOCH_E_CORRUPT},
    {"{\"weight_map\":{},\"weight_map\":{}}", "a second \"weight_map\"", LOCH_E_CORRUPT},
    {"{\"metadata\":{},\"metadata\":{},\"weight_map\":{}}", "a second \"metadata\"", LOCH_E_CORRUPT},
    {"{\"metadata\":7,\"weight_map\":{}}", "\"metadata\" is not an object", LOCH_E_CORRUPT},
    {"{\"metadata\":{\"a\":1,\"a\":2},\"weight_map\":{}}", "has the key \"a\" twice", LOCH_E_CORRUPT},
    {"{\"metadata\":{\"a\":01},\"weight_map\":{}}", "a number begins with 0", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"three\"}}", "three", LOCH_E_NOT_FOUND},
    {"{\"weight_map\":{\"c\":\"one\"}}", "says that \"c\" is in one, which lacks it", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"one\",\"a\":\"one\"}}", "names \"a\" twice", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"one\",\"a\":\"two\"}}", "names \"a\" twice", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"../one\"}}", "which is not a file beside it", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "which is not a file beside it", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"..\"}}", "which is not a file beside it", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"\"}}", "which is not a file beside it", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"bad\"}}", "a header of", LOCH_E_CORRUPT},
    {"{\"weight_map\":{\"a\":\"model.index\"}}", "a header of", LOCH_E_CORRUPT}, /* no index inside an index */
    {"{\"weight_map\":{}} x", "there is text behind the end", LOCH_E_CORRUPT},
    {"{ \xff           }", "not UTF-8", LOCH_E_CORRUPT},
};

static void wrong_indexes_are_refused(void **state)
{
    (void)state;
    char path[128];
    write_files();
    snprintf(path, sizeof path, "%s/bad", fixture_folder);
    fixture_write(path, "this is no file of tensors", 26);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loch_safetensors *model = TEST_UNTOUCHED;
        write_index(cases[i].index);
        CHECK_FAILS_SET(loch_safetensors_open(index_path, NULL, &model), 1u << cases[i].status);
        assert_null(model);
        CHECK_SAYS(cases[i].says);
    }
}

/* A header of 123 bytes begins with the byte of '{' and is no index. */
static void a_length_that_looks_like_a_bracket_is_a_length(void **state)
{
    (void)state;
    char header[124] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    memset(header + strlen(header), ' ', 123 - strlen(header));
    loch_safetensors *file;
    fixture_make_counted(fixture_path, header, 1);
    CHECK_OK(loch_safetensors_open(fixture_path, NULL, &file));
    assert_int_equal(fixture_count(file), 1);
    loch_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(many_files_look_like_one),
        FIXTURE_TEST(an_index_lies_beside_its_files),
        FIXTURE_TEST(wrong_indexes_are_refused),
        FIXTURE_TEST(a_length_that_looks_like_a_bracket_is_a_length),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}

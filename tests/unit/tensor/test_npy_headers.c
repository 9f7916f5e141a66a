/* SPDX-License-Identifier: MIT */
/* Headers of .npy files: every way to write one, and everything that is wrong with one. */
#include "npy_fixture.h"
#include "sim_fixture.h"
#include <signal.h>

/* --- headers --- */

static void every_way_to_write_a_dict_is_read(void **state)
{
    (void)state;
    static const char *const dicts[] = {
        "{'descr':'<i2','fortran_order':False,'shape':(2,3)}",
        "{\"shape\": (2, 3,), \"descr\": \"<i2\", \"fortran_order\": False}",
        "  {'fortran_order': False, 'descr': '<i2', 'shape': (2L, 3L), }\n",
        "{ u'descr' : b'<i2' ,\n\t'fortran_order' : False , 'shape' : ( 2 , 3 ) }   \n",
        "{'descr': '|i2', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '=i2', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': 'i2', 'fortran_order': False, 'shape': (02, 3), }",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        put_dict(dicts[i], 12);
        loch_tensor *tensor = load(NULL);
        assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_I16);
        assert_int_equal(loch_tensor_get_size(tensor, 0), 2);
        assert_int_equal(loch_tensor_get_size(tensor, 1), 3);
        assert_true(item(tensor, 5, false) == 257);
        loch_tensor_release(tensor);
    }
    put_dict("{'descr': '?', 'fortran_order': True, 'shape': (2, 3)}", 6);
    loch_tensor *tensor = load(NULL);
    assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_BOOL);
    assert_int_equal(loch_tensor_get_strides(tensor)[1], 2);
    loch_tensor_release(tensor);
}

static void damaged_dicts_are_refused(void **state)
{
    (void)state;
    static const char *const dicts[] = {
        "",
        "   \n",
        "{",
        "{}",
        "[]",
        "{'descr': '<i2', 'fortran_order': False}",
        "{'descr': '<i2', 'shape': (2, 3)}",
        "{'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), 'more': 1}",
        "{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2' 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': 0, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': Falsely, 'shape': (2, 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (6)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': [2, 3]}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': 6}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, -3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,, 3)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2.5,)}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)}}",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)} x",
        "{'descr': '<i2, 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<i2",
        "{'descr': '<i2\n', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': ['\\",
        "{descr: '<i2', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr' '<i2', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': 7, 'fortran_order': False, 'shape': (2, 3)}",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        put_dict(dicts[i], 12);
        LOAD_FAILS(NULL, CORRUPT);
        assert_non_null(strstr(loch_error_get()->sentence, npy_path));
    }
}

static void types_that_loch_lacks_are_refused(void **state)
{
    (void)state;
    static const char *const types[] = {"<c8",    "<c16", "<U5",  "|S3",  "|O",  "O",    "<M8[ns]", "<m8[s]",
                                        "<f16",   "<f12", "<i3",  "|b2",  "f",   "",     "<",       "float64x",
                                        "<f8888", "|V0",  "<x\t", "|V16", "|V2", "?\xff"};
    char dict[128];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (1,)}", types[i]);
        put_dict(dict, 64);
        LOAD_FAILS(NULL, UNSUPPORTED);
        if (i < 14 && types[i][0] != '|') assert_non_null(strstr(loch_error_get()->sentence, types[i]));
    }
    put_dict("{'descr': [('a]', '<f4'), ('b', [('c\\'', '<i8', (2,))])], 'fortran_order': False, 'shape': (1,)}", 64);
    LOAD_FAILS(NULL, UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "[('a]', '<f4')"));
}

static void sizes_beyond_all_bounds_are_refused(void **state)
{
    (void)state;
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8);
    LOAD_FAILS(NULL, OVERFLOW);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 8);
    LOAD_FAILS(NULL, OVERFLOW);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,)}", 8);
    LOAD_FAILS(NULL, OVERFLOW);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}", 8);
    LOAD_FAILS(NULL, CORRUPT);
    put_dict("{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", 8);
    LOAD_FAILS(NULL, UNSUPPORTED);
    char file[16];
    npy_make_header(file, 2, "", 0, 0);
    memcpy(file + 8, "\xff\xff\xff\xff", 4);
    npy_put_file(npy_path, file, 12);
    LOAD_FAILS(NULL, CORRUPT);
    assert_non_null(strstr(loch_error_get()->sentence, "4294967295"));
}

/* A header that is long, but there. */
static void long_headers_are_read_up_to_their_limit(void **state)
{
    (void)state;
    static const char dict[] = "{'descr': '|i1', 'fortran_order': False, 'shape': (), }";
    const size_t most = TEST_MIB + 12 + 1;
    char *file = malloc(most + 1);
    assert_non_null(file);
    for (size_t header = most - 1; header <= most; header++) {
        assert_int_equal(npy_make_header(file, 2, dict, strlen(dict), header), header);
        file[header] = 5;
        npy_put_file(npy_path, file, header + 1);
        if (header == most) {
            LOAD_FAILS(NULL, CORRUPT);
            continue;
        }
        loch_tensor *tensor = load(NULL);
        assert_true(item(tensor, 0, false) == 5);
        loch_tensor_release(tensor);
    }
    free(file);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* a reader may have all that it needs before the pipe is empty */
    const struct CMUnitTest tests[] = {
        NPY_TEST(every_way_to_write_a_dict_is_read),       NPY_TEST(damaged_dicts_are_refused),
        NPY_TEST(types_that_loch_lacks_are_refused),       NPY_TEST(sizes_beyond_all_bounds_are_refused),
        NPY_TEST(long_headers_are_read_up_to_their_limit),
    };
    return cmocka_run_group_tests(tests, npy_group_setup, npy_group_teardown);
}

/* SPDX-License-Identifier: MIT */
/* Which modules of a process are Loch's own. */
#include "kit/module.h"
#include "test.h"

static void the_three_libraries_are_own_and_what_uses_them_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool is_own;
    } cases[] = {{"/usr/lib/libloch.so", true},
                 {"/usr/lib/libloch.so.0.3.0", true},
                 {"libloch_tensor.so.0.3", true},
                 {"/a/libloch_engine.so.0.3", true},
                 {"/a/libloch_insight.so.0.3", false},
                 {"/a/libloch_tensors.so", false},
                 {"/libloch.so/program", false},
                 {"/a/mylibloch.so", false},
                 {"libloch.s", false},
                 {"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(lochi_module_is_loch(cases[i].path, strlen(cases[i].path)), cases[i].is_own);
    assert_false(lochi_module_is_loch("/a/libloch.so", 12)); /* the length counts, not a zero byte */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_three_libraries_are_own_and_what_uses_them_is_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

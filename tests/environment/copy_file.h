/* SPDX-License-Identifier: MIT */
/* Copies a file: its contents, not its rights. */
#ifndef LOCH_TEST_COPY_FILE_H
#define LOCH_TEST_COPY_FILE_H

#include "test.h"

static void copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    static char bytes[65536];
    assert_true(in && out);
    for (size_t count; (count = fread(bytes, 1, sizeof bytes, in));)
        assert_int_equal(fwrite(bytes, 1, count, out), count);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

#endif

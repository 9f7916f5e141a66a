/* SPDX-License-Identifier: MIT */
#include "kit/module.h"

#include <string.h>

bool lochi_module_is_loch(const char *path, size_t length)
{
    static const char *const names[] = {"libloch.so", "libloch_tensor.so", "libloch_engine.so"};
    size_t start = length;
    while (start && path[start - 1] != '/')
        start--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t bytes = strlen(names[i]);
        if (length - start >= bytes && !memcmp(path + start, names[i], bytes)) return true;
    }
    return false;
}

/* SPDX-License-Identifier: MIT */
/* Finds cuBLAS and NCCL for tests: as programs do it (LOCH_CUBLAS, LOCH_NCCL, the system), then in the folders of
 * Python packages: those of python3, or of LOCH_PYTHON. */
#ifndef LOCH_TEST_FIND_LIBRARY_H
#define LOCH_TEST_FIND_LIBRARY_H

#include "support/test.h"
#include <glob.h>
#include <loch/library.h>

/* Tries each file that a pattern finds. */
static bool find_by_pattern(loch_library library, const char *option, const char *pattern)
{
    glob_t found = {0};
    bool is_loaded = false;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i-- > 0 && !is_loaded;)
            is_loaded =
                loch_option_set(option, found.gl_pathv[i]) == LOCH_OK && loch_library_load(library, NULL) == LOCH_OK;
    globfree(&found);
    return is_loaded;
}

/* python3 -c tells its folders; packages keep their libraries in nvidia/<package>/lib. */
static bool find_in_python(loch_library library, const char *option)
{
    const char *python = getenv("LOCH_PYTHON");
    char line[1024];
    snprintf(line, sizeof line, "%s -c 'import sys; print(\"\\n\".join(sys.path))' 2>/dev/null",
             python ? python : "python3");
    FILE *folders = popen(line, "re");
    bool is_loaded = false;
    while (folders && !is_loaded && fgets(line, sizeof line, folders)) {
        line[strcspn(line, "\n")] = 0;
        char pattern[1200];
        snprintf(pattern, sizeof pattern, "%s/nvidia/*/lib/lib%s.so*", line, option);
        if (*line) is_loaded = find_by_pattern(library, option, pattern);
    }
    if (folders) pclose(folders);
    return is_loaded;
}

/* Loads a library, and prints its version. */
static bool find_library(loch_library library, const char *option)
{
    int version;
    const bool is_loaded = loch_library_load(library, NULL) == LOCH_OK || find_in_python(library, option);
    if (!is_loaded || loch_library_load(library, &version) != LOCH_OK) return false;
    printf("%s %d\n", option, version);
    return true;
}

#endif

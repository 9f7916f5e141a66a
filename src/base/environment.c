/* SPDX-License-Identifier: MIT */
/* Environment variables that begin with LOCH_ but have no reader. Most of them are misspelt options. A variable is
 * known if it belongs to an option or to the list below of variables that adapters, tests and the build read. */
#include "base/environment.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/logging.h"
#include "base/options.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENVIRONMENT_MAX 64 /* longer names are not compared */
#define ENVIRONMENT_PREFIX "LOCH_"

/* Variables that are read outside the library. */
static const char *const environment_others[] = {
    "LOCH_LIBRARY",        "LOCH_TORCH_DEVICE", "LOCH_TORCH_LIMIT", "LOCH_TORCH_LIBRARY", "LOCH_REQUIRE_GPU",
    "LOCH_PYTHON",         "LOCH_DECODER",      "LOCH_CMOCKA_DIR",  "LOCH_CUDA_INCLUDE",  "LOCH_SANITIZE",
    "LOCH_DLPACK_INCLUDE", "LOCH_COMM_MPI",     "LOCH_COMM_CHECK",  "LOCH_MALLOC_DECAY"};
#define ENVIRONMENT_OTHERS (sizeof environment_others / sizeof *environment_others)

/* Returns the known name with number `at`; NULL past the last. */
static const char *environment_at(size_t at)
{
    const size_t options = lochi_option_count();
    if (at < options) return lochi_option_at(at)->environment;
    return at - options < ENVIRONMENT_OTHERS ? environment_others[at - options] : NULL;
}

static bool environment_is_known(const char *name)
{
    if (!strncmp(name, ENVIRONMENT_PREFIX "TEST_", sizeof ENVIRONMENT_PREFIX "TEST_" - 1)) return true;
    const char *known;
    for (size_t i = 0; (known = environment_at(i)); i++)
        if (!strcmp(known, name)) return true;
    return false;
}

static size_t environment_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the number of letters to add, remove, replace or swap with their neighbour to turn `from` into `to`. Both
 * names are shorter than ENVIRONMENT_MAX. */
static size_t environment_distance(const char *from, const char *to)
{
    size_t rows[3][ENVIRONMENT_MAX], *before = rows[0], *last = rows[1], *row = rows[2];
    const size_t width = strlen(to);
    for (size_t k = 0; k <= width; k++)
        last[k] = k;
    for (size_t i = 0; from[i]; i++) {
        row[0] = i + 1;
        for (size_t k = 0; k < width; k++) {
            row[k + 1] = environment_least(environment_least(row[k], last[k + 1]) + 1, last[k] + (from[i] != to[k]));
            if (i && k && from[i] == to[k - 1] && from[i - 1] == to[k])
                row[k + 1] = environment_least(row[k + 1], before[k - 1] + 1);
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[width];
}

/* Returns the known name that needs the fewest changes; NULL if every name needs many changes for its length. */
static const char *environment_nearest(const char *name)
{
    const char *nearest = NULL, *known;
    size_t least = 4;
    for (size_t i = 0; (known = environment_at(i)); i++) {
        const size_t distance = environment_distance(name, known),
                     most = (strlen(known) - sizeof ENVIRONMENT_PREFIX + 1) / 2;
        if (distance >= least || distance > most) continue;
        least = distance;
        nearest = known;
    }
    return nearest;
}

loch_status loch_option_walk_unknown(loch_option_unknown_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!visitor) return LOCH_FAIL(INVALID, "loch_option_walk_unknown needs a visitor");
    for (char **at = environ; at && *at; at++) {
        const size_t length = strcspn(*at, "=");
        char name[ENVIRONMENT_MAX * 4];
        if (strncmp(*at, ENVIRONMENT_PREFIX, sizeof ENVIRONMENT_PREFIX - 1) != 0 || length >= sizeof name) continue;
        memcpy(name, *at, length);
        name[length] = '\0';
        if (environment_is_known(name) || !secure_getenv(name)) continue; /* NULL in setuid programs */
        LOCH_TRY_RETURN(visitor(name, length < ENVIRONMENT_MAX ? environment_nearest(name) : NULL, user));
    }
    return LOCH_OK;
}

static loch_status environment_warn(const char *name, const char *nearest, void *user)
{
    (void)user;
    LOCHI_LOG(WARNING, "nothing reads %s%s%s%s", name, nearest ? ": did you mean " : "", nearest ? nearest : "",
              nearest ? "?" : "");
    return LOCH_OK;
}

void lochi_option_warn_unknown(void)
{
    static atomic_flag is_done = ATOMIC_FLAG_INIT;
    if (lochi_log_get_level() < LOCH_LOG_WARNING || atomic_flag_test_and_set_explicit(&is_done, memory_order_relaxed))
        return;
    (void)!loch_option_walk_unknown(environment_warn, NULL);
}

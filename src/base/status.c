/* SPDX-License-Identifier: MIT */
/* Names and texts of the status codes, and constant error records for threads without a room. */
#include "base/status.h"
#include "base/thread_own.h"

static const struct {
    const char *name, *text;
} status_table[] = {
#define STATUS_ROW(suffix, text) {#suffix, text},
    LOCH_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static const loch_error status_bare_records[] = {{.driver = ""},
#define STATUS_RECORD(suffix, text)                                                                                    \
    {.status = LOCH_##suffix, .driver = "", .sentence = text " (no host memory for more about it)"},
                                                 LOCH_STATUS_LIST(STATUS_RECORD)
#undef STATUS_RECORD
};

const char *loch_version(void)
{
    return LOCH_VERSION_STRING;
}

const char *loch_status_name(loch_status status)
{
    return (unsigned)status < LOCH_STATUS_COUNT ? status_table[status].name : "E_UNKNOWN";
}

const char *loch_status_text(loch_status status)
{
    return (unsigned)status < LOCH_STATUS_COUNT ? status_table[status].text : "an unknown status";
}

const loch_error *lochi_error_bare(void)
{
    return &status_bare_records[lochi_thread_own_small.bare_status ? lochi_thread_own_small.bare_status + 1 : 0];
}

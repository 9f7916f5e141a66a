/* SPDX-License-Identifier: MIT */
/* Plans in files. Text, one thing on each line:
 *
 *     loch-plan 1
 *     fingerprint 8c1f0e5d7a3b2946
 *     buffers 3
 *     height 12288
 *     bound 12288
 *     0
 *     4096
 *     8192
 *     end
 *
 * The offsets stand in the order of the buffers. The last line shows that nothing is missing. */
#include "memory.h"
#include "plan.h"
#include "problem.h"
#include "text.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <string.h>

#define SAVE_VERSION 1

loch_status loch_plan_save(const loch_plan *plan, const char *path)
{
    LOCHI_NOT_CANCELLED;
    plan_sink sink;
    if (!plan || !path) return LOCH_FAIL(INVALID, "a plan and a path are needed to save it");
    const loch_status status = lochi_plan_sink_open(path, &sink);
    if (status != LOCH_OK) return status;
    fprintf(sink.file, "loch-plan %d\nfingerprint %016" PRIx64 "\nbuffers %zu\nheight %" PRIu64 "\nbound %" PRIu64 "\n",
            SAVE_VERSION, plan->info.fingerprint, plan->info.count, plan->info.height, plan->info.lower_bound);
    for (size_t i = 0; i < plan->info.count; i++)
        fprintf(sink.file, "%" PRIu64 "\n", plan->offsets[i]);
    fputs("end\n", sink.file);
    return lochi_plan_sink_close(&sink);
}

/* --- loading --- */

typedef struct save_reader {
    const char *path, *at;
    size_t line;
} save_reader;

static loch_status save_fail(const save_reader *reader, const char *reason)
{
    return LOCH_FAIL(CORRUPT, "%s: line %zu: %s", reader->path, reader->line, reason);
}

/* Takes one line: `name`, a space if there is a name, and a number. */
static bool save_take(save_reader *reader, const char *name, uint64_t *out)
{
    reader->line++;
    const char *end = strchr(reader->at, '\n');
    const size_t length = strlen(name);
    if (!end || strncmp(reader->at, name, length) != 0) return false;
    const char *number = reader->at + length;
    if (length && *number++ != ' ') return false;
    if (!lochi_plan_text_number(number, end, out)) return false;
    reader->at = end + 1;
    return true;
}

static bool save_take_fingerprint(save_reader *reader, uint64_t *out)
{
    static const char name[] = "fingerprint ";
    reader->line++;
    if (strncmp(reader->at, name, sizeof name - 1) != 0) return false;
    const char *at = reader->at + sizeof name - 1;
    *out = 0;
    for (int i = 0; i < 16; i++, at++) {
        const char *digit = *at ? strchr("0123456789abcdef", *at) : NULL;
        if (!digit) return false;
        *out = *out << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    if (*at != '\n') return false;
    reader->at = at + 1;
    return true;
}

static loch_status save_parse(save_reader *reader, size_t bytes, loch_plan **out)
{
    uint64_t version, fingerprint, count, height, bound;
    if (!save_take(reader, "loch-plan", &version)) return save_fail(reader, "this is no plan");
    if (version != SAVE_VERSION)
        return LOCH_FAIL(UNSUPPORTED, "%s: version %" PRIu64 " of plans is not known", reader->path, version);
    if (!save_take_fingerprint(reader, &fingerprint)) return save_fail(reader, "the fingerprint is wrong");
    if (!save_take(reader, "buffers", &count) || count > bytes / 2)
        return save_fail(reader, "the number of buffers is wrong");
    if (!save_take(reader, "height", &height)) return save_fail(reader, "the height is wrong");
    if (!save_take(reader, "bound", &bound) || bound > height) return save_fail(reader, "the bound is wrong");
    *out = lochi_plan_create_empty((size_t)count);
    if (!*out) return LOCH_FAIL(HOST_MEMORY, "%s: there is no memory for the plan", reader->path);
    for (size_t i = 0; i < count; i++)
        if (!save_take(reader, "", &(*out)->offsets[i])) return save_fail(reader, "the offset is wrong");
    reader->line++;
    if (strcmp(reader->at, "end\n") != 0) return save_fail(reader, "the end is missing");
    (*out)->info.fingerprint = fingerprint;
    (*out)->info.height = height;
    (*out)->info.lower_bound = bound;
    (*out)->info.is_best = bound == height;
    return LOCH_OK;
}

loch_status loch_plan_load(const char *path, loch_plan **out)
{
    LOCHI_NOT_CANCELLED;
    char *text;
    size_t bytes;
    if (!path || !out) return LOCH_FAIL(INVALID, "a path and a place for the plan are needed");
    *out = NULL;
    loch_status status = lochi_plan_text_read(path, &text, &bytes);
    if (status != LOCH_OK) return status;
    save_reader reader = {.path = path, .at = text};
    loch_plan *plan = NULL;
    status = save_parse(&reader, bytes, &plan);
    lochi_plan_free(text);
    if (status == LOCH_OK)
        *out = plan;
    else
        loch_plan_destroy(plan);
    return status;
}

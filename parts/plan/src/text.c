/* SPDX-License-Identifier: MIT */
#include "text.h"
#include "memory.h"
#include "kit/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define TEXT_CHUNK ((size_t)1 << 16)

static loch_status text_fail(const char *path)
{
    return loch_error_set(LOCH_E_IO, NULL, errno, "%s: %s", path, strerror(errno));
}

loch_status lochi_plan_text_read(const char *path, char **out, size_t *bytes)
{
    *out = NULL;
    *bytes = 0;
    const bool is_standard = !strcmp(path, "-");
    const int file = is_standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return text_fail(path);
    loch_status status = LOCH_OK;
    size_t capacity = 0;
    for (;;) {
        if (!lochi_plan_grow((void **)out, &capacity, *bytes + TEXT_CHUNK + 1, 1)) {
            status = LOCH_FAIL(HOST_MEMORY, "%s: there is no memory to read it", path);
            break;
        }
        const ssize_t count = read(file, *out + *bytes, TEXT_CHUNK);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) status = text_fail(path);
        if (count <= 0) break;
        *bytes += (size_t)count;
    }
    if (!is_standard) close(file);
    if (status == LOCH_OK) {
        (*out)[*bytes] = 0;
        return LOCH_OK;
    }
    lochi_plan_free(*out);
    *out = NULL;
    return status;
}

bool lochi_plan_text_number(const char *text, const char *end, uint64_t *out)
{
    uint64_t value = 0;
    if (text == end) return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9') return false;
        const uint64_t digit = (uint64_t)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = 10 * value + digit;
    }
    *out = value;
    return true;
}

loch_status lochi_plan_sink_open(const char *path, plan_sink *sink)
{
    if (!strcmp(path, "-")) {
        *sink = (plan_sink){.file = stdout, .whole = {.path = "standard output", .number = -1}};
        return LOCH_OK;
    }
    sink->file = NULL;
    loch_status status = lochi_new_file_open(&sink->whole, path);
    if (status == LOCH_OK) status = lochi_new_file_open_stream(&sink->whole, &sink->file);
    return status == LOCH_OK ? LOCH_OK : lochi_new_file_close(&sink->whole, status);
}

loch_status lochi_plan_sink_close(plan_sink *sink)
{
    const bool is_written = !fflush(sink->file) && !ferror(sink->file);
    loch_status status = is_written ? LOCH_OK : lochi_new_file_fail(&sink->whole, errno);
    if (sink->file != stdout && fclose(sink->file) && status == LOCH_OK)
        status = lochi_new_file_fail(&sink->whole, errno);
    return lochi_new_file_close(&sink->whole, status);
}

/* SPDX-License-Identifier: MIT */
/* Finds the sockets of processes, asks them, and reads their answers: snapshots without blocks (docs/snapshot.md). */
#include "top_source.h"
#include <dirent.h>
#include <errno.h>
#include "kit/json.h"
#include <loch/macros.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define SOURCE_BYTES_MAX ((size_t)64 << 20)
#define SOURCE_WAIT_SECONDS 10

static char source_sentence[512];

static LOCH_PRINTF(1, 2) const char *source_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(source_sentence, sizeof source_sentence, format, arguments);
    va_end(arguments);
    return source_sentence;
}

/* --- sockets --- */

/* Writes the name of a folder for sockets. Returns false behind the last one. */
static bool source_folder(int number, char *out, size_t bytes)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    if (number == 0) snprintf(out, bytes, "%s/loch", run && *run == '/' ? run : "");
    if (number == 1) snprintf(out, bytes, "/tmp/loch-%lu", (unsigned long)geteuid());
    return number < 2;
}

/* Connects to the socket of a process. Returns -1 if it has none. A socket of another user does not count. */
static int source_connect(pid_t pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[256];
    for (int i = 0; source_folder(i, folder, sizeof folder); i++) {
        const int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%ld.sock", folder, (long)pid);
        if (length < 0 || (size_t)length >= sizeof address.sun_path) continue;
        const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct ucred about;
        socklen_t bytes = sizeof about;
        if (file >= 0 && connect(file, (const struct sockaddr *)&address, sizeof address) == 0 &&
            getsockopt(file, SOL_SOCKET, SO_PEERCRED, &about, &bytes) == 0 && about.uid == geteuid())
            return file;
        if (file >= 0) close(file);
    }
    return -1;
}

size_t top_list(pid_t *out, size_t room)
{
    char folder[256];
    size_t count = 0;
    for (int i = 0; source_folder(i, folder, sizeof folder); i++) {
        DIR *list = opendir(folder);
        for (const struct dirent *entry; list && count < room && (entry = readdir(list));) {
            char *end;
            const long pid = strtol(entry->d_name, &end, 10);
            if (pid <= 0 || strcmp(end, ".sock") != 0) continue;
            const int file = source_connect((pid_t)pid);
            if (file < 0) continue;
            close(file);
            out[count++] = (pid_t)pid;
        }
        if (list) closedir(list);
    }
    return count;
}

/* Reads all that the peer sends. Returns NULL without memory or after a failure. */
static char *source_receive(int file, size_t *bytes)
{
    char *text = NULL;
    size_t room = 0;
    *bytes = 0;
    for (;;) {
        if (room - *bytes < 4096) {
            room = room ? 2 * room : 65536;
            char *grown = room <= SOURCE_BYTES_MAX ? realloc(text, room) : NULL;
            if (!grown) break;
            text = grown;
        }
        const ssize_t count = read(file, text + *bytes, room - *bytes);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) break;
        if (!count) return text;
        *bytes += (size_t)count;
    }
    free(text);
    *bytes = 0;
    return NULL;
}

const char *top_ask(pid_t pid, top_figures *out, bool *is_gone)
{
    *out = (top_figures){.text = NULL};
    *is_gone = false;
    if (kill(pid, 0) != 0 && errno == ESRCH) {
        *is_gone = true;
        return source_say("there is no process %ld", (long)pid);
    }
    const int file = source_connect(pid);
    *is_gone = file < 0;
    if (file < 0)
        return kill(pid, 0) != 0 && errno == EPERM
                   ? source_say("process %ld belongs to another user", (long)pid)
                   : source_say("process %ld cannot be looked at: start it with LOCH_TOP=on", (long)pid);
    const struct timeval wait = {.tv_sec = SOURCE_WAIT_SECONDS};
    (void)!setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    size_t bytes;
    char *text = source_receive(file, &bytes);
    close(file);
    const char *wrong = text && bytes ? top_read(text, bytes, out) : NULL;
    if (!wrong && bytes) return NULL;
    if (!bytes) free(text);
    const int again = source_connect(pid); /* a process that ends may leave half an answer */
    *is_gone = again < 0;
    if (again >= 0) close(again);
    return wrong ? source_say("the answer of process %ld is wrong: %s", (long)pid, wrong)
                 : source_say("process %ld does not answer", (long)pid);
}

/* --- answers --- */

/* Adds an item of zeros to a list. Returns NULL without memory. */
static void *source_add(lochi_json *json, void **list, size_t *count, size_t bytes)
{
    char *grown = realloc(*list, (*count + 1) * bytes);
    if (!grown) {
        lochi_json_fail(json, "there is no memory for the figures");
        return NULL;
    }
    *list = grown;
    memset(grown + *count * bytes, 0, bytes);
    return grown + (*count)++ * bytes;
}

#define SOURCE_ADD(json, out, noun) source_add(json, (void **)&(out)->noun, &(out)->noun##_count, sizeof *(out)->noun)

/* Reads text and cuts it to its room. Control characters become question marks: they could command a terminal. */
static void source_text(lochi_json *json, char *out, size_t room)
{
    char whole[4096];
    if (!lochi_json_text(json, whole, sizeof whole)) return;
    size_t length = 0;
    for (const char *at = whole; *at && length + 5 < room; at++) { /* room for one whole character more */
        const unsigned char byte = (unsigned char)*at;
        const bool is_control = byte < 0x20 || byte == 0x7F ||
                                (byte == 0xC2 && (unsigned char)at[1] >= 0x80 && (unsigned char)at[1] < 0xA0);
        if (byte == 0xC2 && is_control) at++;
        out[length++] = is_control ? '?' : *at;
    }
    out[length] = '\0';
}

/* A member with a number, and its place. */
typedef struct source_member {
    const char *name;
    uint64_t *place;
} source_member;

static void source_number(lochi_json *json, const char *name, const source_member *members, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, members[i].name)) {
            lochi_json_number(json, members[i].place);
            return;
        }
    lochi_json_skip(json);
}

static void source_read_stats(lochi_json *json, top_allocator *to)
{
    char name[TOP_NAME];
    const source_member members[] = {{"requested_bytes", &to->requested},
                                     {"allocated_bytes", &to->allocated},
                                     {"reserved_bytes", &to->reserved},
                                     {"limit_bytes", &to->limit},
                                     {"cached_bytes", &to->cached},
                                     {"blocks", &to->blocks},
                                     {"allocs", &to->allocs},
                                     {"frees", &to->frees},
                                     {"failures", &to->failures}};
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "fragmentation"))
            lochi_json_real(json, &to->fragmentation);
        else
            source_number(json, name, members, sizeof members / sizeof *members);
}

/* Finds a tag, and adds it if it is new. */
static top_tag *source_tag(lochi_json *json, top_figures *out, uint64_t tag)
{
    for (size_t i = 0; i < out->tags_count; i++)
        if (out->tags[i].tag == tag) return &out->tags[i];
    top_tag *added = SOURCE_ADD(json, out, tags);
    if (added) added->tag = tag;
    return added;
}

/* Reads a tag: of the process, with its name, or of an allocator, with statistics. */
static void source_read_tag(lochi_json *json, top_figures *out)
{
    char name[TOP_NAME], text[TOP_NAME] = "";
    uint64_t number = 0;
    top_allocator sum = {0};
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "tag"))
            lochi_json_number(json, &number);
        else if (!strcmp(name, "name"))
            source_text(json, text, sizeof text);
        else if (!strcmp(name, "statistics"))
            source_read_stats(json, &sum);
        else
            lochi_json_skip(json);
    top_tag *tag = json->wrong ? NULL : source_tag(json, out, number);
    if (!tag) return;
    if (*text) memcpy(tag->name, text, sizeof text);
    tag->requested += sum.requested;
    tag->blocks += sum.blocks;
    tag->allocs += sum.allocs;
}

static void source_read_tags(lochi_json *json, top_figures *out)
{
    if (!lochi_json_open(json, '[')) return;
    while (lochi_json_item(json))
        source_read_tag(json, out);
}

static void source_read_pool(lochi_json *json, top_allocator *to)
{
    char name[TOP_NAME], text[TOP_NAME] = "";
    const source_member members[] = {{"asleep_bytes", &to->asleep}};
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "memory_of_parent"))
            source_text(json, text, sizeof text);
        else
            source_number(json, name, members, 1);
    to->is_range = !strcmp(text, "range");
}

static void source_read_allocator(lochi_json *json, top_figures *out)
{
    char name[TOP_NAME];
    uint64_t wraps = 0;
    top_allocator read = {0};
    const source_member members[] = {{"number", &read.number}, {"device", &read.device}, {"wraps", &wraps}};
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "name"))
            source_text(json, read.name, sizeof read.name);
        else if (!strcmp(name, "kind"))
            source_text(json, read.kind, sizeof read.kind);
        else if (!strcmp(name, "statistics"))
            source_read_stats(json, &read);
        else if (!strcmp(name, "pool"))
            source_read_pool(json, &read);
        else if (!strcmp(name, "tags"))
            source_read_tags(json, out);
        else
            source_number(json, name, members, sizeof members / sizeof *members);
    read.is_wrapper = wraps != 0;
    top_allocator *added = json->wrong ? NULL : SOURCE_ADD(json, out, allocators);
    if (added) *added = read;
}

static void source_read_call(lochi_json *json, top_figures *out, uint64_t device)
{
    char name[TOP_NAME];
    top_call *call = SOURCE_ADD(json, out, calls);
    if (!call || !lochi_json_open(json, '{')) return;
    call->device = device;
    const source_member members[] = {{"count", &call->count}, {"ns", &call->ns}};
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "name"))
            source_text(json, call->name, sizeof call->name);
        else
            source_number(json, name, members, 2);
}

static void source_read_device(lochi_json *json, top_figures *out)
{
    char name[TOP_NAME];
    top_device read = {{0}, 0, 0};
    const source_member members[] = {{"total_bytes", &read.total}, {"free_bytes", &read.free}};
    const uint64_t place = out->devices_count;
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "name")) {
            source_text(json, read.name, sizeof read.name);
        } else if (!strcmp(name, "calls")) {
            if (!lochi_json_open(json, '[')) return;
            while (lochi_json_item(json))
                source_read_call(json, out, place);
        } else {
            source_number(json, name, members, 2);
        }
    top_device *added = json->wrong ? NULL : SOURCE_ADD(json, out, devices);
    if (added) *added = read;
}

static void source_read_list(lochi_json *json, top_figures *out, void (*read)(lochi_json *, top_figures *))
{
    if (!lochi_json_open(json, '[')) return;
    while (lochi_json_item(json))
        read(json, out);
}

const char *top_read(char *text, size_t bytes, top_figures *out)
{
    char name[TOP_NAME], format[TOP_NAME] = "";
    lochi_json json = lochi_json_begin(text, bytes);
    *out = (top_figures){.text = text, .bytes = bytes};
    const source_member members[] = {{"time_ns", &out->time_ns}, {"pid", &out->pid}};
    if (lochi_json_open(&json, '{')) {
        while (lochi_json_member(&json, name, sizeof name))
            if (!strcmp(name, "format"))
                source_text(&json, format, sizeof format);
            else if (!strcmp(name, "program"))
                source_text(&json, out->program, sizeof out->program);
            else if (!strcmp(name, "devices"))
                source_read_list(&json, out, source_read_device);
            else if (!strcmp(name, "tags"))
                source_read_tags(&json, out);
            else if (!strcmp(name, "allocators"))
                source_read_list(&json, out, source_read_allocator);
            else
                source_number(&json, name, members, 2);
    }
    if (lochi_json_end(&json) && strcmp(format, "loch-snapshot") != 0) lochi_json_fail(&json, "it is not a snapshot");
    return json.wrong;
}

void top_figures_free(top_figures *figures)
{
    free(figures->text);
    free(figures->allocators);
    free(figures->tags);
    free(figures->calls);
    free(figures->devices);
    *figures = (top_figures){.text = NULL};
}

/* SPDX-License-Identifier: MIT */
/* `core read`: measures how fast recordings are read, and how much memory that takes beside the size of the file.
 * Files are those of --trace, or a memory snapshot of PyTorch of 200 MB that is made for it: entries, stacks and texts
 * shared as Python's pickler shares them. Each file is read in a process of its own. */
#include "core.h"
#include "tools/json.h"
#include <errno.h>
#include <loch/insight.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES ((size_t)200 * 1000 * 1000)
#define READ_QUICK_BYTES ((size_t)1000 * 1000)
#define READ_ROUNDS 5
#define READ_FRAMES 5000u
#define READ_STACKS 20000u
#define READ_BATCH 1000u
#define READ_LIVE 4096u

/* --- a snapshot --- */

typedef struct read_maker {
    FILE *file;
    uint64_t random, time_us;
    uint32_t memo;
    uint32_t frames[READ_FRAMES], stacks[READ_STACKS]; /* numbers in the memo plus 1 */
    uint32_t words[16];                                /* numbers in the memo */
    uint32_t sizes[READ_LIVE], origins[READ_LIVE];     /* size and stack of each live block; size 0: free */
} read_maker;

enum read_word {
    ACTION,
    ADDR,
    SIZE,
    STREAM,
    TIME,
    CONTEXT,
    METADATA,
    FRAMES,
    NAME,
    FILENAME,
    LINE,
    ALLOC,
    ASKED,
    DONE
};

static uint32_t read_below(read_maker *maker, uint32_t limit)
{
    maker->random = maker->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(maker->random >> 33) % limit;
}

static void read_put(read_maker *maker, int opcode, uint64_t number, int bytes)
{
    putc_unlocked(opcode, maker->file);
    for (int i = 0; i < bytes; i++)
        putc_unlocked((int)(number >> (8 * i) & 0xff), maker->file);
}

static uint32_t read_memoize(read_maker *maker)
{
    putc_unlocked(0x94, maker->file);
    return maker->memo++;
}

static void read_put_text(read_maker *maker, const char *text)
{
    read_put(maker, 0x8c, strlen(text), 1);
    fputs(text, maker->file);
    (void)read_memoize(maker);
}

static void read_put_word(read_maker *maker, enum read_word word)
{
    read_put(maker, 'h', maker->words[word], 1);
}

static void read_put_long(read_maker *maker, uint64_t number)
{
    putc_unlocked(0x8a, maker->file);
    read_put(maker, 8, number, 8);
}

static void read_put_frame(read_maker *maker, uint32_t frame)
{
    char text[64];
    if (maker->frames[frame]) {
        read_put(maker, 'j', maker->frames[frame] - 1, 4);
        return;
    }
    putc_unlocked('}', maker->file);
    maker->frames[frame] = read_memoize(maker) + 1;
    putc_unlocked('(', maker->file);
    read_put_word(maker, NAME);
    snprintf(text, sizeof text, "layer_%u_forward", frame % 97);
    read_put_text(maker, text);
    read_put_word(maker, FILENAME);
    snprintf(text, sizeof text, "/opt/model/modules/file_%u.py", frame % 211);
    read_put_text(maker, text);
    read_put_word(maker, LINE);
    read_put(maker, 'M', frame, 2);
    putc_unlocked('u', maker->file);
}

static void read_put_stack(read_maker *maker, uint32_t stack)
{
    if (maker->stacks[stack]) {
        read_put(maker, 'j', maker->stacks[stack] - 1, 4);
        return;
    }
    putc_unlocked(']', maker->file);
    maker->stacks[stack] = read_memoize(maker) + 1;
    putc_unlocked('(', maker->file);
    for (uint32_t i = 8 + stack % 23; i; i--)
        read_put_frame(maker, read_below(maker, READ_FRAMES));
    putc_unlocked('e', maker->file);
}

static void read_put_entry(read_maker *maker, enum read_word action, uint32_t place)
{
    putc_unlocked('}', maker->file);
    (void)read_memoize(maker);
    putc_unlocked('(', maker->file);
    read_put_word(maker, ACTION);
    read_put_word(maker, action);
    read_put_word(maker, ADDR);
    read_put_long(maker, 0x7f0000000000u + (uint64_t)place * (1 << 20));
    read_put_word(maker, SIZE);
    read_put(maker, 'J', maker->sizes[place], 4);
    read_put_word(maker, STREAM);
    read_put(maker, 'K', 0, 1);
    read_put_word(maker, TIME);
    read_put_long(maker, maker->time_us += read_below(maker, 40));
    read_put_word(maker, CONTEXT);
    read_put_text(maker, "N/A");
    read_put_word(maker, METADATA);
    read_put_text(maker, "");
    read_put_word(maker, FRAMES);
    read_put_stack(maker, maker->origins[place]);
    putc_unlocked('u', maker->file);
}

/* Writes a snapshot of at least `bytes` bytes. */
static void read_make(read_maker *maker, size_t bytes)
{
    static const char *const words[] = {
        "action", "addr", "size",     "stream", "time_us", "compile_context", "user_metadata",
        "frames", "name", "filename", "line",   "alloc",   "free_requested",  "free_completed"};
    size_t count = 0;
    fputs("\x80\x04}(", maker->file);
    for (uint32_t i = 0; i < sizeof words / sizeof *words;
         i++) { /* a key of its own for each, so that all are in the memo */
        maker->words[i] = maker->memo;
        read_put_text(maker, words[i]);
        putc_unlocked('N', maker->file);
    }
    read_put_text(maker, "segments");
    putc_unlocked(']', maker->file);
    read_put_text(maker, "device_traces");
    fputs("](](", maker->file);
    maker->time_us = 1700000000000000;
    while ((size_t)ftello(maker->file) < bytes) {
        const uint32_t place = read_below(maker, READ_LIVE);
        const bool is_free = maker->sizes[place] != 0;
        if (!is_free) {
            maker->sizes[place] = 1 + read_below(maker, 1 << 20);
            maker->origins[place] = read_below(maker, READ_STACKS);
        }
        read_put_entry(maker, is_free ? ASKED : ALLOC, place);
        if (is_free) read_put_entry(maker, DONE, place);
        if (is_free) maker->sizes[place] = 0;
        if (++count % READ_BATCH == 0) fputs("e(", maker->file);
    }
    fputs("eeu.", maker->file);
}

/* Makes the snapshot. Returns the path, which the caller frees after removing the file; NULL after a line on standard
 * error. */
static char *read_make_file(size_t bytes)
{
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    read_maker *maker = calloc(1, sizeof *maker);
    if (!maker || asprintf(&path, "%s/loch-bench-XXXXXX", folder && *folder ? folder : "/tmp") < 0) {
        free(maker);
        tool_fail("there is no memory for a snapshot");
        return NULL;
    }
    const int file = mkstemp(path);
    maker->file = file < 0 ? NULL : fdopen(file, "w");
    if (maker->file) read_make(maker, bytes);
    const bool is_written = maker->file && !ferror(maker->file) && !fclose(maker->file);
    if (!is_written) tool_fail("%s: %s", path, strerror(errno));
    if (!is_written && file >= 0) unlink(path);
    free(maker);
    if (is_written) return path;
    free(path);
    return NULL;
}

/* --- measuring --- */

typedef struct read_figures {
    const char *name;
    uint64_t bytes, events;
    double seconds;      /* the fastest of all rounds */
    double cpu_seconds;  /* time of the processor, which other programs change less; least of all rounds */
    uint64_t peak_bytes; /* memory of the process at its highest */
} read_figures;

/* Reads a file once. Runs in the child. */
static int read_once(const char *path, read_figures *figures)
{
    loch_recording *recording;
    loch_recording_info info = {.size = sizeof info};
    const uint64_t start = loch_host_now_ns();
    loch_status status = loch_recording_load(path, NULL, &recording);
    figures->seconds = (double)(loch_host_now_ns() - start) / 1e9;
    if (status == LOCH_OK) status = loch_recording_get_info(recording, &info);
    if (status != LOCH_OK) return tool_fail_status(status);
    figures->events = info.events;
    loch_recording_destroy(recording);
    return TOOL_DONE;
}

static int read_measure(const char *path, int rounds, read_figures *out)
{
    struct stat found;
    if (stat(path, &found)) return tool_fail("%s: %s", path, strerror(errno));
    read_figures *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return tool_fail("there is no memory for the figures");
    out->bytes = (uint64_t)found.st_size;
    int code = TOOL_DONE;
    for (int i = 0; code == TOOL_DONE && i < rounds; i++) {
        struct rusage usage;
        int state = 1;
        fflush(NULL);
        const pid_t child = fork();
        if (!child) _exit(read_once(path, shared));
        if (child < 0 || wait4(child, &state, 0, &usage) != child || state) code = TOOL_FAILED;
        if (code != TOOL_DONE) break;
        const double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
        if (!i || shared->seconds < out->seconds) out->seconds = shared->seconds;
        if (!i || cpu < out->cpu_seconds) out->cpu_seconds = cpu;
        out->events = shared->events;
        out->peak_bytes = (uint64_t)usage.ru_maxrss << 10;
    }
    munmap(shared, sizeof *shared);
    return code;
}

static void read_print(const read_figures *figures, json_writer *json)
{
    const double ratio = figures->bytes ? (double)figures->peak_bytes / (double)figures->bytes : 0;
    char rate[32], name[TOOL_NAME_BYTES];
    if (!json) {
        printf("%s: %s, %llu events in %.2f s (%s), %.2f s of the processor, %s of memory, %.2f times the file\n",
               tool_format_name(figures->name, name), LOCHI_SIZE_ROUND(figures->bytes, 2),
               (unsigned long long)figures->events, figures->seconds,
               tool_format_rate((double)figures->bytes / figures->seconds, rate), figures->cpu_seconds,
               LOCHI_SIZE_ROUND(figures->peak_bytes, 2), ratio);
        return;
    }
    json_open_object(json, NULL);
    json_text(json, "file", figures->name);
    json_number(json, "bytes", figures->bytes);
    json_number(json, "events", figures->events);
    json_real(json, "seconds", figures->seconds);
    json_real(json, "cpu_seconds", figures->cpu_seconds);
    json_number(json, "peak_bytes", figures->peak_bytes);
    json_real(json, "peak_ratio", ratio);
    json_close_object(json);
}

int core_read(const tool_bench_options *options)
{
    json_writer json = {.file = stdout};
    const int rounds = options->is_quick ? 1 : READ_ROUNDS;
    const size_t count = options->traces_count ? options->traces_count : 1;
    char *made = options->traces_count ? NULL : read_make_file(options->is_quick ? READ_QUICK_BYTES : READ_BYTES);
    int code = options->traces_count || made ? TOOL_DONE : TOOL_FAILED;
    if (options->is_json && code == TOOL_DONE) {
        json_open_object(&json, NULL);
        json_text(&json, "benchmark", "read");
        json_open_array(&json, "files");
    }
    for (size_t i = 0; code == TOOL_DONE && i < count; i++) {
        read_figures figures = {.name = made ? "snapshot of PyTorch" : options->traces[i]};
        code = read_measure(made ? made : options->traces[i], rounds, &figures);
        if (code == TOOL_DONE) read_print(&figures, options->is_json ? &json : NULL);
    }
    if (options->is_json && json.depth) {
        json_close_array(&json);
        json_close_object(&json);
    }
    if (made) unlink(made);
    free(made);
    return code;
}

/* SPDX-License-Identifier: MIT */
/* Reads whole files, and writes files that get their name at the end. Compressed files go through gzip or zstd, which
 * get the open file as standard input: no shell is used, and no file name can be taken for an option. */
#include "file.h"
#include "kit/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILE_CHUNK ((size_t)1 << 20)
#define FILE_UNLIMITED UINT64_MAX
#define FILE_DEFAULT_MIB 4096 /* of the option read_mib */

static loch_status file_fail(const char *path, const char *reason)
{
    return loch_error_set(LOCH_E_IO, NULL, errno, "%s: %s", path, reason);
}

/* --- reading --- */

static bool file_has_suffix(const char *path, const char *suffix)
{
    const size_t length = strlen(path), suffix_length = strlen(suffix);
    return length >= suffix_length && !strcmp(path + length - suffix_length, suffix);
}

/* Returns the program that decompresses the file, by its name or its first bytes; NULL for a plain file. */
static const char *file_find_program(const char *path, int file)
{
    unsigned char start[4] = {0};
    const ssize_t count = pread(file, start, sizeof start, 0);
    if (file_has_suffix(path, ".gz") || (count >= 2 && !memcmp(start, "\x1f\x8b", 2))) return "gzip";
    if (file_has_suffix(path, ".zst") || (count == 4 && !memcmp(start, "\x28\xb5\x2f\xfd", 4))) return "zstd";
    return NULL;
}

/* Returns a quarter of the memory that the machine, or the group of processes, has left; unlimited if it is unknown. */
static uint64_t file_quarter_of_memory(void)
{
    loch_device *host;
    loch_memory_info memory = {.size = sizeof memory};
    if (loch_device_open("cpu", &host) != LOCH_OK) return FILE_UNLIMITED;
    const loch_status status = loch_device_calculate_memory(host, &memory);
    loch_device_release(host);
    return status == LOCH_OK && memory.free_bytes ? memory.free_bytes / 4 : FILE_UNLIMITED;
}

/* Reads the most bytes that a compressed file may have when it is unpacked. The default follows the machine. */
static loch_status file_read_limit(uint64_t *out)
{
    char value[LOCH_OPTION_VALUE_MAX];
    LOCH_RETURN(loch_option_get("read_mib", value));
    const unsigned long long mib = strtoull(value, NULL, 10);
    *out = mib && mib < FILE_UNLIMITED >> 20 ? (uint64_t)mib << 20 : FILE_UNLIMITED;
    if (mib != FILE_DEFAULT_MIB) return LOCH_OK;
    const uint64_t quarter = file_quarter_of_memory();
    if (quarter < *out) *out = quarter;
    return LOCH_OK;
}

static loch_status file_read_all(const char *path, int file, uint64_t limit, lochi_array *text)
{
    for (;;) {
        if (text->count > limit)
            return LOCH_FAIL(
                LIMIT, "%s: it unpacks to more than %" PRIu64 " MiB; a higher LOCH_READ_MIB, or 0, lets it be read",
                path, limit >> 20);
        if (!lochi_array_reserve(text, text->count + FILE_CHUNK, 1))
            return LOCH_FAIL(HOST_MEMORY, "%s: no memory to read it", path);
        const ssize_t count = read(file, (char *)text->data + text->count, FILE_CHUNK);
        if (count == 0) return LOCH_OK;
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return file_fail(path, strerror(errno));
        text->count += (size_t)count;
    }
}

/* Starts a program by its name. In a program with more rights than its user, the environment is the user's: it says
 * neither which program that is nor what that program loads. */
static int file_spawn_named(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions,
                            char *const *arguments)
{
    static char *const none[] = {NULL};
    static const char *const folders[] = {"/usr/bin", "/bin", "/usr/local/bin"};
    int code = ENOENT;
    if (secure_getenv("PATH")) return posix_spawnp(child, program, actions, NULL, arguments, environ);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && code == ENOENT; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folders[i], program);
        code = posix_spawn(child, path, actions, NULL, arguments, none);
    }
    return code;
}

/* Starts a program that reads from `file` (`-dc`: decompresses) or writes to it (`-c`: compresses). Returns the other
 * end of its work, to read from or to write to; -1 and errno on failure. */
static int file_spawn(const char *program, const char *option, int file, pid_t *child)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    char *const arguments[] = {(char *)program, (char *)option, NULL};
    const int mine = strcmp(option, "-dc") != 0;
    if (pipe2(ends, O_CLOEXEC)) return -1;
    int code = posix_spawn_file_actions_init(&actions);
    if (!code) {
        code = posix_spawn_file_actions_adddup2(&actions, mine ? ends[0] : file, STDIN_FILENO);
        if (!code) code = posix_spawn_file_actions_adddup2(&actions, mine ? file : ends[1], STDOUT_FILENO);
        /* Discards the program's messages; the caller gets one sentence instead. */
        if (!code) code = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        if (!code) code = file_spawn_named(child, program, &actions, arguments);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[!mine]);
    if (!code) return ends[mine];
    close(ends[mine]);
    errno = code;
    return -1;
}

static loch_status file_decompress(const char *path, const char *program, int file, lochi_array *text)
{
    pid_t child;
    int state = 0;
    uint64_t limit;
    LOCH_RETURN(file_read_limit(&limit));
    const int end = file_spawn(program, "-dc", file, &child);
    if (end < 0)
        return loch_error_set(LOCH_E_IO, NULL, errno, "%s: %s is needed to read it, and cannot be started: %s", path,
                              program, strerror(errno));
    const loch_status status = file_read_all(path, end, limit, text);
    close(end);
    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        ;
    if (status != LOCH_OK || !state) return status;
    return LOCH_FAIL(IO, "%s: %s cannot decompress it", path, program);
}

loch_status lochi_insight_source_read(const char *path, insight_source *source)
{
    *source = (insight_source){.path = path};
    const bool is_standard = !strcmp(path, "-");
    const int file = is_standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return file_fail(path, strerror(errno));
    const char *program = is_standard ? NULL : file_find_program(path, file);
    const loch_status status = program ? file_decompress(path, program, file, &source->memory)
                                       : file_read_all(path, file, FILE_UNLIMITED, &source->memory);
    if (!is_standard) close(file);
    source->data = source->memory.data;
    source->bytes = source->memory.count;
    return status;
}

void lochi_insight_source_free(insight_source *source)
{
    lochi_array_free(&source->memory);
    source->data = NULL;
    source->bytes = 0;
}

/* --- writing --- */

/* Blocks SIGPIPE in this thread, so that a program that ends early is an error and not the end of the process. */
static void file_block_pipe(insight_sink *sink)
{
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &sink->signals);
}

/* Undoes file_block_pipe. Discards the signal if it came. */
static void file_unblock_pipe(const insight_sink *sink)
{
    sigset_t pipe_only;
    const struct timespec now = {0, 0};
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    if (!sigismember(&sink->signals, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &now) == SIGPIPE)
            ;
    pthread_sigmask(SIG_SETMASK, &sink->signals, NULL);
}

/* Opens the stream; if the path asks for it, to a program that compresses what is written and writes to the file. */
static loch_status file_open_stream(insight_sink *sink)
{
    const char *program = file_has_suffix(sink->path, ".gz") ? "gzip" : "zstd";
    if (!file_has_suffix(sink->path, ".gz") && !file_has_suffix(sink->path, ".zst"))
        return lochi_new_file_open_stream(&sink->whole, &sink->file);
    pid_t child = 0;
    const int end = file_spawn(program, "-c", sink->whole.number, &child);
    if (end < 0)
        return loch_error_set(LOCH_E_IO, NULL, errno, "%s: %s is needed to write it, and cannot be started: %s",
                              sink->path, program, strerror(errno));
    sink->file = fdopen(end, "w");
    if (!sink->file) { /* the program ends when nothing can write to it */
        const loch_status status = file_fail(sink->path, strerror(errno));
        close(end);
        waitpid(child, NULL, 0);
        return status;
    }
    sink->child = child;
    file_block_pipe(sink);
    return LOCH_OK;
}

loch_status lochi_insight_sink_open(const char *path, insight_sink *sink)
{
    *sink = (insight_sink){.path = path};
    if (!strcmp(path, "-")) {
        sink->file = stdout;
        return LOCH_OK;
    }
    loch_status status = lochi_new_file_open(&sink->whole, path);
    if (status == LOCH_OK) status = file_open_stream(sink);
    return status == LOCH_OK ? LOCH_OK : lochi_new_file_close(&sink->whole, status);
}

loch_status lochi_insight_sink_close(insight_sink *sink, loch_status status)
{
    int state = 0;
    if (!sink->file) return status;
    bool is_written = !fflush(sink->file) && !ferror(sink->file);
    if (sink->file != stdout && fclose(sink->file)) is_written = false;
    const int error = errno;
    while (sink->child && waitpid(sink->child, &state, 0) < 0 && errno == EINTR)
        ;
    if (sink->child) file_unblock_pipe(sink);
    if (status == LOCH_OK && state) status = LOCH_FAIL(IO, "%s: the program that compresses it failed", sink->path);
    if (status == LOCH_OK && !is_written)
        status = file_fail(strcmp(sink->path, "-") != 0 ? sink->path : "standard output", strerror(error));
    status = lochi_new_file_close(&sink->whole, status);
    *sink = (insight_sink){.file = NULL};
    return status;
}

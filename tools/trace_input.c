/* SPDX-License-Identifier: MIT */
/* Reads whole files. Compressed files go through gzip or zstd, which get the open file as standard input: no shell is
 * used, and no file name can be taken for an option. */
#include "trace_input.h"
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define INPUT_CHUNK ((size_t)1 << 20)

static bool input_has_suffix(const char *path, const char *suffix)
{
    const size_t length = strlen(path), suffix_length = strlen(suffix);
    return length >= suffix_length && !strcmp(path + length - suffix_length, suffix);
}

/* Returns the program that decompresses the file, by its name or its first bytes; NULL for a plain file. */
static const char *input_find_program(const char *path, int file)
{
    unsigned char start[4] = {0};
    const ssize_t count = pread(file, start, sizeof start, 0);
    if (input_has_suffix(path, ".gz") || (count >= 2 && !memcmp(start, "\x1f\x8b", 2))) return "gzip";
    if (input_has_suffix(path, ".zst") || (count == 4 && !memcmp(start, "\x28\xb5\x2f\xfd", 4))) return "zstd";
    return NULL;
}

static bool input_read_all(const char *path, int file, trace_array *text)
{
    for (;;) {
        if (!trace_array_reserve(text, text->count + INPUT_CHUNK, 1)) {
            tool_fail("%s: no memory to read it", path);
            return false;
        }
        const ssize_t count = read(file, (char *)text->data + text->count, INPUT_CHUNK);
        if (count == 0) return true;
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) {
            tool_fail("%s: %s", path, strerror(errno));
            return false;
        }
        text->count += (size_t)count;
    }
}

/* Starts `program -dc` with `file` as its input. Returns the descriptor to read from, or -1 and errno. */
static int input_spawn(const char *program, int file, pid_t *child)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    char *const arguments[] = {(char *)program, "-dc", NULL};
    if (pipe2(ends, O_CLOEXEC)) return -1;
    int code = posix_spawn_file_actions_init(&actions);
    if (!code) {
        code = posix_spawn_file_actions_adddup2(&actions, file, STDIN_FILENO);
        if (!code) code = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        /* Discards the program's messages; this program prints one line instead. */
        if (!code) code = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        if (!code) code = posix_spawnp(child, program, &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (!code) return ends[0];
    close(ends[0]);
    errno = code;
    return -1;
}

static bool input_decompress(const char *path, const char *program, int file, trace_array *text)
{
    pid_t child;
    int state = 0;
    const int end = input_spawn(program, file, &child);
    if (end < 0) {
        tool_fail("%s: %s is needed to read it, and cannot be started: %s", path, program, strerror(errno));
        return false;
    }
    const bool is_read = input_read_all(path, end, text);
    close(end);
    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        ;
    if (is_read && state) tool_fail("%s: %s cannot decompress it", path, program);
    return is_read && !state;
}

bool trace_input_read(const char *path, trace_array *text)
{
    const bool is_standard = !strcmp(path, "-");
    const int file = is_standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        tool_fail("%s: %s", path, strerror(errno));
        return false;
    }
    const char *program = is_standard ? NULL : input_find_program(path, file);
    const bool is_good = program ? input_decompress(path, program, file, text) : input_read_all(path, file, text);
    if (!is_standard) close(file);
    return is_good;
}

/* SPDX-License-Identifier: MIT */
/* replay FILE-OR-FOLDER...: runs a fuzz target over inputs that are kept, without a fuzzer. A folder without inputs is
 * a failure; so is an input that ends the program, and its name is printed then. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static char replay_path[4096];
static size_t replay_count;

static void replay_died(int number)
{
    static const char text[] = "that was the input ";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0 || write(STDERR_FILENO, replay_path, strlen(replay_path)) < 0 ||
        write(STDERR_FILENO, "\n", 1) < 0)
        _exit(3);
    raise(number);
}

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "re");
    const long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (!file || bytes < 0 || fseek(file, 0, SEEK_SET) != 0) {
        fuzz_fail("%s: %s", path, strerror(errno));
        return;
    }
    /* Of its very size, so that a read beyond the end is seen. */
    uint8_t *input = malloc(bytes ? (size_t)bytes : 1);
    if (!input || fread(input, 1, (size_t)bytes, file) != (size_t)bytes) fuzz_fail("%s: cannot be read", path);
    fclose(file);
    snprintf(replay_path, sizeof replay_path, "%s", path);
    (void)LLVMFuzzerTestOneInput(input, (size_t)bytes);
    free(input);
    replay_count++;
}

static void replay_folder(const char *path)
{
    struct dirent **entries;
    const int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) fuzz_fail("%s: %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        char name[4096];
        struct stat info;
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (stat(name, &info) == 0 && S_ISREG(info.st_mode)) replay_file(name);
        free(entries[i]);
    }
    free(entries);
}

int main(int count, char **arguments)
{
    const struct sigaction action = {.sa_handler = replay_died, .sa_flags = SA_RESETHAND};
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    if (LLVMFuzzerInitialize(&count, &arguments)) return 1;
    for (int i = 1; i < count; i++) {
        struct stat info;
        if (stat(arguments[i], &info)) fuzz_fail("%s: %s", arguments[i], strerror(errno));
        if (S_ISDIR(info.st_mode))
            replay_folder(arguments[i]);
        else
            replay_file(arguments[i]);
    }
    printf("%zu inputs\n", replay_count);
    if (replay_count) return 0;
    fprintf(stderr, "no input was run\n");
    return 1;
}

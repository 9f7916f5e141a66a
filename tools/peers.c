/* SPDX-License-Identifier: MIT */
/* Peers: the list of allocators to compare with, running this program again as one of them, and reading its results. */
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEER_ARGUMENTS_MAX 64
#define PEER_NUMBER 32

/* Lists the peers; the first is Loch. A library is preloaded by the name under which the system finds it. */
static const struct {
    const char *name, *library;
    peer_kind kind;
} peer_list[] = {
    {"loch", NULL, PEER_POOL},
    {"libc", NULL, PEER_MALLOC},
    {"jemalloc", "libjemalloc.so.2", PEER_MALLOC},
    {"mimalloc", "libmimalloc.so.2", PEER_MALLOC},
    {"tcmalloc", "libtcmalloc_minimal.so.4", PEER_MALLOC},
    {"raw", NULL, PEER_RAW},
    {"ordered", NULL, PEER_ORDERED},
};

#define PEER_LIST_COUNT (sizeof peer_list / sizeof *peer_list)

static size_t peer_find(const char *name)
{
    size_t at = 0;
    while (at < PEER_LIST_COUNT && strcmp(peer_list[at].name, name) != 0)
        at++;
    return at;
}

/* --- the child --- */

static int peer_is_library(struct dl_phdr_info *info, size_t bytes, void *name)
{
    (void)bytes;
    return info->dlpi_name && strstr(info->dlpi_name, name) != NULL;
}

bool peer_memory_open(peer_memory *memory, const char *name, const char *device)
{
    const size_t at = peer_find(name);
    *memory = (peer_memory){.request = {.size = sizeof memory->request}};
    if (at == PEER_LIST_COUNT) {
        tool_fail("there is no allocator \"%s\" to compare with", name);
        return false;
    }
    memory->kind = peer_list[at].kind;
    /* Checks that the library was loaded: the system only warns if it is missing. */
    if (peer_list[at].library && !dl_iterate_phdr(peer_is_library, (void *)peer_list[at].library)) {
        tool_fail("%s is not loaded", peer_list[at].library);
        return false;
    }
    if (memory->kind == PEER_MALLOC) return true;
    loch_status status = loch_device_open(device, &memory->device);
    if (status == LOCH_OK && memory->kind == PEER_POOL)
        status = loch_pool_create(memory->device, "bench", NULL, &memory->allocator);
    if (status == LOCH_OK && memory->kind == PEER_ORDERED && !loch_device_can(memory->device, LOCH_CAN_ORDERED))
        status = loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "%s has no stream-ordered allocator", device);
    if (status == LOCH_OK) memory->driver = loch_device_get_driver(memory->device, &memory->self);
    if (status != LOCH_OK) {
        tool_fail_status(status);
        peer_memory_close(memory);
    }
    return status == LOCH_OK;
}

void peer_memory_close(peer_memory *memory)
{
    loch_allocator_release(memory->allocator);
    loch_device_release(memory->device);
    memory->allocator = NULL;
    memory->device = NULL;
}

void peer_report(size_t which, double figure)
{
    printf("%zu %.6g\n", which, figure);
}

static int peer_compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double peer_median(double *figures, size_t count)
{
    qsort(figures, count, sizeof *figures, peer_compare);
    return figures[count / 2];
}

/* --- running it --- */

/* Arguments with numbers, as text. */
typedef struct peer_numbers {
    char bytes[TOOL_NUMBERS_MAX][PEER_NUMBER], threads[TOOL_NUMBERS_MAX][PEER_NUMBER];
} peer_numbers;

static char *peers_number(char text[PEER_NUMBER], const char *name, size_t number)
{
    snprintf(text, PEER_NUMBER, "%s=%zu", name, number);
    return text;
}

/* Builds the command line of a child: the parent's with --as added. */
static void peers_arguments(const peer_bench *bench, const char *name, char **arguments, peer_numbers *numbers)
{
    const tool_bench_options *options = bench->options;
    size_t count = 0;
    const char *const start[] = {bench->name, "--as", name, "--device", options->device};
    arguments[count++] = (char *)tool_program;
    if (*options->command) arguments[count++] = (char *)options->command;
    for (size_t i = 0; i < sizeof start / sizeof *start; i++)
        arguments[count++] = (char *)start[i];
    if (options->is_quick) arguments[count++] = "--quick";
    for (size_t i = 0; i < options->traces_count; i++) {
        arguments[count++] = "--trace";
        arguments[count++] = (char *)options->traces[i];
    }
    for (size_t i = 0; i < options->bytes_count; i++)
        arguments[count++] = peers_number(numbers->bytes[i], "--bytes", options->bytes[i]);
    for (size_t i = 0; i < options->threads_count; i++)
        arguments[count++] = peers_number(numbers->threads[i], "--threads", options->threads[i]);
    if (options->is_hand_over) arguments[count++] = "--hand-over";
    arguments[count] = NULL;
}

/* Builds the environment with the library preloaded. The caller frees the array but not its strings. NULL if there is
 * no memory. */
static char **peers_environment(char *preload)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **all = malloc((count + 2) * sizeof *all);
    if (!all) return NULL;
    for (size_t i = 0; i < count; i++)
        if (!*preload || strncmp(environ[i], "LD_PRELOAD=", 11) != 0) all[kept++] = environ[i];
    if (*preload) all[kept++] = preload;
    all[kept] = NULL;
    return all;
}

/* Starts a child. Returns the file descriptor to read its results from, or -1. */
static int peers_spawn(const peer_bench *bench, size_t peer, pid_t *child)
{
    char *arguments[PEER_ARGUMENTS_MAX], preload[128] = "";
    const char *library = peer_list[peer_find(bench->peers[peer])].library;
    posix_spawn_file_actions_t actions;
    int ends[2];
    peer_numbers numbers;
    peers_arguments(bench, bench->peers[peer], arguments, &numbers);
    if (library) snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
    char **all = peers_environment(preload);
    if (!all || pipe2(ends, O_CLOEXEC)) {
        free(all);
        return -1;
    }
    int code = posix_spawn_file_actions_init(&actions);
    if (!code) {
        code = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        /* A peer that cannot be run counts as absent, not as a failure. */
        if (!code && peer) code = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        if (!code) code = posix_spawn(child, "/proc/self/exe", &actions, NULL, arguments, all);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    free(all);
    if (!code) return ends[0];
    close(ends[0]);
    return -1;
}

/* Runs one turn of one peer. Returns false if it could not be measured. */
static bool peers_measure(peer_bench *bench, size_t peer, size_t round)
{
    pid_t child;
    int state = 0;
    size_t which, found = 0;
    double figure;
    const int end = peers_spawn(bench, peer, &child);
    if (end < 0) return false;
    FILE *file = fdopen(end, "r");
    while (file && fscanf(file, "%zu %lf", &which, &figure) == 2) {
        if (which >= bench->cases) continue;
        bench->samples[peer][which][round] = figure;
        found++;
    }
    if (file)
        fclose(file);
    else
        close(end);
    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        ;
    return !state && found == bench->cases;
}

/* Chooses the peers: on the host those that replace malloc, on other devices the driver's own allocators. */
static void peers_choose(peer_bench *bench, bool is_host)
{
    for (size_t i = 0; i < PEER_LIST_COUNT; i++)
        if (peer_list[i].kind == PEER_POOL || is_host == (peer_list[i].kind == PEER_MALLOC))
            bench->peers[bench->peers_count++] = peer_list[i].name;
}

static void peers_sum_up(peer_bench *bench)
{
    for (size_t peer = 0; peer < bench->peers_count; peer++)
        for (size_t which = 0; which < bench->cases; which++)
            bench->figures[peer][which] =
                bench->is_absent[peer] ? -1 : peer_median(bench->samples[peer][which], bench->rounds);
}

int peers_run(peer_bench *bench)
{
    loch_device *device;
    loch_device_properties properties = {.size = sizeof properties};
    loch_status status = loch_device_open(bench->options->device, &device);
    if (status == LOCH_OK) status = loch_device_get_properties(device, &properties);
    if (status != LOCH_OK) return tool_fail_status(status);
    loch_device_release(device);
    peers_choose(bench, !strcmp(properties.driver, "cpu"));
    tool_progress progress = {.label = bench->name, .total = bench->rounds * bench->peers_count};
    tool_progress_show(&progress, 0);
    for (size_t round = 0; round < bench->rounds; round++)
        for (size_t peer = 0; peer < bench->peers_count; peer++) {
            if (!bench->is_absent[peer]) bench->is_absent[peer] = !peers_measure(bench, peer, round);
            if (bench->is_absent[0]) {
                tool_progress_end(&progress);
                return tool_fail("the pool could not be measured on %s", bench->options->device);
            }
            tool_progress_show(&progress, round * bench->peers_count + peer + 1);
        }
    tool_progress_end(&progress);
    peers_sum_up(bench);
    return TOOL_DONE;
}

/* --- results --- */

size_t peers_best(const peer_bench *bench, size_t which)
{
    size_t best = 0;
    for (size_t peer = 1; peer < bench->peers_count; peer++) {
        const double figure = bench->figures[peer][which], other = bench->figures[best][which];
        if (figure < 0) continue;
        if (!best || (bench->higher_is_better ? figure > other : figure < other)) best = peer;
    }
    return best;
}

double peers_ratio(const peer_bench *bench, size_t which)
{
    const size_t best = peers_best(bench, which);
    const double own = bench->figures[0][which], other = bench->figures[best][which];
    return best && own >= 0 && other > 0 ? own / other : -1;
}

void peers_print_heads(const peer_bench *bench)
{
    for (size_t peer = 0; peer < bench->peers_count; peer++)
        if (!bench->is_absent[peer]) printf(" %10s", bench->peers[peer]);
    printf(" %8s\n", "ratio");
}

void peers_print_row(const peer_bench *bench, size_t which, double scale)
{
    for (size_t peer = 0; peer < bench->peers_count; peer++) {
        if (bench->is_absent[peer]) continue;
        if (bench->figures[peer][which] < 0)
            printf(" %10s", "-");
        else
            printf(" %10.1f", bench->figures[peer][which] * scale);
    }
    const double ratio = peers_ratio(bench, which);
    if (ratio < 0)
        printf(" %8s\n", "-");
    else
        printf(" %8.3f to %s\n", ratio, bench->peers[peers_best(bench, which)]);
}

void peers_print_json(const peer_bench *bench, json_writer *json)
{
    json_text(json, "benchmark", bench->name);
    json_text(json, "device", bench->options->device);
    json_number(json, "rounds", bench->rounds);
    json_open_array(json, "peers");
    for (size_t peer = 1; peer < bench->peers_count; peer++) {
        json_open_object(json, NULL);
        json_text(json, "name", bench->peers[peer]);
        json_flag(json, "is_present", !bench->is_absent[peer]);
        json_close_object(json);
    }
    json_close_array(json);
}

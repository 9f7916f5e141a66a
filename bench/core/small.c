/* SPDX-License-Identifier: MIT */
/* `core small`: measures how much memory small blocks of the host take, in the pool and in other allocators
 * (peers.h).
 *
 *   entries   24 to 64 bytes, like the entries of hash tables
 *   strings   8 to 512 bytes, as many from every doubling
 *   mixed     one block of up to 8 KiB for fifteen strings
 *
 * Each case fills the memory with live blocks, replaces random ones, frees a third, and reads how much memory of the
 * process is resident: bytes for each byte that is still requested. Every block is written. */
#include "core.h"
#include "tools/peers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL_LIVE 400000
#define SMALL_QUICK_LIVE 4000
#define SMALL_ROUNDS 3

typedef struct small_case {
    const char *name;
    unsigned least, most; /* bytes */
    unsigned large;       /* one block in this many has up to 8 KiB; 0 for none */
} small_case;

static const small_case small_cases[] = {{"entries", 24, 64, 0}, {"strings", 8, 512, 0}, {"mixed", 8, 512, 16}};

#define SMALL_CASES (sizeof small_cases / sizeof *small_cases)

typedef struct small_block {
    void *address;
    size_t bytes;
} small_block;

/* --- measuring, in the child --- */

static uint32_t small_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static size_t small_bytes(const small_case *it, uint64_t *state)
{
    if (it->large && small_next(state) % it->large == 0) return 512 + small_next(state) % 7681;
    if (it->most < 2 * it->least + 32) return it->least + small_next(state) % (it->most - it->least + 1);
    size_t low = it->least;
    for (uint32_t doublings = small_next(state) % 6; doublings && 2 * low < it->most; doublings--)
        low *= 2;
    return low + small_next(state) % low;
}

static size_t small_resident(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    const int read = file ? fscanf(file, "%llu %llu", &all, &resident) : 0;
    if (file) fclose(file);
    return read == 2 ? (size_t)resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

static bool small_replace(peer_memory *memory, small_block *block, size_t bytes)
{
    if (block->address && !peer_free(memory, block->address, block->bytes)) return false;
    *block = (small_block){bytes ? peer_alloc(memory, bytes) : NULL, bytes};
    if (bytes && !block->address) return false;
    if (bytes) memset(block->address, 1, bytes);
    return true;
}

/* Returns resident bytes for each requested byte; negative if a call failed. */
static double small_measure(peer_memory *memory, const small_case *it, small_block *blocks, size_t live)
{
    uint64_t state = 1;
    size_t requested = 0;
    bool is_well = true;
    memset(blocks, 0, live * sizeof *blocks);
    const size_t before = small_resident();
    for (size_t i = 0; is_well && i < live; i++)
        is_well = small_replace(memory, &blocks[i], small_bytes(it, &state));
    for (size_t i = 0; is_well && i < 2 * live; i++)
        is_well = small_replace(memory, &blocks[small_next(&state) % live], small_bytes(it, &state));
    for (size_t i = 0; is_well && i < live / 3; i++)
        is_well = small_replace(memory, &blocks[small_next(&state) % live], 0);
    const size_t after = small_resident();
    for (size_t i = 0; i < live; i++) {
        requested += blocks[i].bytes;
        is_well = small_replace(memory, &blocks[i], 0) && is_well;
    }
    return is_well && requested && after > before ? (double)(after - before) / (double)requested : -1;
}

/* Measures one case. The blocks' records are touched before, so that they do not count. */
static int small_run(const tool_bench_options *options, size_t which)
{
    const size_t live = options->is_quick ? SMALL_QUICK_LIVE : SMALL_LIVE;
    small_block *blocks = malloc(live * sizeof *blocks);
    peer_memory memory;
    if (!blocks) return tool_fail("there is no memory for %zu blocks", live);
    if (!peer_memory_open(&memory, options->as, options->device)) {
        free(blocks);
        return TOOL_FAILED;
    }
    peer_report(which, small_measure(&memory, &small_cases[which], blocks, live));
    peer_memory_close(&memory);
    free(blocks);
    return TOOL_DONE;
}

/* Measures each case in a process of its own: what one case leaves behind would serve the next. */
static int small_child(const tool_bench_options *options)
{
    for (size_t which = 0; which < SMALL_CASES; which++) {
        fflush(stdout);
        const pid_t child = fork();
        int state = 0;
        if (!child) {
            const int code = small_run(options, which);
            fflush(stdout);
            _exit(code);
        }
        if (child < 0) return tool_fail("a process could not be started");
        while (waitpid(child, &state, 0) < 0 && errno == EINTR)
            ;
        if (state) return TOOL_FAILED;
    }
    return TOOL_DONE;
}

/* --- results --- */

static void small_print_text(const peer_bench *bench)
{
    printf("small blocks on %s: resident bytes for 100 bytes requested\n\n%-26s", bench->options->device, "");
    peers_print_heads(bench);
    for (size_t which = 0; which < SMALL_CASES; which++) {
        printf("%-26s", small_cases[which].name);
        peers_print_row(bench, which, 100);
    }
    for (size_t peer = 1; peer < bench->peers_count; peer++)
        if (bench->is_absent[peer]) printf("absent: %s\n", bench->peers[peer]);
}

static void small_print_json(const peer_bench *bench)
{
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    peers_print_json(bench, &json);
    json_open_array(&json, "results");
    for (size_t which = 0; which < SMALL_CASES; which++)
        for (size_t peer = 0; peer < bench->peers_count; peer++) {
            if (bench->figures[peer][which] < 0) continue;
            json_open_object(&json, NULL);
            json_text(&json, "allocator", bench->peers[peer]);
            json_text(&json, "case", small_cases[which].name);
            json_real(&json, "resident_per_requested", bench->figures[peer][which]);
            json_close_object(&json);
        }
    json_close_array(&json);
    json_close_object(&json);
}

int core_small(const tool_bench_options *options)
{
    static peer_bench bench; /* static because it is large; the program runs once */
    if (options->as) return small_child(options);
    if (strncmp(options->device, "cpu", 3) != 0) {
        if (options->is_json) return tool_fail("small blocks are measured on the cpu alone");
        printf("small blocks are measured on the cpu alone\n");
        return TOOL_DONE;
    }
    bench = (peer_bench){
        .name = "small", .options = options, .cases = SMALL_CASES, .rounds = options->is_quick ? 1 : SMALL_ROUNDS};
    const int code = peers_run(&bench);
    if (code == TOOL_DONE && options->is_json) small_print_json(&bench);
    if (code == TOOL_DONE && !options->is_json) small_print_text(&bench);
    return code;
}

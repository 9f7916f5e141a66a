/* SPDX-License-Identifier: MIT */
/* build/bench/core: benchmarks of single parts of the library, for changes of those parts. `loch bench` has the
 * benchmarks that users want. The options are the same. */
#include "core.h"
#include <stdio.h>
#include <string.h>

static const tool_benchmark core_list[] = {{"threads", core_threads, false},      {"small", core_small, false},
                                           {"pinned", core_pinned, false},        {"read", core_read, false},
                                           {"tracking", core_tracking, false},    {"strided", core_strided, true},
                                           {"compact", core_compact, false},      {"plan", core_plan, false},
                                           {"sleep", core_sleep, true},           {"share", core_share, true},
                                           {"behind-driver", core_behind, false}, {"fleet", core_fleet, true}};

static const char *const core_others[] = {"pool", "copy", "calls", "record", NULL};

static int core_run(int count, char **arguments)
{
    static const tool_bench_set set = {"",          core_list,          sizeof core_list / sizeof *core_list,
                                       core_others, "the loch program", "loch bench"};
    return tool_bench_run(&set, count, arguments);
}

static const tool_command core_command = {
    "core",
    "measures single parts of Loch",
    "Usage: core [NAME] [--device DEVICE] [--trace FILE]... [--threads COUNT]... [--bytes SIZE]...\n"
    "            [--hand-over] [--quick] [--json]\n\n"
    "Measures single parts of Loch and prints the ratios. Without a NAME all benchmarks run. More: loch bench.\n\n"
    "  threads           how throughput grows with threads, beside libc, jemalloc, mimalloc and tcmalloc; on other\n"
    "                    devices beside the driver's own allocators\n"
    "  small             memory that small blocks of the host take, beside the same\n"
    "  pinned            pinned memory: time to take it, beside the driver's own, and bytes held for those requested\n"
    "  read              recordings that are read: a memory snapshot of PyTorch, or those of --trace\n"
    "  tracking          what a tracking wrapper adds to allocations and frees\n"
    "  strided           copies of tensors between layouts and types, beside plain copies\n"
    "  compact           the compaction of a pool that was left half empty, beside plain copies\n"
    "  plan              how long a pool of ten thousand handles plans a compaction\n"
    "  sleep             pools that go to sleep and wake, beside plain copies\n"
    "  share             buffers shared with another process: exports, imports, releases\n"
    "  behind-driver     requests that fit, while another thread makes the driver map memory\n"
    "  fleet             simulated devices of loch fleet that run the traces of --trace: 10 of them, and 1,000\n\n"
    "  --device DEVICE   where: cpu (default), cuda:0, sim:8GiB, ...\n"
    "  --trace FILE      read: measures this file; fleet: a program; may be given several times\n"
    "  --threads COUNT   threads: how many; may be given several times (default: 1, 2, 4, ...); fleet: processes\n"
    "  --bytes SIZE      threads: of each block; may be given several times (default: 48, 4096, 65536)\n"
    "  --hand-over       threads: only blocks that one thread allocates and another frees\n"
    "  --quick           few repetitions, to see that it works; the figures are rough\n"
    "  --json            figures as one JSON object; needs a NAME\n",
    .run = core_run,
};

int main(int count, char **arguments)
{
    tool_program = "core";
    tool_end_with_pipe();
    if (count == 2 && !strcmp(arguments[1], "--version")) {
        printf("core %s\n", loch_version());
        return tool_end(TOOL_DONE);
    }
    return tool_end(tool_run(&core_command, count - 1, arguments + 1));
}

/* SPDX-License-Identifier: MIT */
/* `loch bench`: the benchmarks that users of the library want. bench/core has the others. */
#include "bench.h"

static const tool_benchmark bench_list[] = {{"pool", tool_bench_pool, false},
                                            {"copy", tool_bench_copy, true},
                                            {"calls", tool_bench_calls, false},
                                            {"record", tool_bench_record, false}};

/* tests/cli/cases/core_names.case compares these names with the help of bench/core. */
static const char *const bench_others[] = {"threads",       "small",   "pinned", "read",  "tracking",
                                           "strided",       "compact", "plan",   "sleep", "share",
                                           "behind-driver", "fleet",   NULL};

static int bench_run(int count, char **arguments)
{
    static const tool_bench_set set = {"bench",      bench_list,        sizeof bench_list / sizeof *bench_list,
                                       bench_others, "the source tree", "build/bench/core"};
    return tool_bench_run(&set, count, arguments);
}

const tool_command tool_bench = {
    "bench",
    "measures Loch beside what is installed",
    "Usage: loch bench [NAME] [--device DEVICE] [--trace FILE]... [--threads COUNT]... [--quick] [--json]\n\n"
    "Measures Loch beside what is installed and prints the ratios. Without a NAME all benchmarks run.\n\n"
    "  pool              allocations and frees, beside libc, jemalloc, mimalloc and tcmalloc; on other\n"
    "                    devices beside the driver's own allocators\n"
    "  copy              copies and fills, beside the driver's own calls\n"
    "  calls             what driver calls cost; as text a cost table for simulated devices\n"
    "  record            what the recorder adds to allocations and frees, and bytes of its file\n\n"
    "  --device DEVICE   where: cpu (default), cuda:0, sim:8GiB, ...\n"
    "  --trace FILE      pool: measures the events of a trace too; may be given several times\n"
    "  --threads COUNT   record: how many; may be given several times (default: 1, 2, 4, ...)\n"
    "  --quick           few repetitions, to see that it works; the figures are rough\n"
    "  --json            figures as one JSON object; needs a NAME\n\n"
    "More benchmarks, of single parts of the library, are built with the source tree: build/bench/core --help.\n",
    .run = bench_run,
};

/* SPDX-License-Identifier: MIT */
/* `loch bench`: chooses a benchmark. */
#include "tool.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const char *device, bool json);
} benchmarks[] = {{"copy", tool_bench_copy}, {"calls", tool_bench_calls}, {"tracking", tool_bench_tracking}};

static int bench_run(int count, char **arguments)
{
    tool_options options = {"bench", count, arguments, 0};
    const char *argument, *name = NULL, *device = "cpu";
    bool json = false;
    while ((argument = tool_next(&options))) {
        if (!strcmp(argument, "--json")) {
            json = true;
        } else if (tool_option_value(&options, argument, "--device", &device)) {
            if (!device) return tool_misuse("bench", "--device needs a device's name");
        } else if (*argument == '-' || name) {
            return tool_misuse("bench", "\"%s\" is not understood", argument);
        } else {
            name = argument;
        }
    }
    for (size_t i = 0; name && i < sizeof benchmarks / sizeof *benchmarks; i++)
        if (!strcmp(name, benchmarks[i].name)) return benchmarks[i].run(device, json);
    if (name) return tool_misuse("bench", "there is no benchmark \"%s\"", name);
    if (json) return tool_misuse("bench", "--json needs the NAME of one benchmark");
    int code = TOOL_DONE;
    for (size_t i = 0; code == TOOL_DONE && i < sizeof benchmarks / sizeof *benchmarks; i++) {
        printf("%s%s\n", i ? "\n" : "", benchmarks[i].name);
        code = benchmarks[i].run(device, json);
    }
    return code;
}

const tool_command tool_bench = {
    "bench",
    "measures Loch beside what is installed",
    "Usage: loch bench [NAME] [--device DEVICE] [--json]\n\n"
    "Measures Loch beside what is installed and prints the ratios. Without a NAME all benchmarks run.\n\n"
    "  copy              copies and fills, beside the driver's own calls\n"
    "  calls             what driver calls cost; as text a cost table for simulated devices\n"
    "  tracking          what a tracking wrapper adds to allocations and frees\n\n"
    "  --device DEVICE   where: cpu (default), cuda:0, sim:8GiB,backed, ...\n"
    "  --json            figures as JSON\n",
    bench_run,
};

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of `make bench-gpu` from the files of run.py: a page, and the parts of pages between their markers.

    tables.py FILE... [--json MERGED] [--page PAGE.md] [--readme README.md] [--long docs/benchmarks.md]

The long tables go into --page and --long, one short table into --readme. Several files are runs of one benchmark in parts or rounds: they are joined.
"""
import argparse
import json
import math
import statistics
import sys

import run

COLUMNS = {"native": "PyTorch", "expandable": "expandable segments", "async": "cudaMallocAsync", "rmm": "RMM pool", "loch": "Loch"}
START, END = "<!-- bench-gpu -->", "<!-- end -->"
UNCOUNTED_BYTES, UNCOUNTED_PART = 64 << 20, 0.02  # less is the noise of contexts and libraries
RECORD = "RMM's plug-in for PyTorch has no `record_stream`: a block may be used again while another stream still reads it"
KNOWN = {("rmm", "offload_train"): RECORD, ("rmm", "stream_infer"): RECORD, ("rmm", "recorded_stream_infer"): RECORD,
         ("rmm", "graph_serve"): "RMM's plug-in has no pool of its own for a graph"}
ORDER = [*run.PROGRAMS, *run.RECORDED]


def merge(paths):
    """Joins files of run.py: (sessions, runs)."""
    sessions, runs = [], []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        for one in found["runs"]:
            runs.append(dict(one, session=one["session"] + len(sessions)))
        sessions += found["sessions"]
    if len({one["is_quick"] for one in sessions}) > 1:
        raise ValueError("quick runs and whole ones are not joined: their steps differ")
    return sessions, runs


class Notes:
    """Remarks below a table, by number. A remark that comes again keeps its number."""

    def __init__(self):
        self.texts = []

    def add(self, text):
        if text not in self.texts:
            self.texts.append(text)
        return f"<sup>{self.texts.index(text) + 1}</sup>"

    def lines(self):
        return [f"<sup>{number}</sup> {text}.  " for number, text in enumerate(self.texts, 1)] + [""] * bool(self.texts)


def reason(failure):
    """The line of a failure that says why, for people."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "error" in line]
    return (told or lines)[-1].rstrip(".")[:200].replace("|", "\\|")


def gib(count):
    return f"{count / 2**30:.1f} GiB"


def uncounted(ways, way):
    """Bytes on the device that an allocator does not count: what NVML has beyond its own figure, more than with PyTorch's allocator."""
    own, native = ways[way].get("outside"), ways.get("native", {}).get("outside")
    if own is None or native is None:
        return 0
    more = own - native
    return int(more) if more > max(UNCOUNTED_BYTES, UNCOUNTED_PART * ways[way]["peak_held"]) else 0


def ratio(ways, way):
    """Memory taken from the device at the peak over what the program holds; None without a figure."""
    summary = ways.get(way)
    if not summary or "failure" in summary or summary["losses"] == "DIFFER" or not summary["peak_held"]:
        return None
    return (summary["peak_reserved"] + uncounted(ways, way)) / summary["peak_held"]


def time_ratios(ways, way):
    summary = ways.get(way)
    return None if not summary or "failure" in summary or summary["losses"] == "DIFFER" else summary["times"] or None


def state(program, ways, way, notes):
    """The text of a cell without a figure, and the remarks of a cell with one."""
    summary, known = ways.get(way), KNOWN.get((way, program))
    if summary is None:
        return "not run", ""
    if "failure" in summary:
        return "fails" + notes.add(f"{COLUMNS[way]}, {program}: `{reason(summary['failure'])}`" + (f". {known}" if known else "")), ""
    if summary["losses"] == "DIFFER":
        return "wrong results" + notes.add(f"{COLUMNS[way]}, {program}: the results differ from PyTorch's by more than {run.TOLERANCE:.0%}"
                                           + (f". {known}" if known else "")), ""
    marks = notes.add(known) if known else ""
    if summary["failures"]:
        marks += notes.add(f"{COLUMNS[way]}, {program}: {len(summary['failures'])} of {summary['runs'] + len(summary['failures'])} runs "
                           f"failed: `{reason(summary['failures'][0])}`")
    return "", marks


def memory_cell(program, ways, way, notes):
    empty, marks = state(program, ways, way, notes)
    value = ratio(ways, way)
    if empty or value is None:
        return empty or "-"
    if uncounted(ways, way):
        marks += notes.add(f"{COLUMNS[way]}, {program}: with {gib(uncounted(ways, way))} on the device that the allocator does not count (NVML)")
    values = [round(other, 2) for column in COLUMNS if (other := ratio(ways, column))]
    text = f"{value:.2f}"
    return (f"**{text}**" if round(value, 2) == min(values) else text) + marks


def spread(values):
    """The median; with several values, the least and the most."""
    text = f"{statistics.median(values):.2f}"
    return text if len(values) == 1 else f"{text} ({min(values):.2f} to {max(values):.2f})"


def mean(values):
    values = [value for value in values if value]
    return f"{math.exp(statistics.fmean(map(math.log, values))):.2f}" if values else "-"


def lines_of(head, rows):
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head)] + [f"| {' | '.join(row)} |" for row in rows] + [""]


def whole(summaries, way):
    """Whether a way has a figure for every program: only then a mean can be compared."""
    return all(ratio(ways, way) for ways in summaries.values())


def memory_table(summaries, notes):
    head = ["", "holds", *COLUMNS.values()]
    rows = [[program, gib(ways["native"]["peak_held"]) if "peak_held" in ways.get("native", {}) else "-",
             *(memory_cell(program, ways, way, notes) for way in COLUMNS)] for program, ways in summaries.items()]
    rows.append(["geometric mean", "", *(mean([ratio(ways, way) for ways in summaries.values()]) if whole(summaries, way) else "-"
                                         for way in COLUMNS)])
    return lines_of(head, rows)


def time_table(summaries):
    ways_of = {"again": "PyTorch again", **{way: name for way, name in COLUMNS.items() if way != "native"}}
    rows = []
    for program, ways in summaries.items():
        native = ways.get("native", {})
        cells = [f"{native['step_ms']:.1f} ms" if "step_ms" in native else "-"]
        rows.append([program, *cells, *(spread(times) if (times := time_ratios(ways, way)) else "-" for way in ways_of)])
    medians = {way: [statistics.median(times) if (times := time_ratios(ways, way)) else None for ways in summaries.values()] for way in ways_of}
    rows.append(["geometric mean", "", *(mean(medians[way]) if all(medians[way]) else "-" for way in ways_of)])
    return lines_of(["", "PyTorch", *ways_of.values()], rows)


def recorded_table(summaries, notes):
    rows = []
    for program, ways in summaries.items():
        cells = []
        for way in COLUMNS:
            text = memory_cell(program, ways, way, notes)
            time = ways.get(way, {}).get("ns_per_event")
            cells.append(f"{text}, {time:,.0f} ns" if time is not None and ratio(ways, way) else text)
        rows.append([program.removeprefix("recorded_"), gib(ways["native"]["peak_held"]) if "peak_held" in ways.get("native", {}) else "-",
                     *cells])
    return lines_of(["", "holds", *COLUMNS.values()], rows)


def results_line(summaries):
    """Says how well the results agree: bit for bit, or how much they differ, beside what two runs of PyTorch differ by."""
    differing = []
    for program, ways in summaries.items():
        close = [f"{COLUMNS.get(way, 'PyTorch again')} {summary['loss_difference']:.0e}" for way, summary in ways.items()
                 if way != "native" and "failure" not in summary and summary["losses"] == "close"]
        if close:
            differing.append(f"{program} (relative difference: {', '.join(close)})")
    return "The results of all programs are PyTorch's bit for bit, except " + "; ".join(differing) + "." if differing else \
        "The results of all programs are PyTorch's bit for bit."


def unique(values):
    return " and ".join(dict.fromkeys(str(value) for value in values if value))


def source_line(sessions, runs):
    """The sentence with machine, versions, date, command and number of rounds."""
    rmm = unique(one.get("version") for one in runs if one["way"] == "rmm")
    rounds = sorted({len([one for one in runs if (one["program"], one["way"]) == key]) for key in {(one["program"], one["way"]) for one in runs}})
    parts = [f"`make bench-gpu`, {unique(one['date'] for one in sessions)}: {unique(one['gpu'] for one in sessions)}",
             f"driver {unique(one['driver'] for one in sessions)}", f"PyTorch {unique(one['torch'] for one in sessions)}"]
    parts += [f"RMM {rmm}"] * bool(rmm) + [unique(one["loch"].replace("loch", "Loch") for one in sessions)]
    times = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    quick = " A quick run: a quarter of the steps." if any(one.get("is_quick") for one in sessions) else ""
    fixture = " **This is test data, not a measurement.**" if any(one.get("is_fixture") for one in sessions) else ""
    return f"{', '.join(part for part in parts if part)}; {times} {'round' if rounds == [1] else 'rounds'}, the allocators in turn.{quick}{fixture}"


def page(sessions, runs):
    """Returns the tables as lines of Markdown."""
    summaries = {program: ways for program, ways in sorted(run.summarize_all(runs).items(), key=lambda item: ORDER.index(item[0]))}
    programs = {program: ways for program, ways in summaries.items() if program in run.PROGRAMS}
    recorded = {program: ways for program, ways in summaries.items() if program in run.RECORDED}
    notes, lines = Notes(), [source_line(sessions, runs), ""]
    if programs:
        lines += ["Memory taken from the device at the peak, as each allocator counts it, divided by the bytes that the program holds then. "
                  "1.00 cannot be beaten; the least of each row is bold.", ""] + memory_table(programs, notes)
        lines += ["Step time relative to PyTorch in the same round: the median, and the least and the most. *PyTorch again* is a second run "
                  "of PyTorch's allocator: differences as small as its own are noise.", ""] + time_table(programs)
        lines += [results_line(programs), ""]
    if recorded:
        lines += ["Recorded requests ([traces](../bench/traces/README.md)) through PyTorch's C++ calls at their recorded pace, without kernels: "
                  "the same measure of memory, and the allocator's time for a request.", ""] + recorded_table(recorded, notes)
    absent = [program for program in ORDER if program not in summaries]
    if absent:
        lines += [f"Not measured: {', '.join(absent)}.", ""]
    return lines + notes.lines()


def range_of(values):
    return f"{min(values):.2f} to {max(values):.2f}"


def short_rows(summaries):
    """One row for each question, one column for each allocator. A mean and a range are of all programs, or not given."""
    memory = {way: {program: ratio(ways, way) for program, ways in summaries.items()} for way in COLUMNS}
    times = {way: {program: statistics.median(found) if (found := time_ratios(ways, way)) else None for program, ways in summaries.items()}
             for way in (*COLUMNS, "again")}
    least = {program: min(round(memory[way][program], 2) for way in COLUMNS if memory[way][program]) for program in summaries
             if any(memory[way][program] for way in COLUMNS)}
    rows = [["memory / needed, geometric mean"], ["memory / needed, range"], ["least memory, or as little, in"],
            ["step time / PyTorch, geometric mean"], ["step time / PyTorch, range"], ["fails or computes wrong results in"]]
    for way in COLUMNS:
        known = [value for value in memory[way].values() if value]
        time = times["again" if way == "native" else way]
        paces = [value for value in time.values() if value]
        is_whole = len(known) == len(summaries)
        rows[0].append(mean(known) if is_whole else "-")
        rows[1].append(range_of(known) if known else "-")
        rows[2].append(str(sum(round(value, 2) == least[program] for program, value in memory[way].items() if value)))
        rows[3].append(mean(paces) if paces and len(paces) == len(summaries) else "-")
        rows[4].append(range_of(paces) if paces else "-")
        rows[5].append(str(sum(way in ways and ("failure" in ways[way] or ways[way]["losses"] == "DIFFER") for ways in summaries.values())))
    return rows, memory, times["loch"], least


def short(sessions, runs):
    """Returns one table for README.md as lines of Markdown: means, ranges and misses over all programs."""
    summaries = {program: ways for program, ways in sorted(run.summarize_all(runs).items(), key=lambda item: ORDER.index(item[0]))
                 if program in run.PROGRAMS}
    if not summaries:
        return [source_line(sessions, runs)]
    rows, memory, times, least = short_rows(summaries)
    more = [f"{program} {memory['loch'][program]:.2f} ({least[program]:.2f})" for program in least
            if memory["loch"][program] and round(memory["loch"][program], 2) > least[program]]
    slower = [f"{program} {value:.2f}" for program, value in times.items() if value and value > 1.05]
    misses = [f"more memory than another allocator in {', '.join(more)}"] * bool(more) + [f"more than 5 % slower in {', '.join(slower)}"] * bool(slower)
    return [source_line(sessions, runs), "", *lines_of([f"{len(summaries)} programs", *COLUMNS.values()], rows),
            f"Misses of Loch: {'; '.join(misses) or 'none'}. In PyTorch's column the times are of its second run: differences as small as those "
            "are noise.", ""]


def fill(text, lines):
    """Returns a text with the lines between its markers. Raises ValueError if there are none."""
    if text.count(START) != 1 or END not in text.split(START)[1]:
        raise ValueError(f"the file has no {START} ... {END}")
    before, rest = text.split(START)
    return f"{before}{START}\n\n" + "\n".join(lines).rstrip() + f"\n\n{END}" + rest.split(END, 1)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--json", metavar="MERGED")
    parser.add_argument("--page", metavar="PAGE.md")
    parser.add_argument("--readme", metavar="README.md")
    parser.add_argument("--long", metavar="docs/benchmarks.md")
    arguments = parser.parse_args()
    try:
        sessions, runs = merge(arguments.files)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"tables.py: {error}")
    if not runs:
        sys.exit("tables.py: the files have no runs")
    lines = page(sessions, runs)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"sessions": sessions, "runs": runs, "summaries": run.summarize_all(runs)}, file, indent=1)
    if arguments.page:
        with open(arguments.page, "w", encoding="utf-8") as file:
            file.write("\n".join(lines).rstrip() + "\n")
    for path, part in ((arguments.readme, short(sessions, runs)), (arguments.long, lines)):
        if path:
            with open(path, encoding="utf-8") as file:
                text = fill(file.read(), part)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    if not arguments.page and not arguments.readme and not arguments.long:
        print("\n".join(lines))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""The page of `make bench-report`: the machine, the peers, a summary, and a section for each part."""
import time

from machine import BUSY_PART


class Part:
    """What came of one part: tables, or the reason why it was left out or failed."""

    def __init__(self, name, title, is_exact=False):
        self.is_exact = is_exact  # figures do not depend on what else the machine does
        self.name, self.title, self.tables, self.left, self.failure = name, title, [], "", ""
        self.seconds, self.others, self.commands, self.raw = 0.0, 0.0, [], []

    def is_disturbed(self, cores):
        return not self.is_exact and not self.left and self.others > BUSY_PART * cores

    def missed(self, is_rough):
        return [one for table in self.tables for one in table.missed(is_rough)]

    def outcome(self, is_rough):
        """Returns one line: what came of this part."""
        if self.left:
            return f"left out: {self.left}"
        if self.failure:
            return f"failed: {self.failure}"
        rows, missed = sum(len(table.rows) for table in self.tables), len(self.missed(is_rough))
        return f"{rows} row{'s' * (rows != 1)}" + (f", {missed} of their bars missed" if missed else "")

    def lines(self, is_rough, cores):
        result = [f"## {self.title}", ""]
        if self.left or self.failure:
            outcome = self.outcome(is_rough).rstrip(".")
            result += [f"{outcome[0].upper()}{outcome[1:]}.", ""]
        if not self.tables:
            return result
        result += ["```console"] + [f"$ {command}" for command in self.commands] + ["```", ""]
        if self.is_disturbed(cores):
            result += [f"**Other programs used {self.others:.1f} of {cores} processors meanwhile: do not rely on these figures.**", ""]
        for table in self.tables:
            result += table.page(is_rough)
        return result

    def as_json(self):
        return {"name": self.name, "left_out": self.left or None, "failure": self.failure or None, "seconds": self.seconds,
                "processors_of_others": self.others, "commands": self.commands, "tables": [table.as_json() for table in self.tables],
                "raw": self.raw}


class Page:
    def __init__(self, machine, peers, load, cores, is_quick):
        self.machine, self.peers, self.load, self.cores, self.is_quick = machine, peers, load, cores, is_quick
        self.date, self.parts, self.is_complete = time.strftime("%Y-%m-%d %H:%M:%S %Z"), [], False

    def is_busy(self):
        return self.load > self.cores

    def warnings(self):
        """Returns what a reader has to know before the first figure."""
        result = []
        if self.is_busy():
            result.append(f"The machine was busy: the load was {self.load:.1f} at the start, on {self.cores} processors. Times and rates "
                          "below are noise. Repeat the run on a quiet machine.")
        disturbed = [part.title for part in self.parts if part.is_disturbed(self.cores)]
        if disturbed:
            result.append(f"Other programs used more than {BUSY_PART:.0%} of the processors during: {', '.join(disturbed)}.")
        if self.is_quick:
            result.append("A quick run, which shows that the benchmarks work. Timed figures are rough, and their bars are not judged.")
        if self.machine["build"] not in ("Release", "RelWithDebInfo"):
            result.append(f"The build is no build for benchmarks: its type is {self.machine['build']}.")
        if not self.is_complete:
            result.append("The run has not ended: parts are missing.")
        return result

    def summary(self):
        result = ["| part | result | missed |", "|---|---|---|"]
        for part in self.parts:
            missed = [f"{case} ({bar.text}: {bar.value:.4g})" for case, bar in part.missed(self.is_quick)]
            if len(missed) > 4:
                missed[4:] = [f"{len(missed) - 4} more"]
            result.append(f"| {part.title} | {part.outcome(self.is_quick)} | {'; '.join(missed)} |")
        return result

    def text(self):
        lines = ["# Benchmarks of Loch", "", f"Written by `make bench-report`, {self.date}.", ""]
        for warning in self.warnings():
            lines += [f"> **{warning}**", ""]
        lines += ["Ratios are Loch's figure over that of the best peer, inside one run. Figures are medians of the runs. A *bar* is a goal of "
                  "docs/benchmarks.md.", "", "## Machine", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in self.machine.items()]
        lines += ["", "## Peers", "", "| peer | version |", "|---|---|"]
        lines += [f"| {name} | {version or 'not installed'} |" for name, version in self.peers.items()]
        lines += ["", "## Summary", ""] + self.summary() + [""]
        for part in self.parts:
            lines += part.lines(self.is_quick, self.cores)
        return "\n".join(lines).rstrip() + "\n"

    def as_json(self):
        return {"date": self.date, "is_quick": self.is_quick, "is_busy": self.is_busy(), "is_complete": self.is_complete,
                "warnings": self.warnings(), "machine": self.machine, "peers": self.peers, "parts": [part.as_json() for part in self.parts]}

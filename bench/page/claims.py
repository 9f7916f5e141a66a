# SPDX-License-Identifier: MIT
"""Figures on a page, and whether they still hold.

Over each table of the page stands a comment:

    <!-- bench: loch replay bench/traces/{row}.trace.gz --device sim:140GiB --json
    machine: EPYC
    date: 2026-11-16
    spread: exact
    quick: yes
    ratio = reserved_ratio
    -->

The first line is the command that repeats the table. `machine` is a name of the page's table of machines. `spread` is `exact` (the figure
rounds to the digits on the page), a percentage, or words for figures that are not compared. `needs` says what the command needs besides the
build, in words of NEEDS; such a table is only run where it is asked for. `quick: yes` marks what `make test` compares. The other lines compare:
the name of a column, "=", and an expression of Python over a result of the command, after a comma another spread.

`{row}` in the command is the first word of a row, `{steps}` that of its column "steps", and each row is a run of its own. `each` names the list of
results in the JSON, or is a pattern between slashes whose named groups are a result. If there are several, `find(key=value)` is the first result
with these values, `row` is the first cell of the row (of the row above, if it is empty) and `cells` are all. An expression that finds nothing, or
gives None, compares nothing. A cell with several numbers is a range, unless the expression gives as many. "a / b" as the name of a column
is the ratio of two columns, for times that differ between machines.

Tables between <!-- bench-gpu --> and <!-- end --> are written by `make bench-gpu` and need no comment.
"""
import glob
import json
import os
import re
import shlex

from runner import Failed

NEEDS = {
    "gpu": "a GPU",
    "history": "older versions of the library",
    "quiet": "a machine without other work",
    "traces": "recordings that are not in this tree (--traces)",
    "valgrind": "valgrind",
    "peers": "the mallocs of peers (scripts/setup bench)",
    "mpi": "MPI (scripts/setup mpi)",
    "opencl": "OpenCL (scripts/setup test)",
    "torch": "PyTorch (scripts/setup torch)",
    "browser": "Chromium (scripts/setup browser)",
    "adapters": "the programs of adapters (scripts/setup adapters)",
    "models": "models and ONNX Runtime (scripts/setup embedder-bench)",
    "programs": "the programs of mimalloc-bench",
}
FACTS = ("machine", "date", "spread", "needs", "quick", "each")
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")
NO_FIGURES = "no figures"


class Claim:
    """One comment and the table below it. `line` is that of the comment."""

    def __init__(self, line, text):
        first, *rest = text.strip().splitlines()
        self.line, self.command = line, first.strip()
        self.facts, self.columns, self.head, self.rows, self.unread = {}, {}, [], [], []
        for one in rest:
            fact = re.match(r"(\w+): (.*)", one)
            column = re.match(r"(.+?) = (.*?)(?:, (exact|[\d.]+ %))?$", one)
            if fact and fact[1] in FACTS:
                self.facts[fact[1]] = fact[2].strip()
            elif column:
                self.columns[column[1]] = (column[2], column[3])
            elif one.strip():
                self.unread.append(one.strip())

    def needs(self):
        return self.facts.get("needs", "").split()

    def problems(self, root, machines):
        """Names what the comment lacks."""
        if self.command == NO_FIGURES:
            return
        for name in ("machine", "date", "spread"):
            if not self.facts.get(name):
                yield f"the comment has no {name}"
        for name in re.findall(r"{(\w+)}", self.command):
            if name not in self.head + ["row"]:
                yield f"the table has no column \"{name}\""
        yield from (f"the comment is not understood: {one}" for one in self.unread)
        if self.facts.get("machine", "").split(",")[0] not in machines + [""]:
            yield f"the page's table of machines has no \"{self.facts['machine']}\""
        if not re.fullmatch(r"(\d{4}-\d\d-\d\d)?", self.facts.get("date", "")):
            yield f"\"{self.facts['date']}\" is not a date such as 2026-11-16"
        yield from (f"nothing is known about the need \"{need}\": {', '.join(NEEDS)}" for need in self.needs() if need not in NEEDS)
        if self.columns and not self.rows:
            yield "figures are compared, but no table follows"
        for name in self.columns:
            for part in [name] if name in self.head else name.split(" / "):
                if part not in self.head:
                    yield f"the table has no column \"{part}\""
        if self.columns and not (all(spread for _, spread in self.columns.values()) or read_spread(self.facts.get("spread", "")) is not None):
            yield f"\"{self.facts.get('spread')}\" is neither exact nor a percentage, and figures are compared"
        if not self.columns and not self.needs():
            yield "nothing is compared, and the comment does not say what the command needs"
        yield from missing_programs(self.command, root)


def missing_programs(command, root):
    """Names the programs of a command that the tree does not have."""
    def is_there(*path):
        return glob.glob(os.path.join(root, *path))

    for word in re.findall(r"[\w./-]+", command):
        if re.match(r"build/bench/", word):
            found = is_there(f"bench/{word[12:]}.c") or is_there(f"bench/{word[12:]}")
        elif re.match(r"build/(tests|examples|apps)/", word):
            found = is_there(f"{word[6:]}.c") or is_there(word[6:])
        elif re.match(r"(bench|scripts|tests)/\w", word):
            found = is_there(word.rstrip(".") + "*")
        else:
            continue
        if not found and "{" not in word:
            yield f"the tree has no {word}"
    for program, source in (("loch bench", "tools/bench.c"), ("build/bench/core", "bench/core/main.c")):
        for name in re.findall(rf"(?:^|\s){program} ([a-z-]+)", command):
            with open(os.path.join(root, source), encoding="utf-8") as file:
                if f'{{"{name}",' not in file.read():
                    yield f"there is no {program} {name}"


def read_page(text):
    """Returns the claims of a page, the lines of tables that have none, the sections without a claim, and the names of machines."""
    claims, bare, sections, machines = [], [], {}, []
    lines, at, last, section = text.splitlines(), 0, None, None
    while at < len(lines):
        line = lines[at]
        if line.startswith("## "):
            section = line[3:]
            sections[section] = (at + 1, False)
        elif line.startswith("<!-- bench-gpu -->"):  # the command writes these tables, with machine, date and rounds in their first line
            while at + 1 < len(lines) and not lines[at].startswith("<!-- end -->"):
                at += 1
        elif line.startswith("<!-- bench:"):
            start = at
            while "-->" not in lines[at]:
                at += 1
            last = Claim(start + 1, "\n".join(lines[start:at + 1]).split("bench:", 1)[1].rsplit("-->", 1)[0])
            claims.append(last)
            sections[section] = (start + 1, True)
        elif line.startswith("|") and at + 1 < len(lines) and lines[at + 1].startswith("|--"):
            head, at = cells(line), at + 2
            rows = []
            while at < len(lines) and lines[at].startswith("|"):
                rows.append((at + 1, cells(lines[at])))
                at += 1
            if head[0] == "machine":
                machines = [row[0] for _, row in rows]
            if last and not last.rows:
                last.head, last.rows = head, rows
            else:
                bare.append(at - len(rows) - 1)
            last = None
            continue
        elif line.strip():
            last = None  # a comment belongs to the table right below it
        at += 1
    return claims, bare, [(line, name) for name, (line, is_there) in sections.items() if name and not is_there], machines


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def numbers(cell):
    """Returns the numbers of a cell as (value, half a unit of the last digit)."""
    found = []
    for text in NUMBER.findall(cell):
        digits = len(text.partition(".")[2])
        found.append((float(text.replace(",", "")), 0.5 * 10 ** -digits))
    return found


def read_spread(text):
    """Returns None for words, 0 for exact, and 0.05 for 5 %."""
    found = re.match(r"exact\b|([\d.]+) %", text or "")
    return None if not found else float(found[1] or 0) / 100


def holds(shown, found, spread):
    """Tells whether `found` is what the page shows. `shown` has the numbers of a cell: one, or the range of several."""
    low, high = min(shown), max(shown)
    room = (lambda one: one[1] * 1.0001) if spread == 0 else (lambda one: abs(one[0]) * spread + one[1])
    return low[0] - room(low) <= found <= high[0] + room(high)


class NotFound(Exception):
    """No result has the values that an expression asks for."""


def evaluate(expression, results, row, group):
    """Returns the value of an expression, or None if no result is meant."""
    def find(**wanted):
        for one in results:
            if all(one.get(key) == value for key, value in wanted.items()):
                return one
        raise NotFound

    names = {"find": find, "row": row[0] or group, "cells": row, "round": round, "str": str, "float": float, "int": int, "len": len, "__builtins__": {}}
    try:
        return eval(expression, names, dict(results[0]) if len(results) == 1 else {})  # pylint: disable=eval-used
    except NotFound:
        return None
    except Exception as error:  # pylint: disable=broad-except
        raise Failed(f"{expression}: {type(error).__name__}: {error}") from error


def results_of(claim, text):
    """Returns what a command printed as a list of dictionaries."""
    each = claim.facts.get("each")
    if each and each.startswith("/"):
        found = [{name: read_word(word) for name, word in one.groupdict().items()} for one in re.finditer(each.strip("/"), text, re.M)]
        if not found:
            raise Failed(f"no line of the output is {each}")
        return found
    try:
        result = json.loads(text)
    except ValueError as error:
        raise Failed(f"the command printed no JSON: {text[:100]!r}") from error
    return result[each] if each else [result]


def read_word(word):
    """Returns a number if the word is one, and None for "-": not measured."""
    try:
        return float(word)
    except ValueError:
        return None if word == "-" else word


class Checker:
    """Runs the commands of a page. `wrong` has what does not hold, `left` what was not run."""

    def __init__(self, runner, traces=None, having=(), only_quick=False):
        self.runner, self.traces, self.having, self.only_quick = runner, traces, having, only_quick
        self.wrong, self.left, self.compared = [], [], 0

    def shell(self, command):
        """Runs a command line of the page, with the programs of the build."""
        words = command.replace("build/", self.runner.build + "/")
        search = os.path.join(self.runner.build, "bin") + os.pathsep + os.environ.get("PATH", "")
        return self.runner.run(["sh", "-c", words], PATH=search)

    def trace_is_there(self, command):
        """Returns the command with the paths of traces that exist, or None."""
        found = re.search(r"bench/traces/(\S+)", command)
        if not found or os.path.exists(self.runner.source(found[0])):
            return command
        path = os.path.join(self.traces, found[1]) if self.traces else ""
        return command.replace(found[0], shlex.quote(path)) if path and os.path.exists(path) else None

    def check(self, claim):
        if claim.command == NO_FIGURES or (self.only_quick and claim.facts.get("quick") != "yes"):
            return
        missing = [need for need in claim.needs() if need not in self.having]
        if missing:
            self.left.append((claim.line, f"{claim.command}: needs {', '.join(NEEDS[need] for need in missing)}"))
        elif claim.columns:
            try:
                self.check_rows(claim)
            except Failed as reason:
                self.wrong.append((claim.line, f"{claim.command}: {reason}"))

    def check_rows(self, claim):
        is_for_each_row = re.search(r"{\w+}", claim.command)
        results, group, compared = None, "", self.compared
        for line, row in claim.rows:
            group = row[0] or group
            if is_for_each_row:
                command = self.command_of_row(claim, row)
                if not command:
                    self.left.append((line, f"{row[0]}: needs {NEEDS['traces']}"))
                    continue
                results = results_of(claim, self.shell(command))
            elif results is None:
                results = results_of(claim, self.shell(claim.command))
            self.check_row(claim, line, row, group, results)
        if self.compared == compared and not is_for_each_row:
            raise Failed("no figure of the table was compared with a result")

    def command_of_row(self, claim, row):
        """Returns the command for one row, or None if its trace is not there. Options in the first cell are added."""
        def cell(name):
            text = row[0] if name == "row" else row[claim.head.index(name)]
            return text.split()[0].strip(",")

        options = re.search(r"`(--[^`]+)`", row[0])
        command = re.sub(r"{(\w+)}", lambda found: cell(found[1]), claim.command)
        return self.trace_is_there(command + (f" {options[1]}" if options else ""))

    def check_row(self, claim, line, row, group, results):
        for name, (expression, own_spread) in claim.columns.items():
            spread = read_spread(own_spread or claim.facts["spread"])
            shown, found = self.shown(claim, row, name), evaluate(expression, results, row, group)
            if not shown or found is None:
                continue
            self.compared += 1
            pairs = [([one], value) for one, value in zip(shown, found)] if isinstance(found, tuple) else [(shown, found)]
            if isinstance(found, tuple) and len(found) != len(shown) or not all(holds(one, value, spread) for one, value in pairs):
                page = row[claim.head.index(name)] if name in claim.head else ", ".join(f"{one:.3g}" for one, _ in shown)
                values = ", ".join(f"{value:.6g}" if value < 1e6 else f"{value:,.0f}" for _, value in pairs)
                self.wrong.append((line, f"{row[0] or group}: {name}: the page has {page}, the command gives {values}"))

    def shown(self, claim, row, name):
        """Returns the numbers of a column of a row. Those of "a / b" are the ratio of the two columns."""
        if name in claim.head:
            return numbers(row[claim.head.index(name)])
        first, second = (numbers(row[claim.head.index(part)])[:1] for part in name.split(" / "))
        return [(first[0][0] / second[0][0], 0)] if first and second and second[0][0] else []


def check_page(path, root, checker):
    """Checks a page: its tables have claims, and the claims hold."""
    with open(path, encoding="utf-8") as file:
        claims, bare, silent, machines = read_page(file.read())
    for line in bare:
        checker.wrong.append((line, "this table has no command: put a comment <!-- bench: COMMAND ... --> over it (bench/page/claims.py)"))
    for line, name in silent:
        checker.wrong.append((line, f"the section \"{name}\" has no command: put a comment <!-- bench: COMMAND ... --> into it (bench/page/claims.py)"))
    for claim in claims:
        found = list(claim.problems(root, machines))
        checker.wrong += [(claim.line, one) for one in found]
        if not found:
            checker.check(claim)
    checker.wrong.sort()

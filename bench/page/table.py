# SPDX-License-Identifier: MIT
"""Tables of figures: what a benchmark found, the ratios between Loch and its peers, and the bars."""
import statistics

OWN = "Loch"


class Bar:
    """A goal. `value` is compared with `limit`, at least or at most; `is_met` is None if the value is not there."""

    def __init__(self, what, value, limit, least=False, is_exact=False):
        self.text = ("≥ " if least else "≤ ") + what.format(show(limit))
        self.value, self.is_exact = value, is_exact
        self.is_met = None if value is None else bool(value >= limit if least else value <= limit)

    def describe(self, is_rough):
        """Returns the cell of the page. A rough figure is not judged, unless it is the same in every run."""
        if self.value is None:
            return f"{self.text}: no figure"
        if is_rough and not self.is_exact:
            return f"{self.text}: {show(self.value)}, not judged"
        return f"{self.text}: {show(self.value)}, met" if self.is_met else f"{self.text}: **{show(self.value)}, missed**"


class Row:
    """One case. `samples` has a list of figures for each name, and figures of one place in the lists come from one run."""

    def __init__(self, case, samples):
        self.case, self.bars = case, []
        self.samples = {name: list(values) for name, values in samples.items() if values}
        self.figures = {name: statistics.median(values) for name, values in self.samples.items()}

    def ratio(self, peer, own=OWN):
        """Returns the median of the ratios inside each run, or None if one side has no figure."""
        pairs = zip(self.samples.get(own, ()), self.samples.get(peer, ()))
        ratios = [ours / theirs for ours, theirs in pairs if theirs]
        return statistics.median(ratios) if ratios else None

    def expect(self, what, value, limit, **how):
        self.bars.append(Bar(what, value, limit, **how))

    def expect_ratio(self, peer, limit, **how):
        """Adds a bar for the ratio to one peer."""
        self.expect(f"{{}} of {peer}", self.ratio(peer), limit, **how)


class Table:
    """Rows with the same columns. `better` is "less" or "more" if the columns are compared, and None if they are not."""

    def __init__(self, title, unit, better="less", absent=(), note="", own=(OWN,)):
        self.title, self.unit, self.better, self.note = title, unit, better, note
        self.absent, self.own, self.rows = list(absent), tuple(own), []

    def add(self, case, samples):
        row = Row(case, samples)
        self.rows.append(row)
        return row

    def columns(self):
        """Returns the names of all columns: those of Loch first, then peers in the order in which they were found."""
        names = dict.fromkeys(name for name in self.own if any(name in row.samples for row in self.rows))
        for row in self.rows:
            names.update(dict.fromkeys(row.samples))
        return list(names)

    def best_peer(self, row):
        """Returns the name of the best peer of a row, or None if there is no peer."""
        peers = {name: figure for name, figure in row.figures.items() if name not in self.own and figure}
        if not self.better or not peers or OWN not in row.figures:
            return None
        return (min if self.better == "less" else max)(peers, key=peers.get)

    def missed(self, is_rough):
        """Returns (case, bar) for each bar that is missed and judged."""
        return [(row.case, bar) for row in self.rows for bar in row.bars
                if bar.is_met is False and (bar.is_exact or not is_rough)]

    def page(self, is_rough):
        """Returns the lines of the table in Markdown."""
        columns = self.columns()
        has_ratio = bool(self.better) and len(columns) > len([name for name in columns if name in self.own])
        has_bars = any(row.bars for row in self.rows)
        head = [""] + columns + ["ratio to the best peer"] * has_ratio + ["bar"] * has_bars
        how = {"less": "; less is better", "more": "; more is better"}.get(self.better or "", "")
        lines = [f"**{self.title}** ({self.unit}{how})", ""]
        lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for row in self.rows:
            cells = [row.case] + [show(row.figures.get(name)) for name in columns]
            if has_ratio:
                peer = self.best_peer(row)
                cells.append(f"{row.ratio(peer):.3f} ({peer})" if peer and row.ratio(peer) is not None else "-")
            if has_bars:
                cells.append("; ".join(bar.describe(is_rough) for bar in row.bars))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
        if self.absent:
            lines += [f"Not available here: {', '.join(self.absent)}.", ""]
        return lines + ([self.note, ""] if self.note else [])

    def as_json(self):
        rows = []
        for row in self.rows:
            peer = self.best_peer(row)
            rows.append({"case": row.case, "figures": row.figures, "samples": row.samples, "best_peer": peer,
                         "ratio": row.ratio(peer) if peer else None,
                         "bars": [{"bar": bar.text, "value": bar.value, "is_met": bar.is_met} for bar in row.bars]})
        return {"title": self.title, "unit": self.unit, "better": self.better, "absent": self.absent, "rows": rows}


def show(number):
    """Returns a number with four digits that count, for people; "-" if there is no number."""
    if number is None:
        return "-"
    if number == 0 or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}" if abs(number) >= 0.001 else f"{number:.2e}"


def show_bytes(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"

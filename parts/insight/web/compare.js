/* SPDX-License-Identifier: MIT */
/* Figures of one recording as tiles; of two as a table of differences. */
function figuresOf(run) {
  const { meta } = run, calls = meta.calls.reduce((sum, call) => ({ count: sum.count + call.count, ns: sum.ns + call.ns }), { count: 0, ns: 0 });
  const column = run.peakColumn, reserved = run.curves.reserved[column];
  return [
    { name: 'Peak requested', value: meta.peak, format: formatBytes, more: 'at ' + formatTime(meta.peakTime, meta.end - meta.begin), isLower: true },
    { name: 'Peak reserved', value: meta.ranges ? meta.peakReserved : NaN, format: formatBytes, more: meta.ranges ? (meta.peakReserved / Math.max(1, meta.peak)).toFixed(3) + ' times what was requested' : 'not in this recording', isLower: true },
    { name: 'Unused at the peak', value: meta.ranges ? Math.max(0, reserved - meta.peak) : NaN, format: formatBytes, more: meta.ranges && reserved ? formatPercent(Math.max(0, 1 - meta.peak / reserved)) + ' of the reserved bytes' : '', isLower: true },
    { name: 'Live at the end', value: meta.atEnd, format: formatBytes, more: formatMany(meta.atEndBlocks, 'block'), isLower: true },
    { name: 'Allocations', value: meta.allocations, format: formatCount, more: formatMany(meta.frees, 'free') },
    { name: 'Time in driver calls', value: meta.calls.length ? calls.ns : NaN, format: formatDuration, more: meta.calls.length ? formatMany(calls.count, 'call') : 'not in this recording', isLower: true },
    { name: 'Duration', value: meta.end - meta.begin, format: formatDuration, more: formatMany(meta.shown, 'event') },
  ];
}

function makeTiles(run) {
  return element('dl', { class: 'tiles' }, ...figuresOf(run).map((figure) => element('div', {}, element('dt', {}, figure.name),
    element('dd', { 'data-exact': String(figure.value) }, Number.isNaN(figure.value) ? '\u2013' : figure.format(figure.value), element('small', {}, figure.more)))));
}

function makeChange(before, after, format, isLower) {
  if (Number.isNaN(before) || Number.isNaN(after)) return element('span', {}, '\u2013');
  const change = after - before, percent = before ? ' (' + (change > 0 ? '+' : '\u2212') + Math.abs(100 * change / before).toFixed(1) + ' %)' : '';
  const className = !change || !isLower ? '' : change < 0 ? 'better' : 'worse';
  return element('span', { class: className }, change ? (change > 0 ? '+' : '\u2212') + format(Math.abs(change)) + percent : 'equal');
}

function makeComparison() {
  const [before, after] = view.runs, left = figuresOf(before), right = figuresOf(after);
  const show = (value, figure) => (Number.isNaN(value) ? '\u2013' : figure.format(value));
  const rows = left.map((figure, i) => [figure.name, figure.value, right[i].value, right[i].value - figure.value, i]);
  return makeTable('Both recordings', [{ name: 'Figure', isText: true }, { name: before.meta.label, format: (value, row) => show(value, left[row[4]]) },
    { name: after.meta.label, format: (value, row) => show(value, right[row[4]]) },
    { name: 'Difference', node: (_, row) => makeChange(row[1], row[2], left[row[4]].format, left[row[4]].isLower) }], rows);
}

/* Groups of both recordings at their peaks, by name. */
function makeDifference(by) {
  const names = new Map(), [before, after] = view.runs;
  view.runs.forEach((run, i) => {
    for (const [group, sum] of sumBy(run, livesAt(run.lives, run.curves.moment[run.peakColumn]), by)) {
      const name = groupName(run, by, group), row = names.get(name) || [name, 0, 0];
      row[i + 1] += sum.bytes;
      names.set(name, row);
    }
  });
  const rows = Array.from(names.values(), (row) => [...row, row[2] - row[1], Math.abs(row[2] - row[1])]);
  rows.sort((a, b) => b[4] - a[4]);
  rows.length = Math.min(rows.length, 200);
  return makeTable('By ' + before.meta.groupings[by].by, [{ name: 'Name', isText: true }, { name: before.meta.label, format: formatBytes }, { name: after.meta.label, format: formatBytes },
    { name: 'Difference', node: (_, row) => makeChange(row[1], row[2], formatBytes, true) }], rows);
}

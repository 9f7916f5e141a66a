/* SPDX-License-Identifier: MIT */
/* Builds the page: curves first, then, when the file is read to its end, blocks and tables. */
const FORMATS = ['', 'trace', 'recording', 'PyTorch snapshot', '', '', '', '', 'snapshot'];
const HEIGHTS = { memory: 320, small: 84 };

function describeRun(run) {
  const { meta } = run, parts = [];
  if (meta.program && !meta.note) parts.push(meta.program);
  parts.push(meta.note ? meta.label : (FORMATS[meta.format] || 'recording') + ' ' + meta.path);
  parts.push(formatMany(meta.events, 'event') + ' in ' + formatDuration(meta.duration));
  if (meta.started) parts.push(new Date(meta.started / 1e6).toISOString().slice(0, 19).replace('T', ' ') + ' UTC');
  return parts.join(' \u00b7 ');
}

function makeNotes(run) {
  const { meta } = run, notes = [], name = view.runs.length > 1 ? meta.label + ': ' : '';
  const add = (text, isWarning) => notes.push(element('p', { class: isWarning ? 'note warn' : 'note' }, name + text));
  if (meta.note) add(meta.note);
  if (meta.lost) add(formatMany(meta.lost, 'event') + ' were lost by the recorder: sums before them are too low or too high.', true);
  if (meta.format === 2 && !meta.ended) add('The program did not end the recording in order: it shows all that had been written.', true);
  if (meta.begin > 0 || meta.end < meta.duration) add('A window of the recording: ' + formatDuration(meta.begin) + ' to ' + formatDuration(meta.end) + ' of ' + formatDuration(meta.duration) + '.');
  const failed = meta.marks.filter((mark) => mark.kind === 'failed');
  if (failed.length) add(formatCount(failed.length) + (failed.length >= 200 ? ' or more' : '') + ' requests failed; the first at ' + formatDuration(failed[0].time) + ' asked ' + failed[0].allocator + ' for ' + formatBytes(failed[0].bytes) + '.', true);
  return notes;
}

function makeAbout(run) {
  const { meta } = run, texts = [], name = view.runs.length > 1 ? meta.label + ': ' : '';
  texts.push(name + formatMany(meta.shown, 'event') + ' are summed in ' + formatCount(meta.columns) + ' columns of time. Requested, reserved and all bands are exact at the moment of each column in which most was requested; the cursor stands on such moments. The pale part of the chart was reached inside a pixel and not held through it.');
  texts.push(name + (meta.lives === meta.livesAll ? 'All ' + formatMany(meta.livesAll, 'block') + ' are in this file.'
    : formatCount(meta.lives) + ' of ' + formatMany(meta.livesAll, 'block') + ' are in this file: all of the peak and of the end, then the largest by bytes times time. They are ' + formatPercent(meta.livesShare) + ' of all bytes times time. The others are summed in the curves and bands.'));
  if (meta.stacksLeftOut) texts.push(name + 'Call stacks are in this file for the blocks of the peak and of the end, and for others while there is room. All call sites are in it.');
  if (meta.rangesKept !== meta.rangesAll) texts.push(name + formatCount(meta.rangesKept) + ' of ' + formatMany(meta.rangesAll, 'range') + ' are in this file, ' + formatPercent(meta.rangesShare) + ' of all bytes times time.');
  if (meta.ranges) texts.push(name + 'Reserved bytes are counted once, also while a pool has them mapped at two addresses.');
  for (const grouping of meta.groupings)
    if (grouping.others) texts.push(name + 'By ' + grouping.by + ', the ' + (grouping.bands.length - 1) + ' groups that held most have a colour; ' + formatCount(grouping.others) + ' others share one.');
  return texts.map((text) => element('p', {}, text));
}

function redraw() {
  for (const run of view.runs) run.pixels = null;
  view.changes++;
  for (const painter of view.painters.theme) painter();
  request('window');
}

function add(painter) {
  if (painter.drawWindow) view.painters.window.push(painter.drawWindow);
  if (painter.drawCursor) view.painters.cursor.push(painter.drawCursor);
  if (painter.drawTheme) view.painters.theme.push(painter.drawTheme);
  return painter.element;
}

function makePanel(run, index) {
  const panel = element('div', { class: 'panel' });
  if (view.runs.length > 1) panel.append(element('h3', {}, run.meta.label));
  const { curves, meta } = run;
  panel.append(add(new Readout(index)));
  panel.append(add(new Chart(index, {
    name: 'memory', label: 'Memory over time', height: HEIGHTS.memory, hasLabels: true,
    title: () => 'Requested by ' + meta.groupings[view.by].by + (meta.ranges && view.hasReserved ? ', and reserved (dashed)' : ''),
    draw: (area, pixels) => drawMemory(run, area, pixels),
    value: (column) => formatBytes(curves.most[column]) + (meta.ranges ? ' of ' + formatBytes(curves.reserved[column]) : ''),
  })));
  panel.append(add(new Overview(index)));
  panel.append(add(new Legend(index)));
  if (meta.ranges)
    panel.append(add(new Chart(index, {
      name: 'unused', label: 'Reserved and not requested: free in the pool, or fragmented', height: HEIGHTS.small,
      draw: (area, pixels) => drawUnused(run, area, pixels),
      value: (column) => (curves.reserved[column] > 0 ? formatPercent(1 - curves.most[column] / curves.reserved[column]) : '0 %'),
    })));
  panel.append(add(new Chart(index, {
    name: 'blocks', label: 'Live blocks', height: HEIGHTS.small, draw: (area, pixels) => drawBlocks(run, area, pixels),
    value: (column) => formatCount(curves.blocks[column]),
  })));
  if (meta.calls.length)
    panel.append(add(new Chart(index, {
      name: 'calls', label: 'Time in driver calls', height: HEIGHTS.small, draw: (area, pixels) => drawCallTime(run, area, pixels),
      value: (column) => formatDuration(curves.callTime[column]) + ' in ' + formatMany(curves.calls[column], 'call') + ' around the cursor',
    })));
  panel.append(makeTextTable(run));
  return panel;
}

function chooseGrouping() {
  const select = document.getElementById('by'), usable = [];
  for (let by = 0; by < view.runs[0].meta.groupings.length; by++)
    if (view.runs.every((run) => run.meta.groupings[by].bands.length)) usable.push(by);
  for (const by of usable) select.append(element('option', { value: String(by) }, view.runs[0].meta.groupings[by].by));
  view.by = usable.length ? usable[0] : BY_SIZE;
  select.value = String(view.by);
  select.addEventListener('change', () => {
    view.by = Number(select.value);
    view.emphasis = null;
    prepareGrouping();
    redraw();
  });
  prepareGrouping();
}

function prepareGrouping() {
  numberColors(view.runs, view.by);
  view.runs.forEach((run, i) => { run.bands[view.by] = run.bands[view.by] || decodeBands(i, view.by, run.meta); });
}

function makeControls() {
  const from = document.getElementById('from'), to = document.getElementById('to');
  const middle = () => (view.from + view.to) / 2;
  const reserved = document.getElementById('reserved');
  document.getElementById('reserved-field').hidden = !view.runs.some((run) => run.meta.ranges);
  reserved.addEventListener('change', () => { view.hasReserved = reserved.checked; redraw(); });
  document.getElementById('zoom-in').addEventListener('click', () => { zoom(0.5, middle()); announce(); });
  document.getElementById('zoom-out').addEventListener('click', () => { zoom(2, middle()); announce(); });
  document.getElementById('zoom-all').addEventListener('click', () => { showAll(); announce(); });
  document.getElementById('go-peak').addEventListener('click', () => { goToPeak(0); announce(); });
  const read = () => {
    const begin = parseTime(from.value), end = parseTime(to.value);
    if (end > begin) setWindow(begin, end);
    request('window');
  };
  from.addEventListener('change', read);
  to.addEventListener('change', read);
  view.painters.window.push(() => {
    if (document.activeElement !== from) from.value = formatTime(view.from, view.to - view.from);
    if (document.activeElement !== to) to.value = formatTime(view.to, view.to - view.from);
  });
  for (const button of document.querySelectorAll('[data-theme-choice]'))
    button.addEventListener('click', () => { applyTheme(button.dataset.themeChoice); redraw(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (theme.choice === 'auto') { applyTheme('auto'); redraw(); } });
  addEventListener('resize', redraw);
}

function start() {
  const meta = JSON.parse(document.getElementById('meta').textContent);
  view.runs = meta.runs.map((one, index) => ({ meta: one, curves: decodeCurves(index, one), bands: [], lives: null, ranges: null, raster: new Raster() }));
  for (const run of view.runs) {
    run.peakColumn = 0;
    for (let i = 1; i < run.curves.count; i++) if (run.curves.most[i] > run.curves.most[run.peakColumn]) run.peakColumn = i;
  }
  view.first = view.from = Math.min(...view.runs.map((run) => run.meta.begin));
  view.last = view.to = Math.max(view.first + 1, ...view.runs.map((run) => run.meta.end));
  document.body.classList.add(view.runs.length > 1 ? 'two' : 'one');
  document.getElementById('title').textContent = meta.title;
  document.getElementById('subtitle').textContent = view.runs.map(describeRun).join(' | ');
  applyTheme('auto');
  chooseGrouping();
  document.getElementById('figures').append(view.runs.length > 1 ? makeComparison() : makeTiles(view.runs[0]));
  for (const run of view.runs) document.getElementById('notes').append(...makeNotes(run));
  view.runs.forEach((run, i) => document.getElementById('panels').append(makePanel(run, i)));
  for (const run of view.runs) {
    document.getElementById('calls').append(makeCalls(run));
    document.getElementById('shape').append(makeShape(run));
    document.getElementById('about').append(...makeAbout(run));
  }
  makeControls();
  for (const painter of view.painters.theme) painter();
  goToPeak(0);
  view.due.window = true;
  cancelAnimationFrame(frameRequest);
  paint();
  document.documentElement.dataset.state = 'drawn';
  performance.mark('loch-drawn');
  requestAnimationFrame(() => performance.mark('loch-shown'));
}

/* The rest of the file is there. */
function finish() {
  view.runs.forEach((run, i) => {
    run.lives = decodeLives(i, run.meta);
    run.ranges = decodeRanges(i, run.meta);
    const host = element('div', { class: 'panel' });
    if (view.runs.length > 1) host.append(element('h3', {}, run.meta.label));
    if (run.meta.addresses) host.append(add(new AddressMap(i)));
    else host.append(element('p', { class: 'note' }, 'This recording has no addresses, so there is no map. A recording by Loch has them: LOCH_TRACE=program.loch records a program; loch report replays a trace unless it is told --plain.'));
    document.getElementById('maps').append(host);
  });
  view.painters.cursor.push(new LiveTables(document.getElementById('live')).drawCursor);
  view.painters.cursor.push(() => {
    document.querySelector('[data-at]').textContent = 'at ' + formatTime(view.runs[0].curves.momentTime[view.cursor.columns[0]], view.to - view.from);
  });
  if (view.runs.length > 1) {
    document.getElementById('compare-section').hidden = false;
    const grid = element('div', { class: 'grid' });
    for (let by = 0; by < view.runs[0].meta.groupings.length; by++)
      if (view.runs.every((run) => run.meta.groupings[by].bands.length)) grid.append(makeDifference(by));
    document.getElementById('compare').append(grid);
  }
  request('cursor');
  document.documentElement.dataset.state = 'ready';
  performance.mark('loch-ready');
}

/* For the console: the decoded recordings and the view. */
window.lochReport = { view, setWindow, setCursor, goToPeak, livesAt, mapAt, formatBytes };
start();
if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', finish);
else finish();

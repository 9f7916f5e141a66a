/* SPDX-License-Identifier: MIT */
/* The address map: the ranges that the recording took from drivers, one behind the other in rows; at the moment of the
 * cursor, blocks in the colours of their bands, and what is reserved and free. */
const ROW = 11, ROW_GAP = 2, MAP_ROWS = 26;

/* Joins ranges that overlap or touch; without ranges, blocks that are near each other. */
function findSegments(run) {
  const from = run.ranges.count ? run.ranges : run.lives, gap = run.ranges.count ? 0 : 32 * 1048576;
  const order = Array.from({ length: from.count }, (_, i) => i).sort((a, b) => from.address[a] - from.address[b]);
  const segments = [];
  for (const i of order) {
    const begin = from.address[i], end = begin + from.bytes[i], last = segments[segments.length - 1];
    if (last && begin <= last.end + gap) last.end = Math.max(last.end, end);
    else segments.push({ begin, end, offset: 0 });
  }
  let offset = 0;
  for (const segment of segments) {
    segment.offset = offset;
    offset += segment.end - segment.begin;
  }
  return { list: segments, bytes: offset };
}

/* The offset of an address in all segments; -1 if it is in none. */
function offsetOf(segments, address) {
  let low = 0, high = segments.list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (segments.list[middle].end <= address) low = middle + 1;
    else high = middle;
  }
  const segment = segments.list[low];
  return segment && address >= segment.begin ? segment.offset + address - segment.begin : -1;
}

/* Ranges whose memory is mapped at another address too, where it is used: a pool that remaps memory unmaps it later. */
function findDoubles(run, live, blocks) {
  const { ranges, lives } = run, doubles = new Set(), mapped = new Map();
  for (const i of live) if (ranges.memory[i]) mapped.set(ranges.memory[i], (mapped.get(ranges.memory[i]) || 0) + 1);
  let at = 0, reach = 0; /* blocks before `at` begin before the range; they end before `reach` */
  for (const i of live) {
    const begin = ranges.address[i], end = begin + ranges.bytes[i];
    for (; at < blocks.length && lives.address[blocks[at]] < end; at++) reach = Math.max(reach, lives.address[blocks[at]] + lives.bytes[blocks[at]]);
    if (!ranges.memory[i] || mapped.get(ranges.memory[i]) < 2 || reach > begin) continue;
    doubles.add(i);
    mapped.set(ranges.memory[i], mapped.get(ranges.memory[i]) - 1);
  }
  return doubles;
}

/* What is where at a moment: live blocks and ranges by address, used bytes, holes. */
function mapAt(run, moment) {
  if (run.mapCache && run.mapCache.moment === moment) return run.mapCache;
  const { lives, ranges } = run;
  const blocks = livesAt(lives, moment).sort((a, b) => lives.address[a] - lives.address[b]);
  const live = livesAt(ranges, moment).sort((a, b) => ranges.address[a] - ranges.address[b]);
  const doubles = findDoubles(run, live, blocks), own = live.filter((i) => !doubles.has(i));
  const map = { moment, blocks, ranges: live, doubles, used: 0, covered: 0, reserved: 0, holes: 0, largest: 0 };
  for (const i of blocks) map.used += lives.bytes[i];
  let at = 0;
  const hole = (bytes) => {
    if (bytes <= 0) return;
    map.holes++;
    if (bytes > map.largest) map.largest = bytes;
  };
  for (let r = 0; r < own.length;) { /* ranges that touch are one: a block may span them */
    let begin = ranges.address[own[r]], end = begin;
    for (; r < own.length && ranges.address[own[r]] <= end; r++) {
      map.reserved += ranges.bytes[own[r]];
      end = Math.max(end, ranges.address[own[r]] + ranges.bytes[own[r]]);
    }
    let free = begin;
    while (at < blocks.length && lives.address[blocks[at]] < begin) at++;
    for (; at < blocks.length && lives.address[blocks[at]] < end; at++) {
      hole(lives.address[blocks[at]] - free);
      const blockEnd = lives.address[blocks[at]] + lives.bytes[blocks[at]];
      map.covered += Math.max(0, Math.min(end, blockEnd) - Math.max(free, lives.address[blocks[at]]));
      free = Math.max(free, blockEnd);
    }
    hole(end - free);
  }
  return run.mapCache = map;
}

function AddressMap(runIndex) {
  const run = view.runs[runIndex], segments = findSegments(run);
  const canvas = element('canvas', {
    role: 'img', tabindex: '0', 'data-chart': 'map', 'data-run': String(runIndex),
    'aria-label': 'Address map' + (view.runs.length > 1 ? ', ' + run.meta.label : '') + '. Arrows go from block to block, plus and minus zoom, 0 shows all.',
  });
  const summary = element('p', { class: 'map-text', 'data-map-summary': String(runIndex) });
  const chosen = element('p', { class: 'map-text', 'aria-live': 'polite' });
  this.element = element('figure', { class: 'map' }, canvas, summary, chosen);
  let from = 0, to = Math.max(1, segments.bytes), shape = null, selected = -1, drag = null, drawn = '';

  const setView = (begin, end) => {
    const span = Math.min(segments.bytes, Math.max(Math.min(segments.bytes, 4096), end - begin));
    from = Math.max(0, Math.min((begin + end - span) / 2, segments.bytes - span));
    to = from + span;
    request('cursor');
  };

  const fill = (begin, end, color) => { /* offsets */
    const { context, left, width, rows, perRow } = shape;
    let low = Math.max(begin, from) - from, high = Math.min(end, to) - from;
    if (high <= low) return;
    context.fillStyle = color;
    for (let row = Math.floor(low / perRow); row <= Math.min(rows - 1, Math.floor((high - 1e-9) / perRow)); row++) {
      const x0 = Math.max(0, low - row * perRow) / perRow * width, x1 = Math.min(perRow, high - row * perRow) / perRow * width;
      context.fillRect(left + x0, row * (ROW + ROW_GAP), Math.max(0.75, x1 - x0), ROW);
    }
  };

  this.drawCursor = () => {
    const moment = run.curves.moment[view.cursor.columns[runIndex]], key = [moment, from, to, selected, view.changes].join('/');
    if (key === drawn) return;
    drawn = key;
    const map = mapAt(run, moment), { lives, ranges } = run;
    const height = MAP_ROWS * (ROW + ROW_GAP), { context, width } = fitCanvas(canvas, height);
    shape = { context, left: LEFT, width: width - LEFT - RIGHT, rows: MAP_ROWS, perRow: (to - from) / MAP_ROWS };
    context.fillStyle = theme.colors.grid;
    for (let row = 0; row < MAP_ROWS; row++) context.fillRect(LEFT, row * (ROW + ROW_GAP) + ROW - 1, shape.width, 1);
    for (const i of map.ranges) {
      const offset = offsetOf(segments, ranges.address[i]);
      fill(offset, offset + ranges.bytes[i], map.doubles.has(i) ? theme.colors.free : theme.colors.hole);
    }
    for (const i of map.blocks) {
      const offset = offsetOf(segments, lives.address[i]);
      if (offset >= 0) fill(offset, offset + lives.bytes[i], bandColor(run, view.by, bandOfLife(run, view.by, i)));
    }
    context.strokeStyle = theme.colors.card;
    context.lineWidth = 0.5;
    if (map.blocks.length < 4000) for (const i of map.blocks) { /* where a block begins */
      const offset = offsetOf(segments, lives.address[i]) - from;
      if (offset < 0 || offset >= to - from || lives.bytes[i] / shape.perRow * shape.width < 4) continue;
      const row = Math.floor(offset / shape.perRow), x = LEFT + (offset - row * shape.perRow) / shape.perRow * shape.width;
      context.beginPath();
      context.moveTo(x, row * (ROW + ROW_GAP));
      context.lineTo(x, row * (ROW + ROW_GAP) + ROW);
      context.stroke();
    }
    context.fillStyle = theme.colors.ink;
    for (const segment of segments.list) { /* where addresses jump */
      const offset = segment.offset - from;
      if (offset <= 0 || offset >= to - from) continue;
      const row = Math.floor(offset / shape.perRow), x = LEFT + (offset - row * shape.perRow) / shape.perRow * shape.width;
      context.fillRect(x - 0.5, row * (ROW + ROW_GAP) - 1, 1, ROW + 2);
    }
    context.fillStyle = theme.colors.soft;
    context.textAlign = 'right';
    for (let row = 0; row < MAP_ROWS; row += 5) context.fillText('+' + formatBytes(Math.round(from + row * shape.perRow)).replace('.00', ''), LEFT - 8, row * (ROW + ROW_GAP) + ROW / 2);
    if (selected >= 0 && lives.begin[selected] <= moment && lives.end[selected] > moment) {
      const offset = offsetOf(segments, lives.address[selected]);
      fill(offset, offset + lives.bytes[selected], theme.colors.cursor);
    }
    this.describe(map);
  };

  this.describe = (map) => {
    const column = view.cursor.columns[runIndex], { curves } = run;
    const restBytes = curves.most[column] - map.used, restBlocks = curves.blocks[column] - map.blocks.length;
    const parts = [element('b', { 'data-map-used': String(map.used), 'data-map-moment': String(map.moment) }, formatBytes(map.used)), ' in ' + formatMany(map.blocks.length, 'block')];
    if (run.ranges.count)
      parts.push(' of ', element('b', { 'data-map-reserved': String(map.reserved) }, formatBytes(map.reserved)), ' reserved in ' + formatMany(map.ranges.length - map.doubles.size, 'range') + '; ',
        element('b', { 'data-map-free': String(map.reserved - map.covered), 'data-map-largest': String(map.largest) }, formatBytes(Math.max(0, map.reserved - map.covered))),
        ' free in ' + formatMany(map.holes, 'hole') + ', the largest ' + formatBytes(map.largest));
    if (map.doubles.size) parts.push('; ' + formatMany(map.doubles.size, 'further range') + ' (paler) map memory that is used elsewhere');
    if (restBlocks > 0) parts.push('. ' + formatCount(restBlocks) + ' small blocks with ' + formatBytes(restBytes) + ' are not in this file: they look free');
    parts.push('.');
    summary.replaceChildren(...parts);
  };

  const blockAt = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left - LEFT, row = Math.floor((event.clientY - box.top) / (ROW + ROW_GAP));
    if (!shape || x < 0 || x >= shape.width || row >= MAP_ROWS) return null;
    const offset = from + (row + x / shape.width) * shape.perRow;
    let segment = segments.list.length - 1;
    while (segment > 0 && segments.list[segment].offset > offset) segment--;
    if (segment < 0) return null;
    const address = segments.list[segment].begin + offset - segments.list[segment].offset;
    const map = mapAt(run, run.curves.moment[view.cursor.columns[runIndex]]), near = shape.perRow / shape.width;
    let best = -1;
    for (const i of map.blocks) {
      if (run.lives.address[i] > address + near) break;
      if (run.lives.address[i] + run.lives.bytes[i] >= address - near) best = i;
    }
    const range = map.ranges.find((i) => address >= run.ranges.address[i] && address < run.ranges.address[i] + run.ranges.bytes[i]);
    const state = range === undefined ? 'not reserved now' : map.doubles.has(range) ? 'mapped here too, used elsewhere' : 'reserved, free';
    return { best, address: Math.floor(address), state };
  };
  canvas.addEventListener('pointermove', (event) => {
    if (drag) {
      const moved = (event.clientY - drag.y) / (ROW + ROW_GAP) * shape.perRow;
      setView(drag.from - moved, drag.to - moved);
      return;
    }
    const found = blockAt(event);
    if (!found) return hideTip();
    showTip(event, found.best >= 0 ? tipOfBlock(run, found.best) : listOf(found.state, [['address', formatAddress(found.address)]]));
  });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { y: event.clientY, from, to };
    const found = blockAt(event);
    if (found && found.best >= 0) choose(found.best);
  });
  canvas.addEventListener('pointerup', () => { drag = null; });
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('dblclick', () => setView(0, segments.bytes));
  canvas.addEventListener('wheel', (event) => {
    const found = blockAt(event);
    if (!found) return;
    const box = canvas.getBoundingClientRect(), row = (event.clientY - box.top) / (ROW + ROW_GAP), around = from + row * shape.perRow;
    const factor = Math.exp(Math.max(-300, Math.min(300, event.deltaY)) * 0.0022), was = to - from;
    if (factor > 1 && was >= segments.bytes) return;
    event.preventDefault();
    setView(around - (around - from) * factor, around + (to - around) * factor);
  }, { passive: false });
  const choose = (i) => {
    selected = i;
    const rows = tipOfBlock(run, i);
    chosen.replaceChildren(textOfBlock(run, i));
    const offset = offsetOf(segments, run.lives.address[i]);
    if (offset < from || offset >= to) setView(offset - (to - from) / 2, offset + (to - from) / 2);
    request('cursor');
    return rows;
  };
  canvas.addEventListener('keydown', (event) => {
    const map = mapAt(run, run.curves.moment[view.cursor.columns[runIndex]]), place = map.blocks.indexOf(selected), middle = (from + to) / 2, half = (to - from) / 2;
    let isDone = true;
    if (event.key === 'ArrowRight' || event.key === 'ArrowDown') { if (map.blocks.length) choose(map.blocks[Math.min(map.blocks.length - 1, place + 1)]); }
    else if (event.key === 'ArrowLeft' || event.key === 'ArrowUp') { if (map.blocks.length) choose(map.blocks[Math.max(0, place - 1)]); }
    else if (event.key === '+' || event.key === '=') setView(middle - half * 0.7, middle + half * 0.7);
    else if (event.key === '-') setView(middle - half / 0.7, middle + half / 0.7);
    else if (event.key === '0') setView(0, segments.bytes);
    else if (event.key === 'p' || event.key === 'P') goToPeak(runIndex);
    else isDone = false;
    if (isDone) event.preventDefault();
  });
}

function flagsOf(flags) {
  const words = [];
  if (flags & FLAG_PRESENT) words.push('there before the recording');
  if (flags & FLAG_SHARED) words.push('used on further streams');
  if (flags & FLAG_RESIZED) words.push('resized');
  if (flags & FLAG_MOVED) words.push('moved');
  return words.join(', ');
}

function tipOfBlock(run, i) {
  const { lives } = run, rows = [['size', formatBytes(lives.bytes[i]) + ' (' + formatExact(lives.bytes[i]) + ')']];
  if (run.meta.addresses) rows.push(['address', formatAddress(lives.address[i])]);
  rows.push(['tag', shorten(groupName(run, BY_TAG, lives.groups[BY_TAG][i]), 40)]);
  if (lives.stack[i] >= 0) rows.push(['call site', shorten(groupName(run, BY_SITE, lives.groups[BY_SITE][i]), 60)]);
  rows.push(['stream', groupName(run, BY_STREAM, lives.groups[BY_STREAM][i])], ['allocator', groupName(run, BY_ALLOCATOR, lives.groups[BY_ALLOCATOR][i])]);
  rows.push(['from', formatDuration(lives.beginTime[i])], ['to', lives.endTime[i] === Infinity ? 'the end' : formatDuration(lives.endTime[i])]);
  if (lives.flags[i]) rows.push(['state', flagsOf(lives.flags[i])]);
  return listOf('block ' + lives.id[i], rows);
}

function textOfBlock(run, i) {
  const { lives } = run;
  return 'Block ' + lives.id[i] + ': ' + formatBytes(lives.bytes[i]) + ' at ' + formatAddress(lives.address[i]) + ', ' + groupName(run, BY_TAG, lives.groups[BY_TAG][i]) +
    (lives.stack[i] >= 0 ? ', ' + groupName(run, BY_SITE, lives.groups[BY_SITE][i]) : '') + ', from ' + formatDuration(lives.beginTime[i]) +
    (lives.endTime[i] === Infinity ? ' to the end.' : ' to ' + formatDuration(lives.endTime[i]) + '.');
}

/* SPDX-License-Identifier: MIT */
/* The charts of one recording: memory by bands with the reserved line and the peak, the overview, what is reserved and
 * not requested, live blocks, driver time; the legend and the figures at the cursor. */

function extentOf(pixels) {
  let first = 0, last = pixels.width - 1;
  while (first <= last && pixels.column[first] < 0) first++;
  while (last >= first && pixels.column[last] < 0) last--;
  return [first, last];
}

/* Both runs share the scale: the most of what is drawn in the window, or of the whole recordings, and a little more. */
function mostInWindow(width, isWhole) {
  let most = 1;
  for (const run of view.runs) {
    if (isWhole) {
      most = Math.max(most, run.meta.peak);
      continue;
    }
    const pixels = sumPixels(run, width);
    for (let x = 0; x < width; x++) {
      if (pixels.column[x] < 0) continue;
      const value = Math.max(run.meta.ranges && view.hasReserved ? pixels.reserved[x] : 0, run.curves.most[pixels.column[x]]);
      if (value > most) most = value;
    }
  }
  return most * 1.06;
}

const PALE = 0.5; /* of a colour, where the bytes were reached and not held */

function drawMemory(run, area, pixels) {
  const { top, bottom } = area, [first, last] = extentOf(pixels), { raster } = run;
  const most = mostInWindow(area.pixels, false), height = Math.round((bottom - top) * area.ratio), width = pixels.width;
  drawValueAxis(area, most, stepsOfBytes(most, 5));
  if (first > last) return;
  const bands = run.bands[view.by], grouping = run.meta.groupings[view.by], { curves } = run;
  const row = (value) => height - Math.round(value / most * height);
  const solid = grouping.bands.map((_, band) => pixelColor(bandColor(run, view.by, band)));
  const pale = grouping.bands.map((_, band) => pixelColor(bandColor(run, view.by, band), PALE, theme.colors.card));
  const emphasis = view.emphasis === null ? -1 : grouping.bands.indexOf(view.emphasis);
  const line = Math.max(1, Math.round(area.ratio)), ink = pixelColor(theme.colors.ink, 0.4, theme.colors.card);
  raster.begin(width, height);
  for (let x = first; x <= last; x++) {
    const column = pixels.column[x], held = row(pixels.least[x]);
    if (emphasis >= 0) {
      raster.fill(x, row(bands.most[emphasis][column]), height, solid[emphasis]);
    } else {
      let total = 0, low = height;
      for (const band of grouping.order) {
        total += bands.there[band][column];
        const high = row(total), middle = Math.min(low, Math.max(high, held));
        raster.fill(x, high, middle, pale[band]);
        raster.fill(x, middle, low, solid[band]);
        low = high;
      }
    }
    const high = Math.min(row(curves.most[column]), height - line);
    raster.fill(x, high, high + line, ink);
  }
  raster.end(area);
  if (run.meta.ranges && view.hasReserved) drawReserved(run, area, pixels, first, last, most);
  drawMarks(run, area, (value) => bottom - value / most * (bottom - top));
}

function drawReserved(run, area, pixels, first, last, most) {
  const { context } = area, y = (x) => area.bottom - pixels.reserved[x] / most * (area.bottom - area.top);
  context.lineWidth = 1.5;
  context.strokeStyle = theme.colors.reserved;
  context.setLineDash([5, 3]);
  context.beginPath();
  context.moveTo(area.left + first / area.ratio, y(first));
  for (let x = first; x <= last; x++) {
    if (x < last && pixels.reserved[x + 1] === pixels.reserved[x]) continue;
    context.lineTo(area.left + (x + 1) / area.ratio, y(x));
    if (x < last) context.lineTo(area.left + (x + 1) / area.ratio, y(x + 1));
  }
  context.stroke();
  context.setLineDash([]);
}

function drawMarks(run, area, y) {
  const { context, left, top, bottom } = area, span = view.to - view.from;
  const place = (time) => left + (time - view.from) / span * area.plot;
  for (const mark of run.meta.marks) {
    if (mark.time < view.from || mark.time > view.to) continue;
    const x = Math.round(place(mark.time)) + 0.5;
    context.strokeStyle = mark.kind === 'failed' ? theme.colors.bad : theme.colors.soft;
    context.lineWidth = mark.kind === 'failed' ? 2 : 1;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
    context.fillStyle = context.strokeStyle;
    context.textAlign = 'left';
    context.fillText(mark.kind, x + 4, top + 8);
  }
  const peakTime = run.curves.momentTime[run.peakColumn];
  if (peakTime < view.from || peakTime > view.to) return;
  const x = place(peakTime), peak = y(run.meta.peak);
  context.fillStyle = theme.colors.ink;
  context.beginPath();
  context.moveTo(x, peak);
  context.lineTo(x - 5, peak - 8);
  context.lineTo(x + 5, peak - 8);
  context.fill();
  const text = 'peak ' + formatBytes(run.meta.peak), isLate = x > left + area.plot - 110;
  const lineWidth = context.measureText(text).width + 8, textX = isLate ? x - 10 - lineWidth : x + 8, textY = Math.max(top + 8, peak - 10);
  context.globalAlpha = 0.85;
  context.fillStyle = theme.colors.card;
  context.fillRect(textX, textY - 8, lineWidth, 16);
  context.globalAlpha = 1;
  context.fillStyle = theme.colors.ink;
  context.textAlign = 'left';
  context.fillText(text, textX + 4, textY);
}

function drawLine(run, area, pixels, values, most, color) {
  const [first, last] = extentOf(pixels), height = Math.round((area.bottom - area.top) * area.ratio), { raster } = run;
  if (first > last) return;
  const line = Math.max(1, Math.round(area.ratio)), ink = pixelColor(color), light = pixelColor(color, 0.84, theme.colors.card);
  raster.begin(pixels.width, height);
  for (let x = first, before = -1; x <= last; x++) {
    const high = Math.min(height - line, height - Math.round(values[x] / most * height));
    raster.fill(x, high, height, light);
    raster.fill(x, before < 0 ? high : Math.min(high, before), Math.max(high, before) + line, ink);
    before = high;
  }
  raster.end(area);
}

function mostOfRuns(width, name) {
  let most = 0;
  for (const run of view.runs) {
    const values = sumPixels(run, width)[name];
    for (let x = 0; x < width; x++) if (values[x] > most) most = values[x];
  }
  return most;
}

function drawUnused(run, area, pixels) {
  drawValueAxis(area, 1, { step: 0.5, format: (value) => Math.round(100 * value) + ' %' });
  drawLine(run, area, pixels, pixels.unused, 1, theme.colors.accent);
}

function drawBlocks(run, area, pixels) {
  const most = Math.max(1, mostOfRuns(area.pixels, 'blocks')) * 1.06;
  drawValueAxis(area, most, { step: Math.max(1, stepOf(most, 3)), format: formatCount });
  drawLine(run, area, pixels, pixels.blocks, most, theme.colors.accent);
}

const BAR = 4;

function drawCallTime(run, area, pixels) {
  const sums = view.runs.map((other) => {
    const bars = new Float64Array(Math.ceil(area.plot / BAR) + 1), from = sumPixels(other, area.pixels);
    for (let x = 0; x < area.pixels; x++) bars[Math.floor(x / area.ratio / BAR)] += from.callTime[x];
    return bars;
  });
  let most = 1;
  for (const bars of sums) for (const value of bars) if (value > most) most = value;
  most *= 1.06;
  drawValueAxis(area, most, { step: stepOf(most, 3), format: (value) => (value ? formatDuration(value).replace(/\.?0+ /, ' ') : '0') });
  const { context } = area, bars = sums[view.runs.indexOf(run)], height = area.bottom - area.top;
  context.fillStyle = theme.colors.accent;
  bars.forEach((value, i) => {
    if (value) context.fillRect(area.left + i * BAR, area.bottom - Math.max(1, value / most * height), BAR - 1, Math.max(1, value / most * height));
  });
}

/* --- the whole recording in small, with the window --- */

function Overview(runIndex) {
  const run = view.runs[runIndex], height = 46;
  const canvas = element('canvas', {
    role: 'slider', tabindex: '0', 'aria-label': 'Window of time in the whole recording' + (view.runs.length > 1 ? ', ' + run.meta.label : ''),
    'aria-valuemin': '0', 'aria-valuemax': '1000', 'aria-valuenow': '0', 'data-chart': 'overview', 'data-run': String(runIndex),
  });
  this.element = element('figure', { class: 'chart overview' }, canvas);
  const picture = document.createElement('canvas'); /* of the whole recording, without the window */
  let area = null, drag = null, drawn = '';
  const drawPicture = (ratio, span) => {
    const context = picture.getContext('2d'), { curves } = run, most = mostInWindow(0, true);
    picture.width = canvas.width;
    picture.height = canvas.height;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = theme.colors.faint;
    const tops = new Float64Array(Math.ceil(area.plot) + 1);
    for (let i = 0; i < curves.count; i++) { /* the most of each pixel */
      const end = i + 1 < curves.count ? curves.time[i + 1] : run.meta.end;
      const last = Math.min(tops.length - 1, Math.floor((end - view.first) / span * area.plot));
      for (let x = Math.floor((curves.time[i] - view.first) / span * area.plot); x <= last; x++)
        if (curves.most[i] > tops[x]) tops[x] = curves.most[i];
    }
    tops.forEach((value, x) => {
      const high = value / most * (area.bottom - area.top);
      context.fillRect(area.left + x, area.bottom - high, 1, high);
    });
  };
  this.drawWindow = () => {
    const { context, width, ratio } = fitCanvas(canvas, height), span = Math.max(1, view.last - view.first);
    area = { context, width, left: LEFT, plot: width - LEFT - RIGHT, top: 2, bottom: height - 2 };
    const key = width + '/' + ratio + '/' + theme.colors.faint;
    if (key !== drawn) drawPicture(ratio, span);
    drawn = key;
    context.drawImage(picture, 0, 0, width, height);
    const from = area.left + (view.from - view.first) / span * area.plot, to = area.left + (view.to - view.first) / span * area.plot;
    context.fillStyle = theme.colors.card;
    context.globalAlpha = 0.68;
    context.fillRect(area.left, 0, from - area.left, height);
    context.fillRect(to, 0, area.left + area.plot - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = theme.colors.accent;
    context.lineWidth = 2;
    context.strokeRect(Math.max(from, area.left + 1), 1, Math.max(2, to - from - 1), height - 2);
    canvas.setAttribute('aria-valuenow', String(Math.round(1000 * (view.from - view.first) / span)));
    canvas.setAttribute('aria-valuetext', formatTime(view.from, view.to - view.from) + ' to ' + formatTime(view.to, view.to - view.from));
  };
  const timeAt = (event) => view.first + (event.clientX - canvas.getBoundingClientRect().left - area.left) / area.plot * (view.last - view.first);
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || !area) return;
    canvas.setPointerCapture(event.pointerId);
    const time = timeAt(event), edge = 6 / area.plot * (view.last - view.first);
    const kind = Math.abs(time - view.from) < edge ? 'from' : Math.abs(time - view.to) < edge ? 'to' : 'move';
    if (kind === 'move' && (time < view.from || time > view.to)) setWindow(time - (view.to - view.from) / 2, time + (view.to - view.from) / 2);
    drag = { kind, offset: time - view.from };
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!drag) return;
    const time = timeAt(event), span = view.to - view.from;
    if (drag.kind === 'from') setWindow(Math.min(time, view.to), view.to);
    else if (drag.kind === 'to') setWindow(view.from, Math.max(time, view.from));
    else pan((time - drag.offset - view.from) / span);
  });
  canvas.addEventListener('pointerup', () => { drag = null; });
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('keydown', (event) => {
    const isArrow = event.key === 'ArrowLeft' || event.key === 'ArrowRight';
    if (isArrow) pan((event.key === 'ArrowLeft' ? -1 : 1) * (event.shiftKey ? 0.5 : 0.1));
    if (isArrow || pressKey(event, area ? area.plot : 600, runIndex)) event.preventDefault();
    if (isArrow) announce();
  });
}

/* --- legend and figures --- */

function Legend(runIndex) {
  const run = view.runs[runIndex], list = element('ul', { class: 'legend', 'aria-label': 'Bands: press one to see it alone' });
  this.element = list;
  let by = -1, values = [];
  this.drawTheme = () => {
    const grouping = run.meta.groupings[view.by];
    by = view.by;
    values = [];
    list.replaceChildren(...grouping.order.map((band) => {
      const name = grouping.bands[band];
      const chip = element('span', { class: 'chip', 'aria-hidden': 'true' }), value = element('span', { class: 'value' });
      chip.style.background = bandColor(run, view.by, band);
      values[band] = value;
      return element('li', {}, element('button', {
        type: 'button', 'aria-pressed': String(view.emphasis === name), title: name,
        onclick: () => { view.emphasis = view.emphasis === name ? null : name; redraw(); },
      }, chip, element('span', { class: 'name' }, name), value));
    }).reverse());
  };
  this.drawCursor = () => {
    if (by !== view.by) this.drawTheme();
    const bands = run.bands[view.by], column = view.cursor.columns[runIndex];
    values.forEach((value, band) => { value.textContent = formatBytes(bands.there[band][column]); });
  };
}

function Readout(runIndex) {
  const run = view.runs[runIndex];
  this.element = element('p', { class: 'readout', 'data-readout': String(runIndex) });
  this.drawCursor = () => {
    const column = view.cursor.columns[runIndex], { curves } = run, parts = [];
    const add = (name, value, exact) => parts.push(element('span', {}, name + ' ', element('b', exact === undefined ? {} : { 'data-exact': String(exact), 'data-figure': name }, value)));
    add('at', formatTime(curves.momentTime[column], view.to - view.from));
    add('requested', formatBytes(curves.most[column]), curves.most[column]);
    if (run.meta.ranges) {
      add('reserved', formatBytes(curves.reserved[column]), curves.reserved[column]);
      add('not requested', curves.reserved[column] > 0 ? formatPercent(1 - curves.most[column] / curves.reserved[column]) : '0 %');
    }
    add('blocks', formatCount(curves.blocks[column]), curves.blocks[column]);
    if (view.isHeld) parts.push(element('span', {}, 'cursor held'));
    this.element.replaceChildren(...parts);
  };
}

/* --- the text of the chart, for those that cannot see it --- */

function makeTextTable(run) {
  const details = element('details', {}, element('summary', {}, 'Memory over time as a table'));
  details.addEventListener('toggle', () => {
    if (!details.open || details.childElementCount > 1) return;
    const rows = [], count = 24, { curves, meta } = run, step = (meta.end - meta.begin) / count;
    for (let i = 0; i < count; i++) {
      const column = columnOfMost(curves, meta.begin + i * step, meta.begin + (i + 1) * step);
      rows.push([curves.momentTime[column], curves.most[column], curves.reserved[column], curves.blocks[column]]);
    }
    details.append(makeTable('The highest moment of each twenty-fourth of the time', [
      { name: 'Time', format: (value) => formatTime(value, meta.end - meta.begin) }, { name: 'Requested', format: formatBytes },
      { name: 'Reserved', format: meta.ranges ? formatBytes : () => 'not recorded' }, { name: 'Live blocks', format: formatCount }], rows));
  });
  return details;
}

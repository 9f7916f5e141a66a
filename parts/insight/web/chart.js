/* SPDX-License-Identifier: MIT */
/* A chart of time: a canvas with axes, the cursor, the mouse and the keyboard. What is drawn in it is given as a function. */
const LEFT = 74, RIGHT = 10, TOP = 8, BOTTOM = 20;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const key of Object.keys(attributes || {})) {
    if (key === 'class') made.className = attributes[key];
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), attributes[key]);
    else if (attributes[key] !== null) made.setAttribute(key, attributes[key]);
  }
  for (const child of children) if (child !== null && child !== undefined) made.append(child);
  return made;
}

/* Makes the canvas as large as its place, in pixels of the screen. */
function fitCanvas(canvas, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1), width = Math.max(160, Math.round(canvas.clientWidth));
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  context.imageSmoothingEnabled = false;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '11px ' + getComputedStyle(document.documentElement).getPropertyValue('--sans');
  context.textBaseline = 'middle';
  return { context, width, height, ratio };
}

function drawTimeAxis(area, from, to, hasLabels) {
  const { context } = area, span = to - from, step = stepOf(span, Math.max(2, area.plot / 110));
  context.strokeStyle = theme.colors.grid;
  context.fillStyle = theme.colors.soft;
  context.textAlign = 'center';
  context.lineWidth = 1;
  context.beginPath();
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    const x = Math.round(area.left + (time - from) / span * area.plot) + 0.5;
    context.moveTo(x, area.top);
    context.lineTo(x, area.bottom);
    if (hasLabels && x < area.width - 24) context.fillText(formatTick(time, step, view.last), x, area.bottom + 11);
  }
  context.stroke();
}

function formatTick(time, step, last) {
  const [unit, name] = last >= 2e9 ? [1e9, ' s'] : last >= 2e6 ? [1e6, ' ms'] : last >= 2e3 ? [1e3, ' \u00b5s'] : [1, ' ns'];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return (time / unit).toFixed(Math.min(9, digits)) + name;
}

function drawValueAxis(area, most, steps) {
  const { context } = area;
  context.strokeStyle = theme.colors.grid;
  context.fillStyle = theme.colors.soft;
  context.textAlign = 'right';
  context.lineWidth = 1;
  context.beginPath();
  for (let value = 0; value <= most; value += steps.step) {
    const y = Math.round(area.bottom - value / most * (area.bottom - area.top)) + 0.5;
    context.moveTo(area.left, y);
    context.lineTo(area.left + area.plot, y);
    context.fillText(steps.format(value), area.left - 8, y);
  }
  context.stroke();
}

/* A picture that is set pixel by pixel: thousands of narrow steps are faster so than as paths. */
function Raster() {
  const canvas = document.createElement('canvas'), context = canvas.getContext('2d');
  let image = null;
  this.begin = (width, height) => {
    if (!image || image.width !== width || image.height !== height) {
      canvas.width = width;
      canvas.height = height;
      image = context.createImageData(width, height);
      this.data = new Uint32Array(image.data.buffer);
    } else this.data.fill(0);
    this.width = width;
    this.height = height;
  };
  /* Fills a column of pixels from row `from` to before row `to`. */
  this.fill = (x, from, to, color) => {
    const { data, width } = this;
    for (let at = Math.max(0, from) * width + x, end = to * width; at < end; at += width) data[at] = color;
  };
  this.end = (area) => {
    context.putImageData(image, 0, 0);
    area.context.drawImage(canvas, area.left, area.top, area.plot, area.bottom - area.top);
  };
}

/* For each pixel: the column of the most, and the least, most and sums of the columns that touch it. */
function sumPixels(run, width) {
  const key = view.from + '/' + view.to + '/' + width;
  if (run.pixels && run.pixels.key === key) return run.pixels;
  const { curves } = run, pixels = { key, width, column: new Int32Array(width) };
  for (const name of ['least', 'reserved', 'unused', 'blocks', 'callTime', 'calls']) pixels[name] = new Float64Array(width);
  const step = (view.to - view.from) / width;
  let next = columnAt(curves, view.from), isInside = false;
  for (let x = 0; x < width; x++) {
    const from = view.from + x * step, to = from + step;
    if (to < run.meta.begin || from > run.meta.end) { /* a shorter recording has ended */
      pixels.column[x] = -1;
      continue;
    }
    while (next + 1 < curves.count && curves.time[next + 1] <= from) next++;
    let i = next, best = next;
    pixels.least[x] = curves.least[i];
    for (;;) {
      if (curves.most[i] > curves.most[best]) best = i;
      if (curves.least[i] < pixels.least[x]) pixels.least[x] = curves.least[i];
      if (curves.reservedMost[i] > pixels.reserved[x]) pixels.reserved[x] = curves.reservedMost[i];
      if (curves.blocks[i] > pixels.blocks[x]) pixels.blocks[x] = curves.blocks[i];
      const unused = curves.reserved[i] > 0 ? 1 - curves.most[i] / curves.reserved[i] : 0;
      if (unused > pixels.unused[x]) pixels.unused[x] = unused;
      if (curves.time[i] >= from || !isInside) {
        pixels.callTime[x] += curves.callTime[i];
        pixels.calls[x] += curves.calls[i];
      }
      if (i + 1 >= curves.count || curves.time[i + 1] >= to) break;
      i++;
    }
    isInside = true;
    pixels.column[x] = best;
    next = i;
  }
  run.pixels = pixels;
  return pixels;
}

/* options: run index, label, height, draw(area, pixels), tip(column) */
function Chart(runIndex, options) {
  const run = view.runs[runIndex];
  const canvas = element('canvas', {
    role: 'slider', tabindex: '0', 'aria-label': options.label + (view.runs.length > 1 ? ', ' + run.meta.label : ''), 'aria-valuemin': '0',
    'aria-valuemax': '1000', 'aria-valuenow': '0', 'aria-describedby': 'keys', 'data-chart': options.name, 'data-run': String(runIndex),
  });
  const line = element('div', { class: 'cursor-line', 'aria-hidden': 'true' }), brush = element('div', { class: 'brush', 'aria-hidden': 'true', hidden: '' });
  const caption = element('figcaption', {}, element('span', {}, options.label), element('span', { class: 'caption-value' }));
  if (options.title) this.drawTheme = () => { caption.firstChild.textContent = options.title(); };
  this.element = element('figure', { class: 'chart' }, caption, element('div', { class: 'stage' }, canvas, brush, line));
  const left = LEFT, right = RIGHT;
  let drag = null, area = null;

  this.drawWindow = () => {
    const { context, width, height, ratio } = fitCanvas(canvas, options.height);
    const bottom = height - (options.hasLabels ? BOTTOM : 4), plot = Math.max(20, width - left - right);
    area = { context, width, height, left, plot, top: TOP, bottom, ratio, pixels: Math.round(plot * ratio) };
    drawTimeAxis(area, view.from, view.to, options.hasLabels);
    options.draw(area, sumPixels(run, area.pixels));
  };

  this.drawCursor = () => {
    if (!area) return;
    const column = view.cursor.columns[runIndex], time = view.cursor.time;
    const x = left + (time - view.from) / (view.to - view.from) * area.plot;
    line.hidden = x < left || x > left + area.plot;
    line.classList.toggle('held', view.isHeld);
    line.style.transform = 'translateX(' + Math.round(x) + 'px)';
    line.style.top = area.top + 'px';
    line.style.height = area.bottom - area.top + 'px';
    brush.hidden = !drag || drag.kind !== 'window';
    if (!brush.hidden) {
      brush.style.left = Math.min(drag.start, drag.now) + 'px';
      brush.style.width = Math.abs(drag.now - drag.start) + 'px';
      brush.style.top = area.top + 'px';
      brush.style.height = area.bottom - area.top + 'px';
    }
    const text = options.value(column);
    caption.lastChild.textContent = text;
    canvas.setAttribute('aria-valuenow', String(Math.round(1000 * (time - view.first) / Math.max(1, view.last - view.first))));
    canvas.setAttribute('aria-valuetext', formatTime(time, view.to - view.from) + ': ' + text);
  };

  const timeAt = (x) => view.from + (x - left) / area.plot * (view.to - view.from);
  const pointAt = (event) => Math.max(left, Math.min(left + area.plot, event.clientX - canvas.getBoundingClientRect().left));
  const follow = (event) => {
    const x = pointAt(event), half = (view.to - view.from) / area.plot / 2, time = timeAt(x);
    if (!view.isHeld) setCursor(time - half, time + half);
    showTip(event, tipOfColumn(runIndex, columnOfMost(run.curves, time - half, time + half)));
  };
  canvas.addEventListener('pointermove', (event) => {
    if (!area) return;
    if (drag && drag.kind === 'pan') {
      pan((drag.now - pointAt(event)) / area.plot);
      drag.now = pointAt(event);
    } else if (drag) {
      drag.now = pointAt(event);
      if (Math.abs(drag.now - drag.start) > 4) drag.kind = 'window';
      request('cursor');
    }
    follow(event);
  });
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || !area) return;
    canvas.setPointerCapture(event.pointerId);
    const x = pointAt(event);
    drag = { kind: event.shiftKey ? 'pan' : 'click', start: x, now: x };
  });
  canvas.addEventListener('pointerup', () => {
    if (!drag) return;
    const done = drag;
    drag = null;
    if (done.kind === 'window') setWindow(timeAt(Math.min(done.start, done.now)), timeAt(Math.max(done.start, done.now)));
    else if (done.kind === 'click') view.isHeld = !view.isHeld;
    request('cursor');
  });
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('dblclick', () => { view.isHeld = false; showAll(); });
  canvas.addEventListener('wheel', (event) => {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const lines = event.deltaMode === 1 ? 20 : 1;
    const changed = isSideways ? pan(event.deltaX * lines / area.plot) : zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY * lines)) * 0.0022), timeAt(pointAt(event)));
    if (changed) event.preventDefault(); /* at the ends the page scrolls */
  }, { passive: false });
  canvas.addEventListener('keydown', (event) => {
    if (pressKey(event, area ? area.plot : 600, runIndex)) event.preventDefault();
  });
}

function pressKey(event, width, runIndex) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const around = view.cursor.time >= view.from && view.cursor.time <= view.to ? view.cursor.time : (view.from + view.to) / 2;
  switch (event.key) {
  case '+': case '=': zoom(0.7, around); break;
  case '-': case '_': zoom(1 / 0.7, around); break;
  case '0': showAll(); break;
  case 'ArrowLeft': if (event.shiftKey) pan(-0.1); else moveCursor(-1, width); break;
  case 'ArrowRight': if (event.shiftKey) pan(0.1); else moveCursor(1, width); break;
  case 'ArrowUp': zoom(0.7, around); break;
  case 'ArrowDown': zoom(1 / 0.7, around); break;
  case 'PageUp': moveCursor(-width / 10, width); break;
  case 'PageDown': moveCursor(width / 10, width); break;
  case 'Home': setCursor(view.from, view.from); break;
  case 'End': setCursor(view.to, view.to); break;
  case 'p': case 'P': goToPeak(runIndex); break;
  case ' ': case 'Enter': view.isHeld = !view.isHeld; request('cursor'); break;
  case 'Escape': view.isHeld = false; hideTip(); request('cursor'); break;
  default: return false;
  }
  announce();
  return true;
}

/* --- tip and announcements --- */

function showTip(event, content) {
  const tip = document.getElementById('tip');
  tip.replaceChildren(content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), gap = 16;
  const x = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
  tip.style.left = Math.max(4, x) + 'px';
  tip.style.top = Math.max(4, Math.min(innerHeight - box.height - 4, event.clientY + gap)) + 'px';
}

function hideTip() {
  document.getElementById('tip').hidden = true;
}

function listOf(title, rows) {
  const list = element('dl', {});
  for (const [name, value] of rows) list.append(element('dt', {}, name), element('dd', {}, value));
  return element('div', {}, title ? element('strong', {}, title) : null, list);
}

function tipOfColumn(runIndex, column) {
  const run = view.runs[runIndex], { curves } = run, rows = [];
  rows.push(['requested', formatBytes(curves.most[column]) + ' (' + formatExact(curves.most[column]) + ')']);
  if (run.meta.ranges) rows.push(['reserved', formatBytes(curves.reserved[column]) + ' (' + formatExact(curves.reserved[column]) + ')']);
  rows.push(['live blocks', formatCount(curves.blocks[column])]);
  if (curves.least[column] !== curves.most[column]) rows.push(['least around it', formatBytes(curves.least[column])]);
  const bands = run.bands[view.by], names = run.meta.groupings[view.by].bands;
  if (bands)
    names.map((name, band) => [name, bands.there[band][column]]).filter((row) => row[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, 5)
      .forEach(([name, bytes]) => rows.push([shorten(name, 30), formatBytes(bytes)]));
  return listOf(formatTime(curves.momentTime[column], view.to - view.from), rows);
}

let announceTimer = 0;
function announce() {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => {
    const texts = view.runs.map((run, i) => {
      const column = view.cursor.columns[i];
      return (view.runs.length > 1 ? run.meta.label + ': ' : '') + 'requested ' + formatBytes(run.curves.most[column]) +
        (run.meta.ranges ? ', reserved ' + formatBytes(run.curves.reserved[column]) : '');
    });
    document.getElementById('announcer').textContent = formatTime(view.cursor.time, view.to - view.from) + '. ' + texts.join('. ') +
      '. Window from ' + formatTime(view.from, view.to - view.from) + ' to ' + formatTime(view.to, view.to - view.from) + '.';
  }, 150);
}

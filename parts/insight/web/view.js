/* SPDX-License-Identifier: MIT */
/* What all charts share: the window of time, the cursor, the grouping, the emphasised band. Changes are drawn once in the
 * next frame. */
const view = {
  runs: [], from: 0, to: 1, first: 0, last: 1, by: BY_SIZE, emphasis: null, isHeld: false, hasReserved: true,
  cursor: { time: 0, columns: [] }, /* a column for each run */
  painters: { window: [], cursor: [], theme: [] }, due: { window: false, cursor: false },
  changes: 0, /* of colours, grouping or size: all is drawn anew */
  frames: 0,
};
let frameRequest = 0;

function paint() {
  frameRequest = 0;
  const due = view.due;
  view.due = { window: false, cursor: false };
  if (due.window) for (const painter of view.painters.window) painter();
  if (due.window || due.cursor) for (const painter of view.painters.cursor) painter();
  view.frames++;
}

function request(kind) {
  view.due[kind] = true;
  if (!frameRequest) frameRequest = requestAnimationFrame(paint);
}

function setWindow(from, to) {
  const whole = view.last - view.first, least = Math.min(whole, 20);
  let span = Math.min(whole, Math.max(least, to - from));
  let start = Math.max(view.first, Math.min((from + to - span) / 2, view.last - span));
  if (start === view.from && start + span === view.to) return false;
  view.from = start;
  view.to = start + span;
  request('window');
  return true;
}

function zoom(factor, around) {
  return setWindow(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

function pan(part) {
  const span = view.to - view.from;
  const move = Math.max(view.first - view.from, Math.min(view.last - view.to, span * part));
  return setWindow(view.from + move, view.to + move);
}

function showAll() {
  return setWindow(view.first, view.last);
}

/* Puts the cursor on the most requested bytes in [from, to) of each run. */
function setCursor(from, to) {
  view.cursor = { time: (from + to) / 2, columns: view.runs.map((run) => columnOfMost(run.curves, from, to)) };
  request('cursor');
}

/* Puts the cursor on the peak of a run; other runs follow by time. */
function goToPeak(index) {
  const run = view.runs[index];
  const time = run.curves.momentTime[run.peakColumn];
  view.cursor = { time, columns: view.runs.map((other, i) => (i === index ? run.peakColumn : columnOfMost(other.curves, time, time))) };
  if (time < view.from || time > view.to) setWindow(time - (view.to - view.from) / 2, time + (view.to - view.from) / 2);
  request('cursor');
}

function moveCursor(columns, width) {
  const step = (view.to - view.from) / width;
  const inside = Math.max(view.first, Math.min(view.last, view.cursor.time + columns * step));
  if (inside < view.from || inside >= view.to) pan((inside < view.from ? -1 : 1) * 0.25);
  setCursor(inside - step / 2, inside + step / 2);
}

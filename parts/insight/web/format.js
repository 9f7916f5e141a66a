/* SPDX-License-Identifier: MIT */
/* Numbers for people, and the steps of axes. */
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

function unitOf(bytes) {
  let unit = 0;
  for (let left = Math.abs(bytes); left >= 1024 && unit < UNITS.length - 1; left /= 1024) unit++;
  return unit;
}

function formatBytes(bytes) {
  const unit = unitOf(bytes);
  return unit ? (bytes / Math.pow(1024, unit)).toFixed(2) + ' ' + UNITS[unit] : bytes + ' B';
}

function formatCount(count) {
  return Math.round(count).toLocaleString('en-US');
}

function formatMany(count, word) {
  return formatCount(count) + ' ' + word + (count === 1 ? '' : 's');
}

function formatExact(bytes) {
  return formatMany(bytes, 'byte');
}

/* `span` is the length of time around the value: it sets the digits. */
function formatTime(ns, span) {
  const scale = span === undefined ? Math.abs(ns) : span;
  const large = Math.max(Math.abs(ns), scale);
  const [unit, name] = large >= 1e9 ? [1e9, 's'] : large >= 1e6 ? [1e6, 'ms'] : large >= 1e3 ? [1e3, '\u00b5s'] : [1, 'ns'];
  const digits = unit === 1 ? 0 : Math.min(9, Math.max(0, Math.ceil(-Math.log10(Math.max(scale, 1) / unit)) + 3));
  return (ns / unit).toFixed(digits) + ' ' + name;
}

function formatDuration(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(3) + ' s';
  if (ns >= 1e6) return (ns / 1e6).toFixed(3) + ' ms';
  if (ns >= 1e3) return (ns / 1e3).toFixed(3) + ' \u00b5s';
  return Math.round(ns) + ' ns';
}

/* Reads "1.5 s", "20ms"; a number alone is in seconds. NaN for anything else. */
function parseTime(text) {
  const found = /^\s*([0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?)\s*(s|ms|us|\u00b5s|ns)?\s*$/i.exec(text);
  const scale = { s: 1e9, ms: 1e6, us: 1e3, '\u00b5s': 1e3, ns: 1 };
  return found ? Number(found[1]) * scale[(found[2] || 's').toLowerCase()] : NaN;
}

function formatPercent(part) {
  return (100 * part).toFixed(part > 0 && part < 0.1 ? 2 : 1) + ' %';
}

function formatAddress(address) {
  return '0x' + address.toString(16);
}

/* Steps of an axis of bytes: powers of two, and halves of them. */
function stepsOfBytes(most, count) {
  let step = 1;
  while (most / step > count) step *= 2;
  return { step, format: (value) => {
    const unit = unitOf(most);
    const scaled = value / Math.pow(1024, unit);
    return (Number.isInteger(scaled) ? scaled : scaled.toFixed(step / Math.pow(1024, unit) < 0.1 ? 2 : 1)) + ' ' + UNITS[unit];
  } };
}

function stepOf(span, count) {
  const power = Math.pow(10, Math.floor(Math.log10(span / count)));
  const rest = span / count / power;
  return power * (rest > 5 ? 10 : rest > 2 ? 5 : rest > 1 ? 2 : 1);
}

function shorten(text, length) {
  return text.length > length ? text.slice(0, length - 1) + '\u2026' : text;
}

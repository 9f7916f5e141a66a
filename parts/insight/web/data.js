/* SPDX-License-Identifier: MIT */
/* Decodes what the file contains: numbers of seven bits a byte, in base64. */
function decodeBase64(id) {
  const element = document.getElementById(id);
  const text = element ? element.textContent : '';
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function Reader(bytes) {
  let at = 0;
  this.next = function () {
    let byte = bytes[at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  };
  this.change = function () {
    const value = this.next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  };
}

/* Columns of time. `time` is the start of a column; the others belong to the moment of the most requested bytes in it. */
function decodeCurves(index, meta) {
  const count = meta.columns, reader = new Reader(decodeBase64('data-' + index + '-curves'));
  const names = ['time', 'moment', 'momentTime', 'most', 'least', 'last', 'reservedMost', 'reserved', 'reservedLast', 'blocks', 'callTime', 'calls', 'allocations'];
  const curves = { count };
  for (const name of names) curves[name] = new Float64Array(count);
  let time = 0, moment = 0, most = 0, reserved = 0, blocks = 0;
  for (let i = 0; i < count; i++) {
    curves.time[i] = time += reader.next();
    curves.moment[i] = moment += reader.next();
    curves.momentTime[i] = time + reader.next();
    curves.most[i] = most += reader.change();
    curves.least[i] = most - reader.next();
    curves.last[i] = most - reader.next();
    curves.reservedMost[i] = reserved += reader.change();
    curves.reserved[i] = reserved - reader.next();
    curves.reservedLast[i] = reserved - reader.next();
    curves.blocks[i] = blocks += reader.change();
    curves.callTime[i] = reader.next();
    curves.calls[i] = reader.next();
    curves.allocations[i] = reader.next();
  }
  return curves;
}

/* Bands of a grouping: `there` at the moment of the column, `most` anywhere in the column. */
function decodeBands(index, by, meta) {
  const count = meta.columns, bands = meta.groupings[by].bands.length;
  const reader = new Reader(decodeBase64('data-' + index + '-bands-' + by));
  const there = [], most = [], now = new Float64Array(bands);
  for (let band = 0; band < bands; band++) {
    there.push(new Float64Array(count));
    most.push(new Float64Array(count));
  }
  for (let i = 0; i < count; i++) {
    const changed = reader.next();
    for (let band = 0; band < bands; band++) if (changed >> band & 1) now[band] += reader.change();
    const higher = reader.next();
    for (let band = 0; band < bands; band++) {
      there[band][i] = now[band];
      most[band][i] = higher >> band & 1 ? now[band] + reader.next() : now[band];
    }
  }
  return { there, most };
}

function readPlace(reader, lives, i, before) {
  lives.begin[i] = (i ? lives.begin[i - 1] : 1) + reader.next(); /* live at a moment m: begin <= m < end */
  lives.beginTime[i] = before.time += reader.next();
  const length = reader.next();
  lives.end[i] = length ? lives.begin[i] + length - 1 : Infinity;
  lives.endTime[i] = length ? lives.beginTime[i] + reader.next() : Infinity;
  lives.address[i] = before.address += reader.change();
  lives.bytes[i] = reader.next();
}

function makePlaces(count) {
  const lives = { count };
  for (const name of ['begin', 'beginTime', 'end', 'endTime', 'address', 'bytes']) lives[name] = new Float64Array(count);
  return lives;
}

const FLAG_PRESENT = 1, FLAG_SHARED = 2, FLAG_RESIZED = 4, FLAG_MOVED = 8;
const BY_TAG = 0, BY_SITE = 1, BY_SIZE = 2, BY_STREAM = 3, BY_ALLOCATOR = 4;

function sizeGroup(bytes) {
  let group = 0;
  for (let limit = 4096; group < 6 && bytes >= limit; limit *= 16) group++;
  return group;
}

/* Lives of blocks. `groups[by][i]` is a number in meta.groupings[by].names, for sizes the class itself. */
function decodeLives(index, meta) {
  const count = meta.lives, reader = new Reader(decodeBase64('data-' + index + '-lives'));
  const lives = makePlaces(count), before = { time: 0, address: 0 };
  lives.id = new Float64Array(count);
  lives.flags = new Uint8Array(count);
  lives.stack = new Int32Array(count);
  lives.groups = meta.groupings.map(() => new Uint32Array(count));
  for (let i = 0, id = 0; i < count; i++) {
    readPlace(reader, lives, i, before);
    lives.id[i] = id += reader.change();
    lives.flags[i] = reader.next();
    for (let by = 0; by < lives.groups.length; by++)
      lives.groups[by][i] = by === BY_SIZE ? sizeGroup(lives.bytes[i]) : reader.next();
    lives.stack[i] = reader.next() - 1;
  }
  return lives;
}

function decodeRanges(index, meta) {
  const count = meta.rangesKept, reader = new Reader(decodeBase64('data-' + index + '-ranges'));
  const ranges = makePlaces(count), before = { time: 0, address: 0 };
  ranges.kind = new Uint8Array(count);
  ranges.device = new Uint16Array(count);
  ranges.memory = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    readPlace(reader, ranges, i, before);
    ranges.kind[i] = reader.next();
    ranges.device[i] = reader.next();
    ranges.memory[i] = reader.next();
  }
  return ranges;
}

/* The first column at or after `time`; the one before it if that one covers `time`. */
function columnAt(curves, time) {
  let low = 0, high = curves.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (curves.time[middle] < time) low = middle + 1;
    else high = middle;
  }
  if (low === curves.count || (low && curves.time[low] > time)) low--;
  return low;
}

/* The column with the most requested bytes among those that touch [from, to). */
function columnOfMost(curves, from, to) {
  let best = columnAt(curves, from);
  for (let i = best + 1; i < curves.count && curves.time[i] < to; i++)
    if (curves.most[i] > curves.most[best]) best = i;
  return best;
}

/* Groups of size classes are numbered by class, others in the order of their first use. */
function groupName(run, by, group) {
  return by === BY_SIZE ? SIZE_NAMES[group] : run.meta.groupings[by].names[group];
}

const SIZE_NAMES = ['under 4 KiB', '4 KiB to 64 KiB', '64 KiB to 1 MiB', '1 MiB to 16 MiB', '16 MiB to 256 MiB', '256 MiB to 4 GiB', '4 GiB or more'];

function bandOfLife(run, by, i) {
  const grouping = run.meta.groupings[by], group = run.lives.groups[by][i];
  return by === BY_SIZE ? grouping.bands.indexOf(SIZE_NAMES[group]) : grouping.band[group];
}

/* Indices of lives or ranges at a moment. */
function livesAt(lives, moment) {
  const found = [], begin = lives.begin, end = lives.end;
  for (let i = 0; i < lives.count && begin[i] <= moment; i++) if (end[i] > moment) found.push(i);
  return found;
}

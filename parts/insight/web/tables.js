/* SPDX-License-Identifier: MIT */
/* Tables that sort by any column; what was live at a moment; driver calls; sizes and lifetimes. */

/* columns: {name, format, isText, node}; rows: arrays of values, sorted by `sort` first, downwards. */
function makeTable(caption, columns, rows, sort) {
  const table = element('table', {}, element('caption', {}, caption)), body = element('tbody', {});
  let order = sort === undefined ? -1 : sort, isDown = true;
  const heads = columns.map((column, at) => element('th', { scope: 'col', class: column.isText ? 'text' : '' },
    element('button', { type: 'button', onclick: () => {
      isDown = order === at ? !isDown : !column.isText;
      order = at;
      fill();
    } }, column.name)));
  const fill = () => {
    if (order >= 0) rows.sort((a, b) => (isDown ? -1 : 1) * (typeof a[order] === 'string' ? a[order].localeCompare(b[order]) : a[order] - b[order]));
    heads.forEach((head, at) => { if (at === order) head.setAttribute('aria-sort', isDown ? 'descending' : 'ascending'); else head.removeAttribute('aria-sort'); });
    body.replaceChildren(...rows.map((row) => element('tr', {}, ...columns.map((column, at) => {
      const cell = element(at ? 'td' : 'th', at ? { class: column.isText ? 'text' : '' } : { scope: 'row', class: column.isText ? 'text' : '' });
      cell.append(column.node ? column.node(row[at], row) : column.format ? column.format(row[at], row) : row[at]);
      return cell;
    }))));
  };
  fill();
  table.append(element('thead', {}, element('tr', {}, ...heads)), body);
  return element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, table);
}

function sumBy(run, found, by) {
  const sums = new Map();
  for (const i of found) {
    const group = run.lives.groups[by][i], sum = sums.get(group) || { bytes: 0, blocks: 0 };
    sum.bytes += run.lives.bytes[i];
    sum.blocks++;
    sums.set(group, sum);
  }
  return sums;
}

function makeGroupTable(run, found, by, total, restBytes, restBlocks, title) {
  const rows = Array.from(sumBy(run, found, by), ([group, sum]) => [groupName(run, by, group), sum.bytes, sum.bytes / Math.max(1, total), sum.blocks]);
  const count = rows.length;
  rows.sort((a, b) => b[1] - a[1]);
  if (count > 200) rows.length = 200;
  if (restBlocks > 0) rows.push(['small blocks that this file sums', restBytes, restBytes / Math.max(1, total), restBlocks]);
  return makeTable(title + (count > 200 ? ', the largest 200 of ' + formatCount(count) : ''), [{ name: run.meta.groupings[by].by[0].toUpperCase() + run.meta.groupings[by].by.slice(1), isText: true },
    { name: 'Bytes', format: formatBytes }, { name: 'Part', format: formatPercent }, { name: 'Blocks', format: formatCount }], rows, 1);
}

function makeStack(run, stack) {
  if (stack < 0) return document.createTextNode('\u2013');
  const frames = run.meta.stacks[stack];
  const details = element('details', {}, element('summary', {}, shorten(run.meta.frames[frames[0]] || '', 60)));
  details.append(element('ol', { class: 'stack' }, ...frames.map((frame) => element('li', {}, run.meta.frames[frame]))));
  return details;
}

const BLOCKS_LISTED = 60;

function makeBlockTable(run, found, title) {
  const { lives } = run, largest = found.slice().sort((a, b) => lives.bytes[b] - lives.bytes[a]).slice(0, BLOCKS_LISTED);
  const columns = [{ name: 'Block', format: (value) => String(value) }, { name: 'Bytes', format: formatBytes },
    { name: 'Tag', isText: true }, { name: 'From', format: formatDuration }, { name: 'To', format: (value) => (value === Infinity ? 'end' : formatDuration(value)) }, { name: 'Stream', isText: true }];
  if (run.meta.addresses) columns.push({ name: 'Address', format: formatAddress });
  const hasStacks = run.meta.stacks.length > 0;
  if (hasStacks) columns.push({ name: 'Call site', isText: true, node: (_, row) => makeStack(run, row[row.length - 1]) });
  const rows = largest.map((i) => {
    const row = [lives.id[i], lives.bytes[i], groupName(run, BY_TAG, lives.groups[BY_TAG][i]), lives.beginTime[i], lives.endTime[i], groupName(run, BY_STREAM, lives.groups[BY_STREAM][i])];
    if (run.meta.addresses) row.push(lives.address[i]);
    if (hasStacks) row.push(groupName(run, BY_SITE, lives.groups[BY_SITE][i]), lives.stack[i]);
    return row;
  });
  return makeTable(title + ': ' + formatCount(rows.length) + ' largest of ' + formatMany(found.length, 'block'), columns, rows, 1);
}

/* What was live at the cursor, at the peak, or at the end. Drawn when the cursor rests, as it can be long. */
function LiveTables(host) {
  let choice = 'cursor', timer = 0, shown = '';
  const momentOf = (run, i) => {
    if (choice === 'end') return { moment: run.meta.lastMoment, bytes: run.meta.atEnd, blocks: run.meta.atEndBlocks, words: 'at the end' };
    const column = choice === 'peak' ? run.peakColumn : view.cursor.columns[i], { curves } = run;
    return { moment: curves.moment[column], bytes: curves.most[column], blocks: curves.blocks[column], words: 'at ' + formatTime(curves.momentTime[column], run.meta.end - run.meta.begin) };
  };
  const draw = () => {
    const key = choice + view.runs.map((run, i) => momentOf(run, i).moment).join('/') + '/' + view.by;
    if (key === shown || !view.runs[0].lives) return;
    shown = key;
    host.replaceChildren(...view.runs.map((run, i) => {
      const { moment, bytes, blocks, words } = momentOf(run, i), found = livesAt(run.lives, moment);
      let kept = 0;
      for (const life of found) kept += run.lives.bytes[life];
      const rest = [bytes - kept, blocks - found.length], grid = element('div', { class: 'grid' });
      const what = choice === 'end' ? 'Not freed' : 'Live';
      const bys = [BY_TAG, BY_SITE].filter((by) => run.meta.groupings[by].bands.length || run.meta.groupings[by].groups > 1);
      if (!bys.length) bys.push(BY_SIZE);
      if (bys.length < 2 && view.by !== bys[0]) bys.push(view.by);
      for (const by of bys) grid.append(makeGroupTable(run, found, by, bytes, rest[0], rest[1], what + ' ' + words + ', by ' + run.meta.groupings[by].by));
      const wide = makeBlockTable(run, found, what + ' ' + words);
      wide.classList.add('wide');
      grid.append(wide);
      return element('div', { class: 'panel' }, element('h3', { 'data-live-bytes': String(bytes) }, (view.runs.length > 1 ? run.meta.label + ': ' : '') + formatBytes(bytes) + ' in ' + formatMany(blocks, 'block') + ' ' + words +
        (choice === 'end' && !blocks ? ': everything was freed' : '')), grid);
    }));
  };
  this.drawCursor = () => {
    clearTimeout(timer);
    timer = setTimeout(draw, choice === 'cursor' ? 120 : 0);
  };
  for (const button of document.querySelectorAll('[data-moment]'))
    button.addEventListener('click', () => {
      choice = button.dataset.moment;
      for (const other of document.querySelectorAll('[data-moment]')) other.setAttribute('aria-pressed', String(other === button));
      draw();
    });
}

function makeCalls(run) {
  const panel = element('div', { class: 'panel' }, view.runs.length > 1 ? element('h3', {}, run.meta.label) : null);
  if (!run.meta.calls.length) {
    panel.append(element('p', { class: 'note' }, 'This recording has no driver calls. The recorder of Loch notes them: LOCH_TRACE=program.loch.'));
    return panel;
  }
  let all = 0, count = 0;
  for (const call of run.meta.calls) {
    all += call.ns;
    count += call.count;
  }
  panel.append(makeTable(formatMany(count, 'call') + ' took ' + formatDuration(all), [{ name: 'Call', isText: true }, { name: 'Count', format: formatCount }, { name: 'Time', format: formatDuration },
    { name: 'Part', format: formatPercent }, { name: 'Mean', format: formatDuration }, { name: 'Longest', format: formatDuration }],
  run.meta.calls.map((call) => [call.name, call.count, call.ns, call.ns / Math.max(1, all), call.ns / call.count, call.most]), 2));
  return panel;
}

function makeHistogram(title, powers, format) {
  const first = powers.findIndex((count) => count > 0), most = Math.max(1, ...powers), rows = [];
  for (let i = Math.max(0, first); i < powers.length; i++) rows.push([Math.pow(2, i), powers[i], powers[i]]);
  if (first < 0) return element('p', { class: 'note' }, title + ': there are no blocks.');
  return makeTable(title, [{ name: 'From', format }, { name: 'Blocks', format: formatCount },
    { name: 'Share', node: (value) => element('meter', { min: '0', max: String(most), value: String(value), 'aria-label': formatCount(value) }) }], rows);
}

function makeShape(run) {
  return element('div', { class: 'panel' }, view.runs.length > 1 ? element('h3', {}, run.meta.label) : null, element('div', { class: 'grid' },
    makeHistogram('Blocks by size', run.meta.sizes, formatBytes), makeHistogram('Freed blocks by lifetime', run.meta.lifetimes, formatDuration)));
}

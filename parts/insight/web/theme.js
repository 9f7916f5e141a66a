/* SPDX-License-Identifier: MIT */
/* Colours: of the page, and of the bands. A name has one colour in all charts and both recordings. */
const PALETTE = 9;
const theme = { choice: 'auto', colors: {} };

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['page', 'card', 'ink', 'soft', 'faint', 'line', 'grid', 'accent', 'reserved', 'free', 'hole', 'cursor', 'other', 'bad'])
    theme.colors[name] = style.getPropertyValue('--' + name).trim();
  theme.bands = [];
  for (let i = 0; i < PALETTE; i++) theme.bands.push(style.getPropertyValue('--c' + i).trim());
}

/* A colour "#rrggbb" as the pixels of a canvas have it; `part` of it is replaced by another colour. */
function pixelColor(color, part, other) {
  let value = 0;
  for (let i = 0; i < 3; i++) {
    const one = parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16), into = other ? parseInt(other.slice(1 + 2 * i, 3 + 2 * i), 16) : one;
    value |= Math.round(one + (into - one) * (part || 0)) << 8 * i;
  }
  return (value | 0xff000000) >>> 0;
}

function applyTheme(choice) {
  const isDark = choice === 'dark' || (choice === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  theme.choice = choice;
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
  for (const button of document.querySelectorAll('[data-theme-choice]'))
    button.setAttribute('aria-pressed', String(button.dataset.themeChoice === choice));
  readColors();
}

/* Numbers the names of all bands of a grouping, the first recording first; "other" is grey. Bands lie on each other in
 * the order of these numbers, so that both recordings look alike; sizes lie in their own order. */
function numberColors(runs, by) {
  const numbers = new Map();
  if (by === BY_SIZE) SIZE_NAMES.forEach((name) => numbers.set(name, numbers.size));
  for (const run of runs) {
    const grouping = run.meta.groupings[by];
    grouping.bands.forEach((name, band) => {
      const isOther = grouping.others && band === grouping.bands.length - 1;
      if (!isOther && !numbers.has(name)) numbers.set(name, numbers.size);
    });
  }
  for (const run of runs) {
    const grouping = run.meta.groupings[by];
    const rank = grouping.bands.map((name, band) => (grouping.others && band === grouping.bands.length - 1 ? Infinity : numbers.get(name)));
    grouping.colors = rank.map((number) => (number === Infinity ? -1 : number % PALETTE));
    grouping.order = rank.map((_, band) => band).sort((a, b) => rank[a] - rank[b]);
  }
}

function bandColor(run, by, band) {
  const number = run.meta.groupings[by].colors[band];
  return number >= 0 ? theme.bands[number] : theme.colors.other;
}

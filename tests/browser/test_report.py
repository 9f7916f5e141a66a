# SPDX-License-Identifier: MIT
"""The report in a real browser: what it draws, what it says, how it answers to mouse and keyboard. make_report.c says what the
recordings contain."""
import json
import os
import subprocess
import unittest

from chromium import Browser, find_program

MIB = 1 << 20
PEAK = 52 * MIB
FOLDER = os.environ['LOCH_REPORTS']
SHIFT = 8


def report(name):
    return os.path.join(FOLDER, name)


class Report(unittest.TestCase):
    """One browser for all tests; each test opens its page anew."""

    @classmethod
    def setUpClass(cls):
        if not find_program():
            raise AssertionError('there is no Chromium: scripts/setup browser brings it')
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def setUp(self):
        self.browser.scheme('light')

    def tearDown(self):
        self.assertEqual(self.browser.problems, [], 'errors of scripts, or of the policy')
        self.assertEqual([url for url in self.browser.requests if not url.startswith('file://')], [], 'the page used the network')
        self.assertEqual(len(self.browser.requests), 1, 'the page loaded more than its file')

    # --- helpers ---

    def pixels(self, selector, expression):
        """An expression over the pixels of a canvas: `data`, `width`, `scale`. A copy is read, so that the page keeps its own."""
        return self.browser.js(f"""(() => {{ const one = document.querySelector({json.dumps(selector)}), copy = document.createElement('canvas');
            const width = copy.width = one.width, scale = one.width / one.clientWidth;
            copy.height = one.height;
            const context = copy.getContext('2d', {{willReadFrequently: true}});
            context.drawImage(one, 0, 0);
            const data = context.getImageData(0, 0, copy.width, copy.height).data;
            return {expression}; }})()""")

    def pixel(self, selector, x, y):
        """The colour of a canvas at a place inside it, in pixels of the page."""
        return self.pixels(selector, f"Array.from(data.slice(4 * (width * Math.round({y} * scale) + Math.round({x} * scale))).slice(0, 4))")

    def css_color(self, name):
        """A colour of the style as the canvas has it."""
        return self.browser.js(f"""(() => {{ const one = document.createElement('canvas').getContext('2d', {{willReadFrequently: true}});
            one.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim();
            one.fillRect(0, 0, 1, 1); return Array.from(one.getImageData(0, 0, 1, 1).data); }})()""")

    def colors(self, selector):
        """The number of colours in a canvas."""
        return self.pixels(selector, "new Set(new Uint32Array(data.buffer)).size")

    def figure(self, name, run=0):
        return self.browser.js(f"Number(document.querySelector('[data-readout=\"{run}\"] [data-figure=\"{name}\"]').dataset.exact)")

    def window(self):
        return self.browser.js('[lochReport.view.from, lochReport.view.to]')

    def focus(self, selector):
        self.browser.js(f"document.querySelector({json.dumps(selector)}).focus()")
        self.browser.settle()

    def at(self, selector, time_ms):
        """Where a moment is on a chart: x and y on the screen."""
        left, top, width, height = self.browser.box(selector)
        begin, end = self.window()
        return left + 74 + (time_ms * 1e6 - begin) / (end - begin) * (width - 84), top + height / 2

    # --- what is drawn ---

    def test_charts_are_drawn(self):
        self.browser.open(report('one.html'))
        for name in ('memory', 'overview', 'unused', 'blocks', 'calls', 'map'):
            self.assertGreater(self.colors(f'canvas[data-chart="{name}"]'), 2, name)
        # In the middle of the run the lowest band, the largest tag, is at the bottom of the chart.
        chart = 'canvas[data-chart="memory"]'
        x, _ = self.at(chart, 20.45)
        left, _, _, height = self.browser.box(chart)
        lowest = self.browser.js('lochReport.view.runs[0].meta.groupings[0].bands[0]')
        self.assertEqual(lowest, 'cache</script><b>')
        self.assertEqual(self.pixel(chart, x - left, height - 23), self.css_color('c0'))

    def test_recordings_with_next_to_nothing(self):
        self.browser.open(report('empty.html'))
        self.assertEqual(self.figure('requested'), 0)
        self.browser.open(report('block.html'))
        self.assertEqual(self.figure('requested'), MIB)
        self.focus('canvas[data-chart="memory"]')
        for key in ('+', '-', 'ArrowLeft', 'ArrowRight', '0', 'p'):
            self.browser.key(key)
        self.assertEqual(self.figure('requested'), MIB)
        self.assertIn('1.00 MiB in 1 block', self.browser.js("document.querySelector('[data-map-summary]').textContent"))

    def test_title_and_names_are_text(self):
        self.browser.open(report('one.html'))
        self.assertEqual(self.browser.js("document.title"), 'A decoder <before & after>')
        self.assertEqual(self.browser.js("document.getElementById('title').textContent"), 'A decoder <before & after>')
        self.assertIn('cache</script><b>', self.browser.js("document.querySelector('.legend').textContent"))
        self.assertEqual(self.browser.js("document.querySelectorAll('b b, .legend b').length"), 0)

    def test_the_cursor_starts_at_the_peak(self):
        self.browser.open(report('one.html'))
        self.assertEqual(self.figure('requested'), PEAK)
        self.assertEqual(self.figure('reserved'), 96 * MIB)
        self.assertEqual(self.figure('blocks'), 25)
        self.assertEqual(self.browser.js('lochReport.view.runs[0].meta.peakTime'), 39400000)
        self.assertIn('52.00 MiB', self.browser.js("document.querySelector('.tiles').textContent"))
        self.browser.wait("document.querySelector('[data-live-bytes]') !== null")
        rows = self.browser.js("Array.from(document.querySelector('#live table tbody').rows, (row) => Array.from(row.cells, (cell) => cell.textContent))")
        self.assertEqual([[row[0], row[1], row[3]] for row in rows], [['cache</script><b>', '20.00 MiB', '20'], ['weights', '16.00 MiB', '1'], ['activations', '16.00 MiB', '4']])

    def test_hover_shows_the_numbers_of_the_recording(self):
        self.browser.open(report('one.html'))
        x, y = self.at('canvas[data-chart="memory"]', 10.45)  # step 9: 5 blocks of the cache
        self.browser.move(x, y)
        self.assertEqual(self.figure('requested'), (16 + 16 + 5) * MIB)
        tip = self.browser.js("document.getElementById('tip').textContent")
        self.assertIn(f'{37 * MIB:,} bytes', tip)
        self.assertIn('activations16.00 MiB', tip)
        x, y = self.at('canvas[data-chart="blocks"]', 10.95)  # all charts share the cursor
        self.browser.move(x, y)
        self.assertEqual(self.figure('requested'), (16 + 5) * MIB)
        self.assertEqual(self.browser.js("document.querySelector('canvas[data-chart=memory]').getAttribute('aria-valuetext')").split(': ')[1], '21.00 MiB of 96.00 MiB')

    def test_a_recorded_program_has_the_figures_of_loch_stats(self):
        build, recording, page = os.environ['LOCH_BUILD'], report('decoder.loch'), report('decoder.html')
        subprocess.run([os.path.join(build, 'apps', 'decoder')], env={**os.environ, 'LOCH_TRACE': recording}, check=True, stdout=subprocess.DEVNULL)
        program = os.path.join(build, 'bin', 'loch')
        subprocess.run([program, 'report', recording, '-o', page], check=True, stdout=subprocess.DEVNULL)
        stats = json.loads(subprocess.run([program, 'stats', '--json', recording], check=True, stdout=subprocess.PIPE).stdout)
        self.browser.open(page)
        self.assertEqual(self.figure('requested'), stats['peak_requested'])
        self.assertEqual(self.figure('reserved'), stats['reserved_at_peak'])
        self.assertEqual(self.figure('blocks'), stats['at_peak']['blocks'])
        meta = self.browser.js('lochReport.view.runs[0].meta')
        self.assertEqual((meta['events'], meta['peakReserved'], meta['peakTime'], meta['atEnd']), (stats['events'], stats['peak_reserved'], stats['peak_time_ns'], stats['at_end']['bytes']))
        self.assertEqual(sum(call['ns'] for call in meta['calls']), stats['driver_calls_ns'])
        self.browser.wait("document.querySelector('#live table tbody tr') !== null")
        tags = self.browser.js('''(() => { const run = lochReport.view.runs[0], sums = {};
            for (const i of lochReport.livesAt(run.lives, run.meta.peakMoment)) { const tag = run.meta.groupings[0].names[run.lives.groups[0][i]]; sums[tag] = (sums[tag] || 0) + run.lives.bytes[i]; }
            return sums; })()''')
        self.assertEqual(tags, {one['tag']: one['bytes'] for one in stats['at_peak']['tags']})
        self.assertEqual(self.browser.js('lochReport.mapAt(lochReport.view.runs[0], lochReport.view.runs[0].meta.peakMoment).used'), stats['peak_requested'])

    def test_leaks_are_listed_by_tag_and_call_site(self):
        self.browser.open(report('one.html'))
        self.browser.click('[data-moment="end"]')
        self.browser.wait("document.querySelector('[data-live-bytes]').dataset.liveBytes === String(3 << 20)")
        text = self.browser.js("document.getElementById('live').textContent")
        self.assertIn('grow at cache.c:7', text)
        self.assertNotIn('weights', text)
        self.assertEqual(self.browser.js("document.querySelector('#live details ol').children[1].textContent"), 'grow at cache.c:7')

    # --- zoom, pan, keys ---

    def test_the_wheel_zooms_around_the_pointer(self):
        self.browser.open(report('one.html'))
        x, y = self.at('canvas[data-chart="memory"]', 20.45)
        before = self.window()
        self.browser.wheel(x, y, -300)
        begin, end = self.window()
        self.assertLess(end - begin, 0.6 * (before[1] - before[0]))
        again, _ = self.at('canvas[data-chart="memory"]', 20.45)
        self.assertAlmostEqual(again, x, delta=1)
        self.browser.wheel(x, y, 300)
        self.browser.wheel(x, y, 300)
        self.assertEqual(self.window(), before)

    def test_a_drag_selects_a_window_and_shift_drag_moves_it(self):
        self.browser.open(report('one.html'))
        chart = 'canvas[data-chart="memory"]'
        start, end = self.at(chart, 10), self.at(chart, 20)
        self.browser.drag(start, end)
        begin, last = self.window()
        self.assertAlmostEqual(begin / 1e6, 10, delta=0.2)
        self.assertAlmostEqual(last / 1e6, 20, delta=0.2)
        start, end = self.at(chart, 15), self.at(chart, 18)
        self.browser.drag(start, end, SHIFT)
        self.assertAlmostEqual(self.window()[0] / 1e6, 7, delta=0.3)
        self.assertAlmostEqual(self.window()[1] - self.window()[0], last - begin, delta=1)

    def test_the_keyboard_does_all(self):
        self.browser.open(report('one.html'))
        self.focus('canvas[data-chart="memory"]')
        before = self.window()
        self.browser.key('+')
        begin, end = self.window()
        self.assertAlmostEqual((end - begin) / (before[1] - before[0]), 0.7, delta=0.01)
        self.browser.key('ArrowLeft', SHIFT)
        self.assertLess(self.window()[0], begin)
        self.browser.key('-')
        self.browser.key('0')
        self.assertEqual(self.window(), before)
        self.browser.key('Home')
        self.assertEqual(self.figure('requested'), 0)
        time = self.browser.js('lochReport.view.cursor.time')
        self.browser.key('ArrowRight')
        self.assertGreater(self.browser.js('lochReport.view.cursor.time'), time)
        self.browser.key('p')
        self.assertEqual(self.figure('requested'), PEAK)
        self.browser.key(' ')
        self.assertTrue(self.browser.js('lochReport.view.isHeld'))
        x, y = self.at('canvas[data-chart="memory"]', 10.45)
        self.browser.move(x, y)  # the cursor is held
        self.assertEqual(self.figure('requested'), PEAK)
        self.browser.key('Escape')
        self.browser.wait("document.getElementById('announcer').textContent.includes('52.00 MiB')")

    def test_tab_reaches_everything_and_focus_is_visible(self):
        self.browser.open(report('one.html'))
        self.browser.js("document.activeElement.blur()")
        seen = set()
        for _ in range(60):
            self.browser.key('Tab')
            seen.add(self.browser.js("document.activeElement.dataset.chart || document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
            outline = self.browser.js("getComputedStyle(document.activeElement).outlineStyle")
            self.assertTrue(outline != 'none' or self.browser.js("document.activeElement === document.body"), seen)
        for name in ('skip', 'by', 'from', 'to', 'zoom-in', 'memory', 'overview', 'blocks', 'map', 'scroll'):
            self.assertIn(name, seen)

    def test_a_window_can_be_typed(self):
        self.browser.open(report('one.html'))
        self.browser.js("""(() => { const to = document.getElementById('to'), from = document.getElementById('from');
            from.value = '5 ms'; to.value = '8ms'; to.dispatchEvent(new Event('change')); })()""")
        self.browser.settle()
        self.assertEqual(self.window(), [5e6, 8e6])

    def test_a_band_alone_and_another_grouping(self):
        self.browser.open(report('one.html'))
        self.browser.click('.legend button')
        self.assertIsNotNone(self.browser.js('lochReport.view.emphasis'))
        self.browser.click('.legend button')
        self.assertIsNone(self.browser.js('lochReport.view.emphasis'))
        self.browser.js("""(() => { const by = document.getElementById('by'); by.value = '1'; by.dispatchEvent(new Event('change')); })()""")
        self.browser.settle()
        self.assertIn('layer at model.c:42', self.browser.js("document.querySelector('.legend').textContent"))
        self.assertEqual(self.figure('requested'), PEAK)

    def test_the_reserved_line_can_be_hidden(self):
        self.browser.open(report('one.html'))
        chart = 'canvas[data-chart="memory"]'
        x, _ = self.at(chart, 20.45)
        left, _, _, height = self.browser.box(chart)
        self.assertEqual(self.pixel(chart, x - left, height * 0.4)[3], 0)  # nothing between 42 MiB requested and 96 MiB reserved
        self.browser.click('#reserved')
        self.browser.box(chart)
        self.assertNotEqual(self.pixel(chart, x - left, height * 0.4)[3], 0)  # the scale is that of the requested bytes

    # --- the address map ---

    def test_the_map_has_the_right_bytes(self):
        self.browser.open(report('one.html'))
        summary = self.browser.js("Object.assign({}, ...Array.from(document.querySelectorAll('[data-map-summary] b'), (one) => ({...one.dataset})))")
        self.assertEqual(int(summary['mapUsed']), PEAK)
        self.assertEqual(int(summary['mapReserved']), 96 * MIB)
        self.assertEqual(int(summary['mapFree']), 44 * MIB)
        self.assertEqual(int(summary['mapLargest']), 16 * MIB)  # 16 to 32 MiB, and 48 to 64 MiB, of range A
        # 96 MiB in 26 rows of 13 pixels each: the colour at an offset is the colour of what is there.
        chart = 'canvas[data-chart="map"]'
        _, _, width, _ = self.browser.box(chart)

        def color_at(mib):
            row, rest = divmod(mib * 26 / 96, 1)
            return self.pixel(chart, 74 + rest * (width - 84), row * 13 + 5)
        names = self.browser.js('lochReport.view.runs[0].meta.groupings[0].bands')
        for mib, name in ((2, 'weights'), (15, 'weights'), (33.5, 'activations'), (46, 'activations'), (64.5, 'cache</script><b>'), (83.5, 'cache</script><b>')):
            self.assertEqual(color_at(mib), self.css_color(f'c{names.index(name)}'), mib)
        for mib in (17, 30, 50, 63, 85, 95):
            self.assertEqual(color_at(mib), self.css_color('hole'), mib)
        # Before the activations of a step, their place is free.
        x, y = self.at('canvas[data-chart="memory"]', 10.95)
        self.browser.move(x, y)
        self.browser.box(chart)
        self.assertEqual(color_at(33.5), self.css_color('hole'))
        self.assertEqual(color_at(2), self.css_color(f'c{names.index("weights")}'))

    def test_the_map_names_the_block_under_the_pointer(self):
        self.browser.open(report('one.html'))
        left, top, width, _ = self.browser.box('canvas[data-chart="map"]')
        self.browser.move(left + 74 + 0.5 * (width - 84), top + 5)
        tip = self.browser.js("document.getElementById('tip').textContent")
        for part in ('16.00 MiB', '0x7f0000000000', 'weights', 'load_weights at model.c:10'):
            self.assertIn(part, tip)
        self.focus('canvas[data-chart="map"]')
        self.browser.key('ArrowRight')
        self.assertIn('Block 1: 16.00 MiB at 0x7f0000000000', self.browser.js("document.querySelector('#maps [aria-live]').textContent"))

    def test_without_addresses_the_page_says_how_to_get_a_map(self):
        self.browser.open(report('trace.html'))
        self.assertIsNone(self.browser.js("document.querySelector('canvas[data-chart=\"map\"]')"))
        self.assertIn('LOCH_TRACE', self.browser.js("document.getElementById('maps').textContent"))
        self.assertEqual(self.figure('requested'), PEAK)

    # --- two recordings ---

    def test_two_recordings_share_axes_and_cursor(self):
        self.browser.open(report('two.html'))
        self.assertEqual(self.browser.js("document.querySelectorAll('canvas[data-chart=\"memory\"]').length"), 2)
        self.assertEqual(self.figure('requested', 0), PEAK)
        self.assertEqual(self.figure('requested', 1), 42 * MIB)
        first, second = (self.browser.js(f"document.querySelector('canvas[data-chart=\"memory\"][data-run=\"{run}\"]').getBoundingClientRect().top") for run in (0, 1))
        self.assertEqual(first, second)
        x, y = self.at('canvas[data-chart="memory"][data-run="1"]', 10.45)
        self.browser.move(x, y)
        self.assertEqual(self.figure('requested', 0), 37 * MIB)
        self.assertEqual(self.figure('requested', 1), 37 * MIB - 5 * MIB // 2)
        self.assertIn('\u221210.00 MiB (\u221219.2 %)', self.browser.js("document.getElementById('figures').textContent"))
        self.assertIn('\u221210.00 MiB (\u221250.0 %)', self.browser.js("document.getElementById('compare').textContent"))

    # --- themes, accessibility ---

    def test_both_themes(self):
        pages = []
        for name in ('light', 'dark'):
            self.browser.scheme(name)
            self.browser.open(report('one.html'))
            self.assertEqual(self.browser.js('document.documentElement.dataset.theme'), name)
            self.assertGreater(self.colors('canvas[data-chart="memory"]'), 4)
            pages.append(self.browser.js("getComputedStyle(document.querySelector('section')).backgroundColor"))
        self.assertNotEqual(*pages)
        self.browser.click('[data-theme-choice="light"]')
        self.assertEqual(self.browser.js("getComputedStyle(document.querySelector('section')).backgroundColor"), pages[0])
        self.assertEqual(self.browser.js("document.querySelector('[data-theme-choice=light]').getAttribute('aria-pressed')"), 'true')

    def test_text_has_contrast_in_both_themes(self):
        for name in ('light', 'dark'):
            self.browser.scheme(name)
            self.browser.open(report('one.html'))
            for color in ('ink', 'soft', 'accent', 'bad', 'good'):
                for ground in ('card', 'page'):
                    self.assertGreaterEqual(contrast(self.css_color(color), self.css_color(ground)), 4.5, (name, color, ground))
            for band in range(9):
                self.assertGreaterEqual(contrast(self.css_color(f'c{band}'), self.css_color('card')), 1.3, (name, band))

    def test_everything_has_a_name_for_screen_readers(self):
        self.browser.open(report('two.html'))
        tree = self.browser.accessibility()
        names = {role: [name for kind, name in tree if kind == role] for role in ('slider', 'button', 'image', 'table', 'region', 'textbox', 'combobox', 'heading', 'main', 'meter')}
        for role in ('slider', 'button', 'image', 'region', 'textbox', 'combobox', 'heading'):
            self.assertTrue(names[role], role)
            self.assertNotIn('', names[role], role)
        self.assertEqual(len(names['main']), 1)
        self.assertIn('Memory over time, before.loch', names['slider'])
        self.assertIn('Memory over time, after.loch', names['slider'])
        self.browser.click('#panels details summary')
        self.browser.wait("document.querySelector('#panels details table') !== null")
        self.assertIn('52.00 MiB', self.browser.js("document.querySelector('#panels details table').textContent"))

    def test_tables_sort(self):
        self.browser.open(report('one.html'))
        self.browser.wait("document.querySelector('#live table') !== null")
        self.browser.click('#live table thead th:nth-child(4) button')
        blocks = self.browser.js("Array.from(document.querySelector('#live table tbody').rows, (row) => row.cells[3].textContent)")
        self.assertEqual(blocks, ['20', '4', '1'])
        self.assertEqual(self.browser.js("document.querySelector('#live table thead th:nth-child(4)').getAttribute('aria-sort')"), 'descending')
        self.browser.click('#live table thead th:nth-child(4) button')
        blocks = self.browser.js("Array.from(document.querySelector('#live table tbody').rows, (row) => row.cells[3].textContent)")
        self.assertEqual(blocks, ['1', '4', '20'])


def contrast(one, other):
    """The contrast of two colours by WCAG."""
    def light(color):
        parts = [value / 255 for value in color[:3]]
        parts = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


if __name__ == '__main__':
    unittest.main(verbosity=2)

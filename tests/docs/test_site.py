# SPDX-License-Identifier: MIT
"""tests/docs/test_site.py FOLDER: the site of the documentation in a real browser, opened from the disk: pages, search, no network."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'browser'))
from chromium import Browser, find_program  # noqa: E402

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
TREE = pathlib.Path(__file__).resolve().parents[2]


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not find_program():
            raise AssertionError('there is no Chromium: scripts/setup browser brings it')
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def tearDown(self):
        self.assertEqual([url for url in self.browser.requests if not url.startswith(('file://', 'about:', 'data:'))], [], 'a page used the network')

    def open(self, page):
        self.browser.open(str(FOLDER / page), "document.readyState === 'complete' && document.documentElement.classList.contains('js')")

    def search(self, words, page):
        """Types words into the search of the first page, and waits until a page is among what it finds."""
        self.open('index.html')
        self.browser.js('document.querySelector("[data-md-toggle=search]").click()')
        self.browser.js(f'''(() => {{ const field = document.querySelector("input.md-search__input"); field.focus(); field.value = "{words}";
            field.dispatchEvent(new Event("focus")); field.dispatchEvent(new KeyboardEvent("keyup", {{key: "a", bubbles: true}})); }})()''')
        self.browser.wait(f'''[...document.querySelectorAll("a.md-search-result__link")].some(
            link => link.getAttribute("href").includes("{page}"))''', may_change=True)

    def test_the_first_page_is_filled(self):
        self.open('index.html')
        words = self.browser.js('document.querySelector("article").innerText')
        self.assertIn('make demo', words)
        self.assertGreater(len(words), 3000)

    def test_search_finds_a_function_in_the_reference(self):
        self.search('loch_pool_create', 'reference/pool.h.html')

    def test_search_finds_a_guide(self):
        self.search('two models share', 'sleep.html')

    def test_every_guide_and_header_has_a_page(self):
        pages = {path.stem for path in FOLDER.glob('*.html')}
        self.assertEqual({path.stem for path in (TREE / 'docs').glob('*.md')} - pages, set())
        inside = {path.stem for path in (FOLDER / 'inside').glob('*.html')}
        self.assertEqual({path.stem for path in (TREE / 'docs' / 'inside').glob('*.md')} - inside, set())
        made = {path.name[:-5] for path in (FOLDER / 'reference').glob('*.h.html')}
        missing = {path.name for path in (TREE / 'include' / 'loch').glob('*.h')} - made
        self.assertLessEqual(missing, {'loch.h', 'attributes.h'}, 'headers without a page')  # they declare nothing of their own

    def test_a_function_is_shown_whole(self):
        self.open('reference/pool.h.html')
        words = self.browser.js('document.querySelector("article").innerText')
        for part in ('loch_pool_create', 'limit_bytes', 'LOCH_POOL_NO_SPLIT', 'E_UNSUPPORTED'):
            self.assertIn(part, words)


if __name__ == '__main__':
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tables.py [FILE]: writes the tables of the tokenizer (tables.c).

Asks the library `tokenizers` what it does with every character, because it mixes several versions of Unicode: classes are older
than small letters. Only the order of combining marks comes from Python's own tables.
"""
import itertools
import pathlib
import sys
import textwrap
import unicodedata

from tokenizers import normalizers, pre_tokenizers

HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic: unicode.c
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def step(**chosen):
    """Returns one step of the normalizer alone."""
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**options, **chosen}).normalize_str


clean, ideograph, strip, lower = (step(**{name: True}) for name in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"))
split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str


def class_of(code):
    text = chr(code)
    if clean(text) == "":
        return "DROPPED"
    if clean(text) == " ":
        return "SPACE"
    if ideograph(text) != text:
        return "IDEOGRAPH"
    if strip(text) == "":
        return "ACCENT" if unicodedata.combining(text) else "BARRIER"
    if [piece for piece, _ in split("a" + text)] == ["a", text]:
        return "PUNCTUATION"
    return "PLAIN"


def rank_of(code):
    return unicodedata.combining(chr(code)) if class_of(code) == "PLAIN" else 0


def ranges(values, ignored):
    """Yields (first, last, value) for runs of one value."""
    for (value, _), run in itertools.groupby(enumerate(CHARACTERS), lambda item: (values[item[1]], item[1] - item[0])):
        run = [code for _, code in run]
        if value != ignored:
            yield run[0], run[-1], value


def shifts(changes):
    """Joins single changes (code, delta) to runs of step 1 or 2."""
    runs = []
    for code, delta in changes:
        if runs and runs[-1][3] == delta:
            first, last, gap, _ = runs[-1]
            if code - last == gap or (first == last and code - last <= 2):
                runs[-1] = (first, code, code - last, delta)
                continue
        runs.append((code, code, 1, delta))
    return runs


def rows(items, form):
    # No space inside an item, so that lines are broken between items only.
    text = " ".join(form(item).replace(" ", "\0") + "," for item in items)
    return textwrap.fill(text, 118, initial_indent="    ", subsequent_indent="    ").replace("\0", " ") + "\n"


def table(kind, name, items, form):
    return (f"const character_{kind} character_{name}[] = {{\n{rows(items, form)}}};\n"
            f"const size_t character_{name}_count = sizeof character_{name} / sizeof *character_{name};\n")


def main():
    classes = {code: class_of(code) for code in CHARACTERS}
    ranks = {code: rank_of(code) for code in CHARACTERS}
    single, several = [], []
    for code in CHARACTERS:
        folded = [ord(c) for c in lower(strip(chr(code)))]
        if code in HANGUL or classes[code] in ("DROPPED", "SPACE") or folded in ([], [code]):
            continue
        if len(folded) == 1:
            single.append((code, folded[0] - code))
        else:
            several.append((code, folded))
    assert max(len(folded) for _, folded in several) <= 3
    text = (
        "/* SPDX-License-Identifier: MIT */\n/* Made by tables.py: do not edit. */\n#include \"tables.h\"\n\n/* clang-format off */\n"
        + table("range", "classes", ranges(classes, "PLAIN"), lambda r: f"{{0x{r[0]:x}, 0x{r[1]:x}, CHARACTER_{r[2]}}}")
        + "\n" + table("range", "ranks", ranges(ranks, 0), lambda r: f"{{0x{r[0]:x}, 0x{r[1]:x}, {r[2]}}}")
        + "\n" + table("shift", "shifts", shifts(single), lambda s: f"{{0x{s[0]:x}, 0x{s[1]:x}, {s[2]}, {s[3]}}}")
        + "\n" + table("spread", "spreads", several, lambda s: f"{{0x{s[0]:x}, {{{', '.join(hex(c) for c in s[1])}}}}}"))
    (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "tables.c").write_text(text)


main()

# SPDX-License-Identifier: MIT
"""Tokens for the comparisons: sentences of this repository's own pages, as numbers, one sentence a line."""
import pathlib
import re

from tokenizers import BertWordPieceTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("concepts", "pool", "tensors", "engine", "contexts", "moving", "sleep", "recording", "tuning", "allocators")
CLS, SEP = 101, 102


def sentences(count):
    """Returns sentences of the pages, without headings, tables and code."""
    found = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", (ROOT / "docs" / f"{page}.md").read_text(), flags=re.S)
        text = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "|")))
        found += [" ".join(s.split()) for s in re.split(r"(?<=[.!?])\s+|\n\n", text) if len(s.split()) > 3]
    assert len(found) >= count, f"the pages have {len(found)} sentences only"
    return found[:count]


def natural(vocabulary, count):
    """Returns the tokens of sentences, each with its own length."""
    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    tokenizer.enable_truncation(256)
    return [encoding.ids for encoding in tokenizer.encode_batch(sentences(count))]


def even(vocabulary, count, length):
    """Returns `count` texts of exactly `length` tokens: no padding on either side."""
    flow = [token for ids in natural(vocabulary, 256) for token in ids[1:-1]]
    step = length - 2
    flow *= count * step // len(flow) + 1
    return [[CLS, *flow[i * step : (i + 1) * step], SEP] for i in range(count)]


def save(path, lists):
    pathlib.Path(path).write_text("".join(" ".join(map(str, ids)) + "\n" for ids in lists))

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""golden.py tokens|vectors|check MODEL-FOLDER: the files that the tests of the embedder compare with.

tokens   writes tokens.txt by the library `tokenizers` (scripts/setup embedder-bench)
vectors  writes sentences.txt and vectors.npy by sentence-transformers, with a folder of the whole package of the model
check    compares the tokenizer of the embedder with `tokenizers` on every character and on random texts; its program is
         tests/embedder/tokenize of the build folder, the third argument
"""
import pathlib
import random
import subprocess
import sys
import unicodedata

HERE = pathlib.Path(__file__).parent

HOSTILE = [
    "", " ", "\t\r\n", "hello world", "Hello, World!", "unaffable", "antidisestablishmentarianism", "don't can't won't",
    "a" * 100, "a" * 101, "é" * 100, "é" * 101, "x" + "\u0301" * 200, "1234567890123456789", "3.14159 -42 1e-9 0x7f", "C++ & C# <b>tag</b>",
    "https://example.org/a?b=c&d=%20#e", "foo_bar-baz~qux^|\\`", "[CLS] [SEP] [PAD] [UNK] [MASK]", "[cls][Sep]", "[[SEP]]", "[SEP", "x[SEP]y",
    "\x00\x01\x7f\x9f", "a\x00b", "a\u200bb\u200db\ufeffc", "\ufffd", "a\u00a0b\u2003c\u3000d", "line one\nline two\u2028line three\u0085end",
    "naïve café crème brûlée", "Ångström ÅNGSTRÖM A\u030angstro\u0308m", "Straße STRASSE ẞ ß", "İstanbul ISTANBUL ı", "ǅ ǆ Ǆ ﬁ ﬀ",
    "Σίσυφος ΣΊΣΥΦΟΣ ς", "Привет, мир! Ёлка", "नमस्ते दुनिया", "สวัสดีชาวโลก", "שָׁלוֹם עוֹלָם", "مرحبا بالعالم", "한국어 문장입니다", "각각 값",
    "日本語のテスト", "東京タワー2020年", "中文,没有空格。", "漢字kanji混じりtext", "\uf900\ufa0e\U0002f800", "\U00020000\U0002a6df",
    "カ\u3099 ガ", "\u1100\u1161\u11a8", "e\u0301\u0323 \u1e69 s\u0323\u0307", "\u1b44\u302e\u0301\u302f x", "a\U0001d165\U0001d16d\U0001d166b",
    "\u037e\u1fef\u2126\u212a\u212b", "👍🏽 family: 👨‍👩‍👧‍👦 flag: 🇩🇪", "“quotes” ‘single’ «guillemets» — dash … ellipsis", "¿Qué? ¡Sí!",
    "₤€¥ §¶ ©®™ ½ ² ³ №", "\u2160\u2170\u24b6\u24d0", "\U00010400\U00010428 \U0001e900", "\ue000\U000f0000", "\u0e31\u0301a\u0300",
    "word " * 300, "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
]

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.", "A pool keeps free memory for later requests.", "x", "",
    "Le café était fermé, hélas !", "日本語の文章もベクトルになる。",
    "Which function tells how many bytes are in use?", " ".join(f"sentence {i} of a long text about memory," for i in range(80)),
]


def escape(text):
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in text.encode())


def tokenizer(folder, most):
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(f"{folder}/tokenizer.json")
    made.no_padding()
    made.enable_truncation(most)
    return made


def write_tokens(folder):
    encodings = tokenizer(folder, 256).encode_batch(HOSTILE)
    (HERE / "tokens.txt").write_text("".join(f"{' '.join(map(str, e.ids))}\t{escape(t)}\n" for e, t in zip(encodings, HOSTILE)))


def write_vectors(folder):
    import numpy
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    numpy.save(HERE / "vectors.npy", model.encode(SENTENCES, batch_size=4, normalize_embeddings=True))
    (HERE / "sentences.txt").write_text("".join(sentence + "\n" for sentence in SENTENCES))


def check(folder, program, seed=1):
    random.seed(seed)
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    marks = [c for c in characters if unicodedata.combining(c)]
    pieces = [line.rstrip("\n").replace("##", "") for line in open(f"{folder}/vocab.txt", encoding="utf8")]
    between = ["", "", " ", "-", "\u0301", "\u200b", "\t", "\n"]
    texts = HOSTILE + ["a" + c + "b" for c in characters]
    for _ in range(10000):
        count = range(random.randint(1, 30))
        texts.append("".join(random.choice(marks) if random.random() < 0.7 else random.choice("ab ") for _ in count))
        texts.append("".join(random.choice(characters[:0x20000]) for _ in count))
        texts.append("".join(random.choice(pieces) + random.choice(between) for _ in count))
    answer = subprocess.run([program, f"{folder}/vocab.txt"], input="".join(escape(t) + "\n" for t in texts), capture_output=True,
                            text=True, check=True).stdout.splitlines()
    wrong = 0
    for text, encoding, line in zip(texts, tokenizer(folder, 256).encode_batch(texts), answer, strict=True):
        if encoding.ids != [int(token) for token in line.split()]:
            wrong += 1
            if wrong <= 10:
                print(f"{ascii(text)}: {line}, expected {encoding.ids}")
    print(f"{len(texts)} texts, {wrong} differ")
    return wrong > 0


if sys.argv[1] == "tokens":
    write_tokens(sys.argv[2])
elif sys.argv[1] == "vectors":
    write_vectors(sys.argv[2])
else:
    sys.exit(check(sys.argv[2], sys.argv[3]))

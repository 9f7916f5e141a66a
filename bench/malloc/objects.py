# SPDX-License-Identifier: MIT
"""Work for an allocator: many small Python objects of several sizes, strings, dictionaries, and text as JSON."""
import json
import random
import re

random.seed(7)
rows = [{"id": i, "name": f"row {i * 7919}", "tags": [str(k) for k in range(i % 9)], "x": i * 0.5} for i in range(40000)]
text = json.dumps(rows)
back = json.loads(text)
assert back == rows
words = re.findall(r"[a-z]+ \d+", text)
index = {}
for word in words:
    index.setdefault(word[-3:], []).append(word.upper())
for _ in range(6):
    random.shuffle(back)
    back = back[: len(back) * 3 // 4] + [dict(row, y=tuple(row["tags"])) for row in back[len(back) * 3 // 4 :]]
print(len(text), len(words), len(index), sum(len(row) for row in back))

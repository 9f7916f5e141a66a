# SPDX-License-Identifier: MIT
"""Makes tests/exchange/data/torch-profile.pickle: what PyTorch's profiler saw of three steps of training on a CPU, as a memory snapshot.

    python record_profile.py FILE
"""

import pickle
import sys

import torch
from torch.cuda import _memory_viz

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
    for _ in range(3):
        loss = model(torch.randn(32, 64)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
with open(sys.argv[1], "wb") as file:
    pickle.dump(_memory_viz._profile_to_snapshot(profile), file)

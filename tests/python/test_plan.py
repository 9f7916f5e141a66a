# SPDX-License-Identifier: MIT
"""loch.plan: offsets for buffers whose lives are known."""

import pytest

import loch

TABLE = [(4, 0, 3), (4, 3, 9), (4, 0, 9), (4, 9, 21), (4, 0, 21)]


def check(buffers, plan):
    for i, (size, first, last, *rest) in enumerate(buffers):
        assert plan.offsets[i] % (rest[0] if rest else 1) == 0
        assert plan.offsets[i] + size <= plan.height
        for j in range(i):
            if buffers[j][1] < last and first < buffers[j][2]:
                assert plan.offsets[i] + size <= plan.offsets[j] or plan.offsets[j] + buffers[j][0] <= plan.offsets[i]


@pytest.mark.parametrize("method", ["auto", "fast", "greedy"])
def test_offsets_do_not_overlap(method):
    plan = loch.plan(TABLE, method=method)
    check(TABLE, plan)
    assert plan.lower_bound == 12
    assert plan.height >= 12
    assert loch.plan(TABLE) == (plan.offsets if method == "auto" else loch.plan(TABLE).offsets, 12, 12, True)


def test_alignments_and_capacity():
    buffers = [(100, 0, 5, 64), (10, 1, 3, 64), (30, 2, 9, 1)]
    plan = loch.plan(buffers, capacity=200, threads=2, time_limit=5)
    check(buffers, plan)
    assert plan.height <= 200


def test_nothing_to_plan():
    assert loch.plan([]) == ((), 0, 0, True)


def test_refusals():
    with pytest.raises(loch.Error) as caught:
        loch.plan(TABLE, capacity=11)
    assert caught.value.status == "E_LIMIT"
    with pytest.raises(ValueError):
        loch.plan([(4, 3, 0)])
    with pytest.raises(ValueError):
        loch.plan(TABLE, method="slow")
    with pytest.raises(ValueError):
        loch.plan(TABLE, threads=0)
    with pytest.raises(TypeError):
        loch.plan([(4, 3)])
    with pytest.raises(TypeError):
        loch.plan([("4", 0, 3)])
    with pytest.raises(OverflowError):
        loch.plan([(-4, 0, 3)])

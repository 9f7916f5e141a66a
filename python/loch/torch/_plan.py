# SPDX-License-Identifier: MIT
"""Plans: the allocations of a loop that repeats itself, served by their place in the sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .. import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

Item = TypeVar("Item")


class Plan:
    """What plan() returns. A context: the plan serves inside of it. It can be entered again after its end, and then
    begins anew."""

    def __init__(self, device: int, record_steps: int, time_limit: float, fixed: bool) -> None:
        self._wanted = device
        self._options = (record_steps, round(time_limit * 1e9), fixed)
        self._device: int | None = None  # while the plan serves
        self._last: dict[str, Any] = {}

    def __enter__(self) -> Plan:
        if self._device is not None:
            raise RuntimeError("this plan serves already")
        self._device = _core.torch_plan_begin(self._wanted, *self._options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        device = self._require()
        self._last = _core.torch_plan_info(device)
        self._device = None
        _core.torch_plan_end(device)

    def _require(self) -> int:
        if self._device is None:
            raise RuntimeError("this plan does not serve: use it in a with statement")
        return self._device

    @property
    def device(self) -> int | None:
        """The number of the device that the plan serves; None outside of the with statement."""
        return self._device

    def step(self) -> None:
        """Marks the start of a step. The plan is made in one of these calls, after which memory that is not used goes
        back to the device."""
        _core.torch_plan_step(self._require())

    def steps(self, batches: Iterable[Item]) -> Iterator[Item]:
        """Yields what `batches` yields, and marks the start of a step before each."""
        for batch in batches:
            self.step()
            yield batch

    def record(self) -> None:
        """Records the following steps anew, for a loop that has changed. The plan serves until a new one is made."""
        _core.torch_plan_record(self._require())

    def info(self) -> dict[str, Any]:
        """Returns the figures of the plan; after its end, the last ones.

        period: allocations of a period, 0 while there is no plan. planned: how many of them have a place. height: bytes
        of the plan's memory. lower_bound: bytes that every plan needs. served, left, deviations: allocations that the
        plan served, left to the pool as planned, and that differed from it. plans: plans that were made. blocks: live
        blocks of plans. waiting: freed blocks that other streams still use. recorded: allocations of the present
        recording. status: why the last plan was not made, or "OK".
        """
        return dict(self._last) if self._device is None else _core.torch_plan_info(self._device)


def plan(
    device: Any = None, *, record_steps: int = 4, time_limit: float = 0.1, fixed: bool = False
) -> Plan:
    """Lets a planned pool serve a loop that repeats itself, such as training with fixed shapes.

        with loch.torch.plan() as plan:
            for batch in plan.steps(loader):  # or plan.step() at the start of each step
                train(batch)

    The first `record_steps` steps are recorded. Then a plan is computed, for `time_limit` seconds at most, and the
    allocations of later steps are served by their place in the sequence: no search, no fragmentation, the same addresses
    in every step. What differs from the plan is served too. A plan that fits badly for several steps is made again, unless
    it is `fixed`.

    device: the number of the device, "cuda:1" or a torch.device; default the current one. It serves all threads that
    allocate on that device, because a backward pass has threads of its own. CUDA graphs, MemPools and regions keep pools of
    their own. Unused memory outside of the plan goes back to the device at its start. At its end the memory of the plan
    goes back, as soon as no tensor uses it.

    One plan at a time serves a device. While it does, memory outside of regions cannot sleep, and a snapshot shows the memory
    of the plan as one block. RuntimeError: Loch is not enabled, or a plan serves the device already.
    """
    number = getattr(device, "index", device)
    if isinstance(device, str):
        number = int(device.rpartition(":")[2]) if ":" in device else None
    if number is not None and not isinstance(number, int):
        raise TypeError(f"a device is a number, a text like 'cuda:1' or a torch.device, not {device!r}")
    if number is not None and number < 0:
        raise ValueError(f"there is no device {number}")
    if record_steps < 2:
        raise ValueError(f"at least 2 steps have to be recorded, not {record_steps}")
    if not 0 < time_limit < 1e9:
        raise ValueError(f"time_limit is a number of seconds above 0, not {time_limit}")
    return Plan(-1 if number is None else number, record_steps, time_limit, bool(fixed))

"""What is quicker in a trace, against the library function in whose place it stands."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from trials.tracing import quicker


class Numbered(nn.Module):
    """A module that counts its parts in a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        for name, module in super().named_modules(*args, **kwargs):
            yield f"{name}!", module


def tree() -> nn.Module:
    """Modules that are shared, missing, nested, empty and of a kind that answers for itself."""
    shared = nn.Linear(3, 3)
    tree = nn.Sequential(
        nn.ModuleDict({"one": shared, "two": nn.Sequential(shared, nn.Identity())}),
        nn.ModuleList([nn.ModuleList(), nn.LayerNorm(3), shared]),
        Numbered(),
    )
    tree.register_module("missing", None)
    tree.add_module("last", nn.Sequential(nn.Sequential(nn.Sequential(nn.ReLU()))))
    return tree


@pytest.mark.parametrize("remove_duplicate", [True, False])
@pytest.mark.parametrize("prefix", ["", "model"])
def test_modules_come_in_torch_s_order_under_torch_s_names(
    prefix: str, remove_duplicate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tree()
    arguments = {"prefix": prefix, "remove_duplicate": remove_duplicate}
    expected = list(model.named_modules(**arguments))
    parameters = list(model.named_parameters())
    monkeypatch.setattr(nn.Module, "named_modules", quicker.named_modules)
    assert list(model.named_modules(**arguments)) == expected
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in parameters]


def coordinator_of(order: tuple[nn.Module, ...], fetched: dict[Any, int], most: int) -> Any:
    """DeepSpeed's coordinator after a trace in which these modules ran in this order."""
    from deepspeed.runtime.zero.partitioned_param_coordinator import (
        PartitionedParameterCoordinator,
        ZeRoTraceMode,
    )

    found = object.__new__(PartitionedParameterCoordinator)
    name = "_PartitionedParameterCoordinator"
    setattr(found, f"{name}__submodule_order", order)
    setattr(found, f"{name}__trace_mode", ZeRoTraceMode.COMPLETE)
    setattr(found, f"{name}__max_reuse_dist_in_numel", most)
    latest = collections.defaultdict(lambda: int(-1e10), fetched)
    setattr(found, f"{name}__most_recent_step_id_param_fetched_for", latest)
    return found


@pytest.mark.parametrize("most", [0, 10, 60, 10**9])
def test_zero_3_releases_what_deepspeed_would(most: int) -> None:
    pytest.importorskip("deepspeed")
    torch.manual_seed(0)
    modules: list[nn.Module] = [nn.Linear(4, n % 3 + 1) for n in range(6)]
    modules += [nn.Identity(), nn.ReLU(), nn.Sequential(modules[0], modules[1])]
    numbers = iter(range(1000))
    for module in modules:
        # What DeepSpeed gives every module.
        object.__setattr__(module, "ds_external_parameters", lambda: ())
        for parameter in module.parameters(recurse=False):
            known: Any = parameter
            known.ds_id = next(numbers)
            known.ds_numel = parameter.numel()
            known.ds_persist = parameter.numel() < 2
    picks = torch.randint(len(modules), (40,)).tolist()
    order = tuple(modules[pick] for pick in picks)
    fetched = {modules[2].weight: 25, modules[4].bias: 3}
    name = "_PartitionedParameterCoordinator__params_to_release"
    released = 0
    for step, module in enumerate(order):
        theirs = coordinator_of(order, fetched, most)
        expected = getattr(theirs, name)(module, step + 1)
        ours = coordinator_of(order, fetched, most)
        assert quicker.params_to_release(ours, module, step + 1) == expected
        released += len(expected)
    assert released


def test_the_processor_is_not_measured() -> None:
    values = quicker.quicker(SimpleNamespace(see=None))  # type: ignore[arg-type]
    cpuinfo = pytest.importorskip("cpuinfo")
    assert values[(cpuinfo, "get_cpu_info")]() == {}

"""How batches are shared out, and what et.torch does for one worker: also outside of a trial."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.digits import digits, linear
from torch import nn
from torch.utils.data import TensorDataset

import elastune as et
from elastune.worker.torch.batches import pieces, share


@given(st.integers(0, 300), st.integers(1, 40), st.none() | st.integers(1, 100))
def test_a_batch_is_shared_out_completely_and_in_order(size: int, world_size: int, longest: int | None) -> None:
    shares = [share(size, rank, world_size) for rank in range(world_size)]
    cut = [piece for each in shares for piece in pieces(each, longest)]
    assert [sample for piece in cut for sample in piece] == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(1 <= len(piece) <= (longest or size) for piece in cut)
    assert size == 0 or sum(len(piece) / size for piece in cut) == pytest.approx(1.0)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 8))
def test_pieces_are_the_same_on_any_number_of_workers_where_they_fit(longest: int, world_size: int, each: int) -> None:
    size = longest * each * world_size
    shared = [piece for rank in range(world_size) for piece in pieces(share(size, rank, world_size), longest)]
    assert shared == pieces(range(size), longest)


def test_outside_of_a_trial_the_gradient_is_that_of_the_whole_batch() -> None:
    model, optimizer = linear()
    elastic = et.torch.Elastic(model, optimizer)
    data = elastic.batches(digits(20), 20, max_per_device=3, shuffle=False)
    (batch,) = data
    loss = elastic.backward(lambda x, y: F.cross_entropy(model(x), y), batch)
    assert model.weight.grad is not None
    shared = model.weight.grad.clone()
    model.zero_grad()
    whole = F.cross_entropy(model(digits(20).tensors[0]), digits(20).tensors[1])
    torch.autograd.backward(whole)
    assert loss == pytest.approx(whole.item(), abs=1e-6)
    assert torch.allclose(shared, model.weight.grad, atol=1e-6)
    assert (data.epoch, elastic.steps, len(data), len(batch)) == (1, 1, 1, 20)


def positions(data: et.torch.Batches) -> list[int]:
    return [int(position) for batch in data for piece in batch for position in piece.arguments[0]]


def test_every_epoch_has_every_sample_once_in_an_order_of_its_own() -> None:
    elastic = et.torch.Elastic(*linear())
    data, other = (elastic.batches(list(range(50)), 8) for _ in range(2))
    orders = [positions(data), positions(data), positions(other)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert positions(elastic.batches(list(range(50)), 8, shuffle=False)) == list(range(50))


def test_an_epoch_that_was_left_goes_on_where_it_was() -> None:
    elastic = et.torch.Elastic(*linear())
    whole = positions(elastic.batches(list(range(50)), 8))
    elastic = et.torch.Elastic(*linear())
    data = elastic.batches(list(range(50)), 8)
    for _ in data:
        break
    assert data.epoch == 0 and positions(data) == whole[8:] and data.epoch == 1


def test_items_are_batched_as_they_are() -> None:
    elastic = et.torch.Elastic(*linear())
    for dataset, collate, arguments in (
        ([{"x": 1}, {"x": 2}], None, ({"x": torch.tensor([1, 2])},)),
        ([(1, 2.0), (3, 4.0)], None, (torch.tensor([1, 3]), torch.tensor([2.0, 4.0], dtype=torch.float64))),
        (TensorDataset(torch.tensor([5, 6])), len, (2,)),
    ):
        (batch,) = elastic.batches(dataset, 2, shuffle=False, collate_fn=collate)
        (piece,) = batch
        assert str(piece.arguments) == str(arguments)


def test_what_is_saved_stays_as_it_was() -> None:
    model, optimizer = linear()
    elastic = et.torch.Elastic(model, optimizer)
    state = elastic.save()
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    elastic.load(state)
    assert torch.equal(model.weight, before)
    with torch.no_grad():
        model.weight.add_(1.0)
    assert torch.equal(state["states"][0]["weight"], before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: must be a whole number"),
        ({"batch_size": 2.0}, "batch_size=2.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"max_per_device": -1}, "max_per_device=-1: must be a whole number"),
        ({"dataset": iter([])}, "dataset=list_iterator: has no __len__"),
        ({"dataset": []}, "dataset=list: has no items"),
        ({"collate_fn": 3}, "collate_fn=3"),
    ],
)
def test_batches_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    elastic = et.torch.Elastic(*linear())
    with pytest.raises(et.SpecError, match=message.replace("(", r"\(")):
        elastic.batches(**{"dataset": [1], "batch_size": 1, **arguments})


def test_objects_that_cannot_be_trained_are_refused() -> None:
    model, optimizer = linear()
    with pytest.raises(et.SpecError, match=r"got 0\.1: must be an object with state_dict"):
        et.torch.Elastic(model, 0.1)  # type: ignore[arg-type]
    with pytest.raises(et.SpecError, match="no parameters"):
        et.torch.Elastic(nn.ReLU())
    with pytest.raises(et.SpecError, match="no parameters"):
        et.torch.Elastic()
    with pytest.raises(et.SpecError, match="parameters on cpu, meta"):
        et.torch.Elastic(nn.Sequential(model, nn.Linear(1, 1, device="meta")))
    elastic = et.torch.Elastic(model, optimizer)
    with pytest.raises(et.SpecError, match="not saved by et"):
        elastic.load({"epoch": 3})
    with pytest.raises(et.SpecError, match="got 2 objects; the trial was saved with 1"):
        elastic.load(et.torch.Elastic(model).save())
    elastic.batches([1, 2], 1)
    state = elastic.save()
    state["batches"] = [{"epoch": 0, "next": 0, "size": 3}]
    with pytest.raises(et.SpecError, match="dataset of 2 items: the trial was saved with one of 3"):
        elastic.load(state)


def test_functions_that_do_not_return_a_number_are_refused() -> None:
    model, optimizer = linear()
    elastic = et.torch.Elastic(model, optimizer)
    (batch,) = elastic.batches(digits(4), 4)
    with pytest.raises(et.SpecError, match=r"a tensor of shape \(4,\): must be a tensor of one number"):
        elastic.backward(lambda x, y: F.cross_entropy(model(x), y, reduction="none"), batch)
    with pytest.raises(et.SpecError, match="batch of type list"):
        elastic.backward(lambda x: x, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(et.SpecError, match="must be one number, or a dict of them"):
        elastic.mean(lambda x, y: x, digits(4))


def test_torch_is_imported_when_it_is_asked_for() -> None:
    code = """
import sys
import elastune as et
assert "torch" not in sys.modules
from elastune import torch
assert torch is et.torch and torch.Elastic and "torch" in sys.modules and sys.modules["torch"] is not torch
"""
    subprocess.run([sys.executable, "-c", code], check=True)

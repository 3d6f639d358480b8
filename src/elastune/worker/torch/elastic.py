"""Data-parallel training that carries on through a change of its workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, overload

import torch
from torch import nn

from elastune.errors import ElastuneError, SpecError
from elastune.worker import session
from elastune.worker.torch import draws
from elastune.worker.torch.batches import Batch, Batches, Collate, Source, count
from elastune.worker.torch.group import Group

Number = torch.Tensor | float
ALONE = ""
"""The name of a value that has none."""


class Stateful(Protocol):
    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


class Elastic:
    """All that training changes: models, optimizers, schedulers, whatever has state_dict and load_state_dict.

    Made once in a training function, when these are built: it restores them if the trial goes on from a checkpoint,
    connects the workers, and from then on saves the trial at `et.report`.
    """

    def __init__(self, *parts: Stateful) -> None:
        self._parts = parts
        self._modules = [part for part in parts if isinstance(part, nn.Module)]
        self._batches: list[Batches] = []
        self._positions: list[dict[str, int]] = []
        self._device = _check(parts, self._parameters())
        self._group = Group()
        self.steps = 0
        """How often `backward` was called."""
        if (checkpoint := session.get_checkpoint()) is not None:
            self.load(checkpoint)
        weakref.finalize(self, self._group.close)  # a worker that leaves must not stay connected
        self.reform()
        session.attach(self)

    def batches(
        self,
        dataset: Any,
        batch_size: int,
        *,
        max_per_device: int | None = None,
        shuffle: bool = True,
        collate_fn: Collate | None = None,
    ) -> Batches:
        """The batches of a dataset, each shared among the workers: `batch_size` is that of all of them together.

        `max_per_device` is how many samples fit into a device: a worker whose share is larger takes it in pieces.
        """
        number = len(self._batches)
        made = Batches(dataset, batch_size, max_per_device, shuffle, collate_fn, number)
        if number < len(self._positions):
            made.load_state_dict(self._positions[number])
        self._batches.append(made)
        return made

    def backward(self, loss_of: Callable[..., torch.Tensor], batch: Batch) -> float:
        """Add the gradient of the mean loss over the whole batch to `.grad`, the same on all workers. Returns the loss.

        `loss_of` takes what an item of the dataset is made of, batched, and returns the mean loss over it.
        """
        if not isinstance(batch, Batch):
            raise SpecError(f"backward() got a batch of type {type(batch).__name__}: give it one of Elastic.batches()")
        parameters = [parameter for parameter in self._parameters() if parameter.requires_grad]
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        total = torch.zeros((), device=self._device)
        seed_of_trial = session.get_context().seed
        with draws.torch_apart(self._device) as seed:
            for piece in batch:
                seed(draws.seed_of(seed_of_trial, self.steps, piece.start))
                loss = _one_number(loss_of(*_moved(piece.arguments, self._device))) * piece.weight
                torch.autograd.backward(loss)
                total += loss.detach()
        self.steps += 1
        if session.get_context().world_size > 1:
            total = self._sum_gradients(parameters, total)
        for parameter, grad in zip(parameters, before, strict=True):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else grad.add_(parameter.grad)
        return total.item()

    @overload
    def mean(
        self,
        function: Callable[..., Number],
        dataset: Any,
        batch_size: int = 256,
        *,
        collate_fn: Collate | None = None,
    ) -> float: ...

    @overload
    def mean(
        self,
        function: Callable[..., Mapping[str, Number]],
        dataset: Any,
        batch_size: int = 256,
        *,
        collate_fn: Collate | None = None,
    ) -> dict[str, float]: ...

    def mean(
        self, function: Callable[..., Any], dataset: Any, batch_size: int = 256, *, collate_fn: Collate | None = None
    ) -> float | dict[str, float]:
        """The mean of `function` over a dataset: the workers share the work, and all get the same.

        `function` takes a batch and returns its mean over it, or several by their names. Models are in evaluation mode
        meanwhile, and no gradients are computed. `batch_size` is what one worker takes at a time.
        """
        source, size = Source(dataset, collate_fn), count("batch_size", batch_size)
        self._group.copy_from_first(self._buffers())
        with torch.no_grad(), _evaluating(self._modules), draws.torch_apart(self._device) as seed:
            found = self._evaluate(function, source, torch.split(torch.arange(source.size), size), seed)
        sizes = [min(size, source.size - start) for start in range(0, source.size, size)]
        # One number per batch, added up in the same order by all: not a digit depends on who had computed which.
        means = {
            name: sum(value * n for value, n in zip(values, sizes, strict=True)) / source.size
            for name, values in found.items()
        }
        return means[ALONE] if means.keys() == {ALONE} else means

    def _evaluate(
        self, function: Callable[..., Any], source: Source, batches: Sequence[torch.Tensor], seed: draws.Seed
    ) -> dict[str, list[float]]:
        """For each name that `function` gives, its values for all batches."""
        context = session.get_context()
        names: list[str] = []
        own = range(context.rank, len(batches), context.world_size)
        found: dict[int, list[float]] = {}
        for number in own or range(1):  # one without a batch of its own computes the first, to know the names
            seed(draws.seed_of(context.seed, number))
            arguments = _moved(source.read(batches[number], context.seed), self._device)
            values = _numbers(function(*arguments))
            names = names or list(values)
            if list(values) != names:
                raise SpecError(f"mean() got {', '.join(values)} for a batch and {', '.join(names)} for another one")
            found[number] = list(values.values())
        mine = [found[number] if number in own else [0.0] * len(names) for number in range(len(batches))]
        table = self._group.sum(torch.tensor(mine, dtype=torch.float64, device=self._device))
        return dict(zip(names, table.T.tolist(), strict=True))

    def save(self) -> dict[str, Any]:
        return {
            "states": [_copied(part.state_dict()) for part in self._parts],
            "batches": [each.state_dict() for each in self._batches],
            "steps": self.steps,
            "draws": draws.states(),
        }

    def load(self, checkpoint: Any) -> None:
        """Into the same objects, in place."""
        if not isinstance(checkpoint, dict) or not {"states", "batches", "steps", "draws"} <= checkpoint.keys():
            raise SpecError(
                "the checkpoint was not saved by et.torch.Elastic: with it, call report() without checkpoint="
            )
        if len(checkpoint["states"]) != len(self._parts):
            raise SpecError(
                f"Elastic() got {len(self._parts)} objects; the trial was saved with {len(checkpoint['states'])}"
            )
        for part, state in zip(self._parts, checkpoint["states"], strict=True):
            part.load_state_dict(_copied(state))
        self._positions = checkpoint["batches"]
        for each, position in zip(self._batches, self._positions, strict=False):
            each.load_state_dict(position)
        self.steps = checkpoint["steps"]
        draws.set_states(checkpoint["draws"])

    def reform(self) -> None:
        """Connect the workers that there are now, and see that they are in step."""
        self._group.form(session.get_context(), self._device)
        steps = self._group.gather(self.steps)
        if len(set(steps)) > 1:
            raise ElastuneError(f"the workers are not in step: they have made {', '.join(map(str, steps))} steps")
        at_start = self.steps == 0
        weights = [each for module in self._modules for each in module.parameters()] if at_start else []
        self._group.copy_from_first([*weights, *self._buffers()])

    def _parameters(self) -> list[nn.Parameter]:
        """What is learnt: all that the optimizers have, or, where there is none, the models."""
        groups = [group for part in self._parts for group in getattr(part, "param_groups", ())]
        found = [each for group in groups for each in group["params"]]
        return found or [each for module in self._modules for each in module.parameters()]

    def _buffers(self) -> list[torch.Tensor]:
        return [buffer for module in self._modules for buffer in module.buffers()]

    def _sum_gradients(self, parameters: list[nn.Parameter], loss: torch.Tensor) -> torch.Tensor:
        """Sum gradients and loss over the workers, in one message. Returns the loss.

        Who had no sample has no gradients. A parameter gets one if any worker has one, and else none, as it would be
        on one worker.
        """
        dtype = torch.float32  # also for half precision: rounding must not depend on the number of workers
        for parameter in parameters:
            dtype = torch.promote_types(dtype, parameter.dtype)
        grads = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        if any(grad.layout != torch.strided for grad in grads):
            raise SpecError("a gradient is sparse: et.torch needs dense ones, such as of Embedding(sparse=False)")
        has = torch.tensor([each.grad is not None for each in parameters], dtype=dtype, device=self._device)
        together = torch.cat([*(grad.reshape(-1).to(dtype) for grad in grads), has, loss.reshape(1).to(dtype)])
        self._group.sum(together)
        *sums, has, loss = together.split_with_sizes([*(each.numel() for each in parameters), len(parameters), 1])
        for parameter, grad, any_has in zip(parameters, sums, has.tolist(), strict=True):
            parameter.grad = grad.view_as(parameter).to(parameter.dtype) if any_has else None
        return loss


def _check(parts: Sequence[object], parameters: list[nn.Parameter]) -> torch.device:
    """The device that the parameters are on."""
    for part in parts:
        if not hasattr(part, "state_dict") or not hasattr(part, "load_state_dict") or isinstance(part, type):
            raise SpecError(
                f"Elastic() got {part!r:.80}: must be an object with state_dict and load_state_dict, such as a model, "
                "an optimizer or a scheduler"
            )
    devices = {parameter.device for parameter in parameters}
    if len(devices) != 1:
        where = f"parameters on {', '.join(sorted(map(str, devices)))}" if devices else "no parameters"
        raise SpecError(f"Elastic() got {where}: give it the model and its optimizer, on one device")
    (device,) = devices
    return device


def _one_number(loss: object) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
        raise SpecError(
            f"the loss function returned {shown:.80}: must be a tensor of one number, the mean over the batch"
        )
    return loss.reshape(())


def _numbers(result: Any) -> dict[str, float]:
    """What a function to be averaged has returned, by name."""
    named = result if isinstance(result, Mapping) else {ALONE: result}
    try:
        return {name: float(value) for name, value in named.items()}
    except (TypeError, ValueError, RuntimeError):
        raise SpecError(f"mean() got {result!r:.80} for a batch: must be one number, or a dict of them") from None


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, tuple | list):
        moved = [_moved(each, device) for each in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    if isinstance(value, dict):
        return {key: _moved(each, device) for key, each in value.items()}
    return value.to(device) if hasattr(value, "to") else value


def _copied(value: Any) -> Any:
    """The same with copies of its tensors, on the CPU: training goes on while the state is kept."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return tuple(_copied(each) for each in value) if type(value) is tuple else value


@contextmanager
def _evaluating(modules: list[nn.Module]) -> Iterator[None]:
    before = [(each, each.training) for module in modules for each in module.modules()]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for each, training in before:
            each.training = training

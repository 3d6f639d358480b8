"""The workers of a trial as PyTorch's process group, formed anew whenever they change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from elastune.errors import ElastuneError, SpecError
from elastune.worker.session import Context

TIMEOUT = timedelta(minutes=5)
"""A worker that joins has to load its data first. One that dies is noticed at once, by its broken connection."""


class Group:
    """The default process group while there are several workers, none while there is one.

    It is the default one so that code of the user's that calls torch.distributed, or SyncBatchNorm, works as well.
    """

    def __init__(self) -> None:
        self._process_group: dist.ProcessGroup | None = None
        self._store: Any = None
        self._context = Context()
        self._device = torch.device("cpu")

    def form(self, context: Context, device: torch.device) -> None:
        global _current
        if _current is not None:
            _current.close()  # also that of an earlier trial in this process
        self._context, self._device = context, device
        if context.world_size == 1:
            return
        if context.master is None:
            raise ElastuneError(f"{context.trial_id} has {context.world_size} workers but no address where they meet")
        if not dist.is_available() or (device.type == "cuda" and not dist.is_nccl_available()):
            lacks = "NCCL" if dist.is_available() else "torch.distributed"
            raise SpecError(f"this build of PyTorch has no {lacks}, which several workers on {device.type} need")
        if dist.is_initialized():
            raise SpecError("torch.distributed is initialised already: leave that to et.torch.Elastic")
        _current = self
        self._store = self._open_store(context.master)
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=self._store,
            rank=context.rank,
            world_size=context.world_size,
            timeout=TIMEOUT,
        )
        self._process_group = dist.group.WORLD

    def _open_store(self, address: tuple[str, int]) -> Any:
        is_host = self._context.rank == 0
        if self._device.type == "cuda":  # NCCL's threads use it for as long as they live
            from torch.distributed import TCPStore  # type: ignore[attr-defined]

            return TCPStore(*address, is_master=is_host, wait_for_workers=False, timeout=TIMEOUT)
        from elastune.worker.torch.store import MeetingPoint  # not every build has what it derives from

        return MeetingPoint(address, is_host, TIMEOUT)

    def close(self) -> None:
        global _current
        if _current is not self:
            return
        _current, last = None, [self._process_group]
        self._process_group = None
        if dist.is_initialized():
            dist.destroy_process_group()
        _drop(last)
        if hasattr(self._store, "close"):
            self._store.close()
        self._store = None

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all workers, in place."""
        if self._context.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, number: int) -> list[int]:
        """The numbers of all workers."""
        numbers = torch.zeros(self._context.world_size, dtype=torch.int64, device=self._device)
        numbers[self._context.rank] = number
        return self.sum(numbers).tolist()

    def copy_from_first(self, tensors: Sequence[torch.Tensor]) -> None:
        """Rank 0's tensors for all, whatever their types, at once."""
        if self._context.world_size == 1 or not tensors:
            return
        raw = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
        together = torch.cat(raw)
        dist.broadcast(together, src=0)
        if self._context.rank > 0:
            for tensor, part in zip(tensors, together.split_with_sizes([len(each) for each in raw]), strict=True):
                tensor.detach().copy_(part.clone().view(tensor.dtype).view(tensor.shape))


_current: Group | None = None
"""The process has one default group; this is who made it."""


def _drop(last: list[dist.ProcessGroup | None]) -> None:
    """Gloo takes 20 ms to end its threads, which nobody has to wait for: `last` holds the only reference."""
    if threading.main_thread().is_alive():
        threading.Thread(target=last.clear).start()
    else:  # the interpreter ends, and must not while a thread is at it
        last.clear()

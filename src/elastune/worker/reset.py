"""A clean desk for every trial: whatever ran in this process before, the next one finds it as the first one did."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import random
import resource
import signal
import sys
import time
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from threadpoolctl import threadpool_limits

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SEEDS = {"numpy.random": "seed", "torch": "manual_seed"}
"""How the generators of libraries are set, where they are loaded."""
COLLECT_EVERY_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)


def limit_threads(threads: int) -> None:
    """Before numpy or torch are imported: they look only then."""
    for name in THREADS:
        os.environ[name] = str(threads)


def use_threads(threads: int) -> None:
    """Of a process that has begun: what is loaded by now is told. That takes a millisecond, so only when it is news."""
    global _told
    if _told != (threads, len(sys.modules)):
        threadpool_limits(threads)
        _told = (threads, len(sys.modules))
    if (torch := sys.modules.get("torch")) is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


_told = (0, 0)


class _SeedOnImport(MetaPathFinder):
    """Sets the generators of NumPy and PyTorch also where the training function is the first to import them, and with
    `reproducible` makes PyTorch compute in one order.
    """

    def __init__(self, reproducible: bool) -> None:
        self.seed = 0
        self._reproducible = reproducible
        self._waiting = {name: how for name, how in SEEDS.items() if name not in sys.modules}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        how = self._waiting.pop(name, None)  # gone when we ask ourselves below
        spec = importlib.util.find_spec(name) if how is not None else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_seed(module: ModuleType) -> None:
                execute(module)
                getattr(module, str(how))(self.seed)
                if name == "torch" and self._reproducible:
                    _set_deterministic(module)

            spec.loader.exec_module = execute_and_seed  # type: ignore[method-assign]
        return spec


class Desk:
    """What the process is like after the user's code was loaded, and before any trial has run. With `reproducible`
    PyTorch computes in one order only, whatever the user's code has said.
    """

    def __init__(self, reproducible: bool = False) -> None:
        self._reproducible = reproducible
        self._collected_s, self._modules = -COLLECT_EVERY_S, 0
        self._collect()
        self._environ = dict(os.environ)
        self._folder = os.getcwd()
        self._path = list(sys.path)
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._handlers = {number: handler for number, handler in handlers.items() if handler is not None}
        self._logging = (logging.root.level, list(logging.root.handlers))
        # What the user's modules have set when they were imported is meant for all trials.
        self._torch = _torch_settings(sys.modules["torch"]) if "torch" in sys.modules else None
        self._on_import = _SeedOnImport(reproducible)
        sys.meta_path.insert(0, self._on_import)

    def clear(self, seed: int, threads: int) -> None:
        if os.environ != self._environ:
            os.environ.clear()
            os.environ.update(self._environ)
        os.chdir(self._folder)
        sys.path[:] = self._path
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        logging.root.setLevel(self._logging[0])
        logging.root.handlers[:] = self._logging[1]
        self._collect()
        random.seed(seed)
        self._on_import.seed = seed
        for name, how in SEEDS.items():
            if (module := sys.modules.get(name)) is not None:
                getattr(module, how)(seed)
        use_threads(threads)
        if (torch := sys.modules.get("torch")) is not None:
            _clear_torch(torch, self._torch or _torch_defaults(torch))
            if self._reproducible:
                _set_deterministic(torch)

    def _collect(self) -> None:
        """What was imported stays: left out of sight, it makes collecting what a trial leaves behind cost nothing."""
        if time.monotonic() - self._collected_s > COLLECT_EVERY_S:
            gc.collect()
            if len(sys.modules) > self._modules:
                gc.freeze()
            self._collected_s, self._modules = time.monotonic(), len(sys.modules)


def _torch_settings(torch: Any) -> dict[str, Any]:
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
    }


def _torch_defaults(torch: Any) -> dict[str, Any]:
    return {
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "deterministic": False,
        "precision": "highest",
        "cudnn": (False, False),
    }


def _clear_torch(torch: Any, settings: dict[str, Any]) -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    torch.set_default_dtype(settings["dtype"])
    if torch.get_default_device() != settings["device"]:
        torch.set_default_device(settings["device"])
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(settings["deterministic"])
    torch.set_float32_matmul_precision(settings["precision"])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = settings["cudnn"]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _set_deterministic(torch: Any) -> None:
    """An operation that has no such way raises."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False


def end_children() -> None:
    """End the processes that a trial has left behind. Nearly always there are none, which one call tells."""
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        for child in _children(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _children(process: int) -> list[int]:
    """With those of its children first, so that nobody is left without a parent that we know."""
    found: list[int] = []
    with suppress(OSError):  # not on this system, or it has just ended
        for task in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{task}/children") as file:
                for child in file.read().split():
                    found += [*_children(int(child)), int(child)]
    return found


def memory_bytes() -> int:
    """What this process holds of the machine's memory; where that cannot be told, the most it ever held."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""The state of a trial on its way from one worker to others, through Ray's object store.

Ray keeps it in shared memory, sends it to other machines when it is asked for there, and spills it to disk when memory
is short.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
import ray
import ray.cloudpickle


def share(value: object) -> tuple[Any, bytes]:
    """Put a value where other workers can fetch it: the reference that keeps it alive, and a name for it to send."""
    buffer = io.BytesIO()
    cloudpickle.dump(value, buffer)
    reference = ray.put(buffer.getvalue())
    name: bytes = ray.cloudpickle.dumps(reference)  # type: ignore[no-untyped-call]
    # A name that was made by hand keeps its object for as long as this process lives. This takes that back.
    core: Any = ray._private.worker.global_worker.core_worker  # type: ignore[attr-defined]
    core.remove_object_ref_reference(reference)
    return reference, name


def fetch(name: bytes, within_s: float) -> Any:
    return pickle.loads(ray.get(pickle.loads(name), timeout=within_s))

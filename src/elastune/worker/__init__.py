"""What runs beside the user's code."""

from elastune.worker.session import (
    Context,
    PreemptionInfo,
    Trainable,
    get_checkpoint,
    get_context,
    get_preemption_info,
    leave_if_preempted,
    report,
)

__all__ = [
    "Context",
    "PreemptionInfo",
    "Trainable",
    "get_checkpoint",
    "get_context",
    "get_preemption_info",
    "leave_if_preempted",
    "report",
]

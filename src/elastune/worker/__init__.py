"""What runs beside the user's code."""

from elastune.worker.session import Context, Trainable, get_checkpoint, get_context, report

__all__ = ["Context", "Trainable", "get_checkpoint", "get_context", "report"]

"""What is kept of a run: the journal and the checkpoints."""

from __future__ import annotations

from elastune.record.checkpoints import CheckpointDamagedError, CheckpointStore
from elastune.record.journal import Journal, MemoryJournal, SqlJournal, list_runs, open_journal

__all__ = [
    "CheckpointDamagedError",
    "CheckpointStore",
    "Journal",
    "MemoryJournal",
    "SqlJournal",
    "list_runs",
    "open_journal",
]

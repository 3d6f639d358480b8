"""The exceptions a user may meet.

ElastuneError
├── SpecError           what was asked for cannot be: name, value, what is allowed, what to do   (exit code 2)
├── StorageError        a journal or a store that cannot be read or written                      (exit code 2)
│   ├── JournalDamaged  a record in the middle is not what was written
│   └── JournalTaken    another driver writes to the same run
├── RunFailed           the run came to no result                                                (exit code 2)
└── Infeasible          no plan meets the deadline or the budget                                 (exit code 3)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ElastuneError(Exception):
    """Base of all errors whose message is meant for the user: shown without a traceback."""


class SpecError(ElastuneError):
    """What was asked for cannot be."""


class StorageError(ElastuneError):
    """A journal or a checkpoint store that cannot be read or written."""


class JournalDamaged(StorageError):
    """A record in the middle of the journal is not what was written."""


class JournalTaken(StorageError):
    """Another driver writes to the same run."""


class RunFailed(ElastuneError):
    """The run came to no result."""


class Infeasible(ElastuneError):
    """No plan meets the deadline or the budget."""


def did_you_mean(name: object, allowed: Iterable[str], which: str = "allowed") -> str:
    """The end of a message about an unknown name: the nearest one, and all of them; `which` says what they are."""
    known = sorted(allowed)
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[near[0]]!r}? " if near else ""
    return f"{hint}{which}: {', '.join(known) or 'none'}"

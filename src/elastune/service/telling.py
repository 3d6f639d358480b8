"""What is told of an error: not where the service keeps things, nor how it reaches its database."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from elastune.errors import ElastuneError, JournalDamaged
from elastune.service.places import Places

AWAY = "the database of the service cannot be used at the moment: try again in a while; the log of the service says why"


def told(error: Exception) -> str:
    if not isinstance(error, ElastuneError):
        return f"{type(error).__name__}: {error}"
    # What a database says has its host and user.
    hidden = isinstance(error.__cause__, SQLAlchemyError) and not isinstance(error, JournalDamaged)
    return AWAY if hidden else str(error)


def without_places(text: str, places: Places) -> str:
    return text.replace(places.storage, "...").replace(str(places.home), "...")

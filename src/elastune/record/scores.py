"""Scores that are known: what a configuration was worth, so that it is not trained again.

Each is a small file, named by what the score depends on: the configuration, the seed of the experiment and the code.
It is a help and no more: where it cannot be read or written, the score is computed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from dataclasses import dataclass

import msgspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from elastune.messages import Config, Metrics

FOLDER = "scores"


class Question(msgspec.Struct, frozen=True):
    """All that a score depends on."""

    config: Config
    seed: int
    code: str

    @property
    def name(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class _Answered(msgspec.Struct, frozen=True):
    question: Question
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Scores:
    """Under any URL that fsspec can reach."""

    url: str

    @classmethod
    def beside(cls, store: str) -> Scores:
        """Beside the checkpoints of a run: those that keep theirs in the same place share what they know."""
        return cls(f"{store.rpartition('/')[0]}/{FOLDER}")

    def find(self, question: Question) -> Metrics | None:
        try:
            fs, root = url_to_fs(self.url)
            fs.invalidate_cache()  # others write here too
            found = msgspec.json.decode(fs.cat_file(f"{root}/{question.name}.json"), type=_Answered)
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever the file system's library raises, and what is no score
            _say("read", self.url, error)
            return None
        return found.metrics if found.question == question else None

    def keep(self, question: Question, metrics: Metrics) -> None:
        """Whoever looks meanwhile finds all of it or nothing."""
        data = msgspec.json.encode(_Answered(question, metrics))
        try:
            fs, root = url_to_fs(self.url)
            path = f"{root}/{question.name}.json"
            if not isinstance(fs, LocalFileSystem):
                fs.pipe_file(path, data)  # an object appears when it is complete
                return
            fs.makedirs(root, exist_ok=True)
            draft = f"{path}.{secrets.token_hex(4)}.tmp"
            fs.pipe_file(draft, data)
            os.replace(draft, path)
        except Exception as error:
            _say("written", self.url, error)


def _say(doing: str, url: str, error: Exception) -> None:
    print(f"elastune: the known scores in {url} cannot be {doing}: {error!r}", file=sys.stderr)

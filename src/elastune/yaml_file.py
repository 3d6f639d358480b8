"""YAML files that people write and edit: read strictly, and written so that they read back as they were."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from elastune.errors import SpecError, did_you_mean

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-4 as a text; everybody means a number."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """YAML forbids a key twice; its Python reader takes the last one and says nothing. That is asked of what is
        written, before what `<<` merges in is added: a key goes before the same one of what is merged.
        """
        node = super().compose_mapping_node(anchor)
        found = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _MERGE:
                continue
            if (key := self.construct_object(key_node)) in found:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
            found.add(key)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """What looks like a number or a date and is none, such as 2024-13-45, gives whatever error Python's own
        conversions do, without a place.
        """
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            said = f"{node.value!r} cannot be read ({error}): put quotes around a text"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from None


class _Dumper(yaml.SafeDumper):
    """Puts in quotes what the loader would take for a number, and gives every field of a section a line."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        if len(mapping) > 3 and all(isinstance(name, str) for name in mapping):
            node.flow_style = False
        return node


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """YAML turns some line breaks, such as U+0085, into others, unless they are written as escapes."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    """What is merged in comes first, so that what is written here goes before it."""
    loader.flatten_mapping(node)
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool | None):
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} cannot be a name", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Dumper.add_representer(str, _text)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
for _reads in (_Loader, _Dumper):
    _reads.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )


def read_yaml(path: Path, fields: str) -> dict[str, Any]:
    """The mapping in a file; `fields` says for an error message what should be in it."""
    try:
        content = yaml.load(path.read_text("utf-8"), Loader=_Loader)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: is not YAML: {error}") from None
    except RecursionError:
        raise SpecError(f"{path}: is nested too deeply to be read: a file has a handful of levels") from None
    if not isinstance(content, dict):
        found = "empty" if content is None else type(content).__name__
        raise SpecError(f"{path}: must be a mapping with {fields}, is {found}")
    return content


def checked(
    given: object, known: set[str], where: str, extra: frozenset[str] | set[str] = frozenset()
) -> dict[str, Any]:
    """A mapping without unknown fields; `extra` ones are named in the message as well. What is null is left out: it
    has its default.
    """
    if not isinstance(given, Mapping):
        raise SpecError(f"{where}: must be a mapping, is {given!r}")
    for name in given:
        if name not in known:
            raise SpecError(f"{where}: unknown field {name!r}; {did_you_mean(str(name), known | extra)}")
    return {name: value for name, value in given.items() if value is not None}


def write_yaml(path: Path, content: Mapping[str, object], comment: str) -> None:
    """Below lines of comment. Who reads meanwhile, or after a crash, finds the old file or the new one."""
    text = yaml.dump(
        dict(content), Dumper=_Dumper, default_flow_style=None, sort_keys=False, allow_unicode=True, width=100
    )
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with draft.open("xb") as file:
            file.write((head + text).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink()

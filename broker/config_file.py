"""Settings as they stand in files and on command lines: names and texts, each with its place.

YAML files hold a mapping whose keys are dotted names, nested mappings, or both; every other file is read as
Java's properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

NAME_PARTS_MAX = 12
"""Mappings nested deeper than any name of a setting has parts are refused, as are those that hold themselves.
"""


class Entry(NamedTuple):
    """One setting as found: `place` says where, for messages."""

    name: str
    text: str
    place: str


def read_file(path: Path, problems: list[str]) -> list[Entry]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        problems.append(f"{path}: cannot be read: {reason}")
        return []
    if path.suffix in (".yaml", ".yml"):
        return _read_yaml(path, text, problems)
    return list(read_properties(path, text, problems))


def _read_yaml(path: Path, text: str, problems: list[str]) -> list[Entry]:
    """Entries of a mapping whose keys are dotted names, nested mappings, or both."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        problems.append(f"{path}:{line}: {error.problem or error.context}")
        return []
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(f"{path}:{line}: the character {chr(error.character)!r} cannot stand in YAML")
        return []
    except RecursionError:
        problems.append(f"{path}: nested too deeply")
        return []
    if root is None:
        return []
    entries: list[Entry] = []
    _walk_yaml(path, "", root, entries, problems)
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.name in seen:
            problems.append(f"{entry.place}: {entry.name} is given twice, first at {seen[entry.name]}")
        seen.setdefault(entry.name, entry.place)
    return entries


def _walk_yaml(path: Path, name: str, node: yaml.Node, entries: list[Entry], problems: list[str]) -> None:
    place = f"{path}:{node.start_mark.line + 1}"
    match node:
        case yaml.MappingNode() if name.count(".") < NAME_PARTS_MAX:
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    problems.append(
                        f"{path}:{key.start_mark.line + 1}: the name of a setting must be plain text"
                    )
                    continue
                _walk_yaml(path, f"{name}.{key.value}" if name else key.value, value, entries, problems)
        case yaml.SequenceNode() if name:
            if all(isinstance(item, yaml.ScalarNode) for item in node.value):
                entries.append(Entry(name, ",".join(item.value for item in node.value), place))
            else:
                problems.append(f"{place}: {name}: the items of a list must be plain values")
        case yaml.ScalarNode() if name:
            text = "" if node.tag == "tag:yaml.org,2002:null" else node.value
            entries.append(Entry(name, text, place))
        case _:
            problems.append(f"{place}: expected settings, name: value")


_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path, text: str, problems: list[str]) -> Iterator[Entry]:
    """Entries of Java's properties format, which is the text of `path`; of a name given twice the last holds,
    as in Java.
    """
    logical, first_line = "", 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        stripped = line.lstrip(_BLANKS)
        if not logical:
            if not stripped or stripped[0] in "#!":
                continue
            first_line = number
        continues = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        logical += stripped[:-1] if continues else stripped
        if not continues:
            yield from _property(logical, f"{path}:{first_line}", problems)
            logical = ""
    if logical:
        yield from _property(logical, f"{path}:{first_line}", problems)


def _property(logical: str, place: str, problems: list[str]) -> Iterator[Entry]:
    match = _PROPERTY.fullmatch(logical)
    name, value = match.groups() if match else (logical, "")
    try:
        yield Entry(_unescape(name), _unescape(value).strip(), place)
    except ValueError as error:
        problems.append(f"{place}: {error}")


def _unescape(text: str) -> str:
    """Raises ValueError for half an escape."""
    unescaped = _ESCAPE.sub(_unescaped, text)
    try:
        return unescaped.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("there is half of a character: \\u stands for UTF-16") from None


def _unescaped(found: re.Match[str]) -> str:
    digits, character = found.groups()
    if digits is not None:
        return chr(int(digits, 16))
    if character == "u":
        raise ValueError("four hexadecimal digits belong behind \\u")
    return _ESCAPES.get(character, character)


def read_overrides(overrides: Iterable[str], problems: list[str]) -> Iterator[Entry]:
    for text in overrides:
        name, separator, value = text.partition("=")
        if separator:
            yield Entry(name.strip(), value.strip(), f"-o {text}")
        else:
            problems.append(f"-o {text}: expected key=value")

"""A YAML document read key by key, where every complaint knows its line and path.

A `Section` hands out the values of one mapping by key and type. A value that is missing or of the wrong type
is reported to the shared `Problems`, and a stand-in is returned so that reading goes on: all complaints come
out at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import yaml
from yaml.reader import ReaderError

from broker.errors import ConfigurationError

_TAG = "tag:yaml.org,2002:"
_VALUE_SIZE_SHOWN = 60
_KINDS = {
    f"{_TAG}str": "text",
    f"{_TAG}int": "a whole number",
    f"{_TAG}float": "a number with a fraction",
    f"{_TAG}bool": "true or false",
    f"{_TAG}null": "nothing",
    f"{_TAG}seq": "a list",
    f"{_TAG}map": "a mapping",
    f"{_TAG}timestamp": "a date",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One complaint: where it is in the document, and what is wrong there. Line 0 is "no particular line"."""

    line: int
    path: str
    message: str

    def render(self, file: str) -> str:
        """`FILE:LINE: PATH: MESSAGE`, without the parts that are not known."""
        place = f"{file}:{self.line}" if self.line else file
        return ": ".join(part for part in (place, self.path, self.message) if part)


@dataclass(slots=True)
class Problems:
    """The complaints about one document, and the line of every path that has been read."""

    found: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def report(self, path: str, message: str, line: int | None = None) -> None:
        """Note a complaint about `path`; without a line, that of the nearest enclosing path is taken."""
        self.found.append(
            Problem(line=self.line_of(path) if line is None else line, path=path, message=message)
        )

    def line_of(self, path: str) -> int:
        """The line of `path`, or of the nearest path around it that was read; 0 when there is none."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get("", 0)

    def covers(self, path: str) -> bool:
        """Whether there is a complaint about `path` or something around it already."""
        return any(
            path == problem.path or (path.startswith(problem.path) and path[len(problem.path)] in ".[")
            for problem in self.found
        )

    def raise_if_any(self, file: str) -> None:
        """Raises ConfigurationError with every complaint in the order of lines."""
        if self.found:
            ordered = sorted(self.found, key=lambda problem: problem.line)
            raise ConfigurationError([problem.render(file) for problem in ordered])


class Section:
    """One mapping of the document; `path` is where it stands, "" for the whole."""

    def __init__(self, node: yaml.MappingNode, path: str, problems: Problems) -> None:
        self.path = path
        self._problems = problems
        self._values: dict[str, yaml.Node] = {}
        self._asked: set[str] = set()
        problems.lines.setdefault(path, _line(node))
        for key, value in node.value:
            self._add(key, value)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def keys(self) -> list[str]:
        """The keys as they stand, in order."""
        return list(self._values)

    def path_of(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def report(self, key: str, message: str) -> None:
        """Note a complaint about the value of `key`, or about this section when `key` is empty."""
        self._problems.report(self.path_of(key) if key else self.path, message)

    def text(self, key: str, default: str | None = None) -> str:
        """The text under `key`; required when there is no default."""
        node = self._take(key, required=default is None)
        if node is None:
            return default or ""
        return self._text_of(node, self.path_of(key))

    def hidden_text(self, key: str) -> str:
        """The text under `key`, which may be a secret: what stands in its place is not shown."""
        node = self._take(key, required=True)
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            return str(node.value)
        if node is not None:
            self.report(
                key, f"expected text, found {_KINDS.get(node.tag, 'something else')}: put it in quotes"
            )
        return ""

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        """The list of texts under `key`; empty when it is left out and not required."""
        return tuple(self._text_of(item, path) for item, path in self._items(key, required=required))

    def integer(self, key: str, default: int | None = None, *, low: int, high: int) -> int:
        """The whole number under `key`, within bounds; required when there is no default."""
        node = self._take(key, required=default is None)
        stand_in = low if default is None else default
        if node is None:
            return stand_in
        path = self.path_of(key)
        if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_TAG}int":
            self._problems.report(path, f"expected a whole number, found {_describe(node)}")
            return stand_in
        number = _number_of(node)
        if number is None or not low <= number <= high:
            self._problems.report(path, f"{_clipped(node.value)} is not between {low} and {high}")
            return stand_in
        return number

    def choice(self, key: str, allowed: Collection[str], default: str) -> str:
        """The text under `key`, which must be one of `allowed`."""
        value = self.text(key, default)
        if value not in allowed and not self._problems.covers(self.path_of(key)):
            expected = " or ".join(repr(item) for item in allowed)
            self.report(key, f"{value!r} is not supported, only {expected}")
        return value if value in allowed else default

    def section(self, key: str, *, required: bool = False) -> Section | None:
        """The mapping under `key`; None when it is left out or is something else."""
        node = self._take(key, required=required)
        return None if node is None else self._section_of(node, self.path_of(key))

    def sections(self, key: str, *, required: bool = False) -> Iterator[Section]:
        """The mappings in the list under `key`; items that are something else are reported and left out."""
        for item, path in self._items(key, required=required):
            section = self._section_of(item, path)
            if section is not None:
                yield section

    def finish(self) -> None:
        """Report every key that nobody asked for, with the nearest one that exists."""
        for key in self._values.keys() - self._asked:
            self.report(key, f"unknown key{_suggestion(key, self._asked)}")

    def _add(self, key: yaml.Node, value: yaml.Node) -> None:
        if not isinstance(key, yaml.ScalarNode) or key.tag != f"{_TAG}str":
            name = repr(key.value) if isinstance(key, yaml.ScalarNode) else "this"
            self._problems.report(self.path, f"the key {name} is not text: put it in quotes", _line(key))
            return
        name = key.value
        if name in self._values:
            first = self._problems.lines[self.path_of(name)]
            message = f"the key stands here twice, first in line {first}"
            self._problems.report(self.path_of(name), message, _line(key))
            return
        self._values[name] = value
        self._problems.lines[self.path_of(name)] = _line(key)

    def _take(self, key: str, *, required: bool) -> yaml.Node | None:
        self._asked.add(key)
        node = self._values.get(key)
        if node is None and required:
            self._problems.report(self.path, f"the key {key!r} is missing")
        return node

    def _items(self, key: str, *, required: bool) -> list[tuple[yaml.Node, str]]:
        node = self._take(key, required=required)
        if node is None:
            return []
        path = self.path_of(key)
        if not isinstance(node, yaml.SequenceNode):
            self._problems.report(path, f"expected a list, found {_describe(node)}")
            return []
        items = [(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        self._problems.lines.update((item_path, _line(item)) for item, item_path in items)
        return items

    def _text_of(self, node: yaml.Node, path: str) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            return str(node.value)
        self._problems.report(path, f"expected text, found {_describe(node)}")
        return ""

    def _section_of(self, node: yaml.Node, path: str) -> Section | None:
        if isinstance(node, yaml.MappingNode):
            return Section(node, path, self._problems)
        self._problems.report(path, f"expected a mapping, found {_describe(node)}")
        return None


def read_document(file: Path, problems: Problems) -> Section:
    """Parse `file` into its top-level mapping.

    Raises ConfigurationError at once when it cannot be read, is not YAML, or is not a mapping.
    """
    text = _read_text(file)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError([_render_syntax_error(file, error)]) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigurationError([f"{file}:{line}: not YAML: {error.reason}"]) from error
    except RecursionError as error:
        raise ConfigurationError([f"{file}: not a topology: nested too deeply"]) from error
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if node is None else _describe(node)
        raise ConfigurationError([f"{file}:1: expected a mapping, found {found}"])
    return Section(node, "", problems)


def _read_text(file: Path) -> str:
    try:
        data = file.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise ConfigurationError([f"{file}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"{file}:{line}: not UTF-8 text: {error.reason} at byte {error.start}"
        raise ConfigurationError([problem]) from error


def _render_syntax_error(file: Path, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{file}:{mark.line + 1}" if mark else str(file)
    context = f" {error.context}" if error.context else ""
    return f"{place}: not YAML: {error.problem}{context}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _number_of(node: yaml.ScalarNode) -> int | None:
    """The value of a whole number; None for one that is absurdly long or has no digits."""
    try:
        return int(yaml.SafeLoader("").construct_yaml_int(node))
    except ValueError:
        return None


def _clipped(value: str) -> str:
    return value if len(value) <= _VALUE_SIZE_SHOWN else f"{value[:_VALUE_SIZE_SHOWN]}..."


def _describe(node: yaml.Node) -> str:
    kind = _KINDS.get(node.tag, f"a value of type {node.tag}")
    shown = isinstance(node, yaml.ScalarNode) and node.tag != f"{_TAG}null"
    return f"{kind} ({_clipped(node.value)})" if shown else kind


def _suggestion(word: str, known: Collection[str]) -> str:
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""

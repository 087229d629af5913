"""A YAML document as nodes, where every complaint knows its line and path.

Whatever reads a part of it reports to the shared `Problems` and goes on, so that all complaints come out at
once. Plain words are read as YAML 1.2 does: `on`, `yes` and `no` are text, and so are dates and `1:30`;
numbers may have underscores between digits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

import yaml
from yaml.reader import ReaderError

from broker.errors import ConfigurationError

_TAG = "tag:yaml.org,2002:"
STR, INT, FLOAT, BOOL, NULL = (f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null"))
_VALUE_SIZE_SHOWN = 60
_REPEATED_MAX = 50_000
"""Values that aliases may stand for in all."""
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_KINDS = {
    STR: "text",
    INT: "a whole number",
    FLOAT: "a number with a fraction",
    BOOL: "true or false",
    NULL: "nothing",
    f"{_TAG}seq": "a list",
    f"{_TAG}map": "a mapping",
}
_PLAIN_WORDS = (
    (BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (INT, r"[-+]?(0|[1-9][0-9_]*)|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        FLOAT,
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[1-9][0-9]*[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One complaint: where it is in the document, and what is wrong there. Line 0 is "no particular line"."""

    line: int
    path: str
    message: str
    missing: str | None = None
    """The path of what is not there, where the complaint is about that alone."""

    def render(self, file: str) -> str:
        """`FILE:LINE: PATH: MESSAGE`, without the parts that are not known."""
        place = f"{file}:{self.line}" if self.line else file
        return ": ".join(part for part in (place, self.path, self.message) if part)


@dataclass(slots=True)
class Problems:
    """The complaints about one document, and the line of every path that has been read."""

    found: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def report(self, path: str, message: str, line: int | None = None, *, missing: str | None = None) -> None:
        """Note a complaint about `path`, or about `missing` below it, which is not there; without a line,
        that of the nearest enclosing path is taken.
        """
        line = self.line_of(path) if line is None else line
        self.found.append(Problem(line=line, path=path, message=message, missing=missing))

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
            path == problem.path
            or _is_within(path, problem.path if problem.missing is None else problem.missing)
            for problem in self.found
        )

    def raise_if_any(self, file: str) -> None:
        """Raises ConfigurationError with every complaint in the order of lines."""
        if self.found:
            ordered = sorted(self.found, key=lambda problem: problem.line)
            raise ConfigurationError([problem.render(file) for problem in ordered])


@dataclass(frozen=True, slots=True)
class Place:
    """One node of the document, and where it stands."""

    node: yaml.Node
    path: str
    problems: Problems

    def report(self, message: str) -> None:
        """Note a complaint about it."""
        self.problems.report(self.path, message)

    def report_missing(self, key: str) -> None:
        """Note that this mapping lacks a key."""
        self.problems.report(self.path, f"the key {key!r} is missing", missing=self.path_of(key))

    def path_of(self, key: str) -> str:
        """The path of what stands under `key`."""
        return f"{self.path}.{key}" if self.path else key

    def below(self, key: str, node: yaml.Node, line: int) -> Place:
        """What stands under `key` of this mapping, told by the line of the key."""
        path = self.path_of(key)
        self.problems.lines[path] = line
        return Place(node, path, self.problems)

    def holds(self, keys: Set[str]) -> bool:
        """Whether this mapping has all of `keys`."""
        assert isinstance(self.node, yaml.MappingNode)
        return keys <= {key.value for key, _ in self.node.value if isinstance(key, yaml.ScalarNode)}

    def without(self, key: str) -> Place:
        """The same mapping without what stands under `key`."""
        assert isinstance(self.node, yaml.MappingNode)
        kept = [(each, value) for each, value in self.node.value if each.value != key]
        node = yaml.MappingNode(self.node.tag, kept, self.node.start_mark, self.node.end_mark)
        return Place(node, self.path, self.problems)

    def item(self, index: int, node: yaml.Node) -> Place:
        """An item of this list."""
        path = f"{self.path}[{index}]"
        self.problems.lines[path] = line_of(node)
        return Place(node, path, self.problems)

    def entries(self) -> dict[str, Place]:
        """What this mapping holds, by key; a key that is no text or stands twice is reported."""
        assert isinstance(self.node, yaml.MappingNode)
        found: dict[str, Place] = {}
        for key, value in self.node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != STR:
                name = repr(key.value) if isinstance(key, yaml.ScalarNode) else "this"
                self.problems.report(self.path, f"the key {name} is not text: put it in quotes", line_of(key))
            elif key.value in found:
                first = self.problems.lines[self.path_of(key.value)]
                message = f"the key stands here twice, first in line {first}"
                self.problems.report(self.path_of(key.value), message, line_of(key))
            else:
                found[key.value] = self.below(key.value, value, line_of(key))
        return found


class PlainLoader(yaml.SafeLoader):
    """Reads plain words as YAML 1.2 does."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 PyYAML's own way


for _tag, _pattern, _first in _PLAIN_WORDS:
    PlainLoader.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern})\\Z"), list(_first))


def read_document(text: str, file: Path, problems: Problems) -> Place:
    """Parse the text of `file`, which must hold one mapping.

    Raises ConfigurationError at once when it is not YAML, or is not a mapping.
    """
    try:
        node = _compose(text)
        _check_nodes(node, file)
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError([_render_syntax_error(file, error)]) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigurationError([f"{file}:{line}: not YAML: {error.reason}"]) from error
    except RecursionError as error:
        raise ConfigurationError([f"{file}: not a topology: nested too deeply"]) from error
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if node is None else describe(node)
        raise ConfigurationError([f"{file}:1: expected a mapping, found {found}"])
    problems.lines[""] = line_of(node)
    return Place(node, "", problems)


def _is_within(path: str, other: str) -> bool:
    """Whether a path is `other` or below it."""
    return path.startswith(other) and path[len(other) : len(other) + 1] in ("", ".", "[")


def full_path(folder: Path, path: str) -> Path:
    """Where a path below `folder` leads. Raises ConfigurationError when that is nowhere, as by a link that
    leads to itself.
    """
    try:
        return (folder / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError([f"{clipped(path)!r} is not a path: {error}"]) from error


def place_in(folder: Path, where: str) -> str:
    """A URL as it is, a path below `folder` unless it is absolute. Raises as `full_path`."""
    return where if "://" in where else str(full_path(folder, where))


def line_of(node: yaml.Node) -> int:
    """The line that the node starts in."""
    return int(node.start_mark.line) + 1


def describe(node: yaml.Node) -> str:
    """What a node is, in words, with its value where there is one."""
    kind = _KINDS.get(node.tag, f"a value of type {node.tag}")
    shown = isinstance(node, yaml.ScalarNode) and node.tag != NULL
    return f"{kind} ({clipped(node.value)})" if shown else kind


def describe_hidden(node: yaml.Node) -> str:
    """What a node is, without its value, which may be a secret."""
    return _KINDS.get(node.tag, "something else")


def clipped(value: str) -> str:
    """The value as a complaint shows it."""
    return value if len(value) <= _VALUE_SIZE_SHOWN else f"{value[:_VALUE_SIZE_SHOWN]}..."


def suggestion(word: str, known: Collection[str]) -> str:
    """`; did you mean ...?` where a known word is near, whatever its case, and nothing otherwise."""
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold(), folded, n=1)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""


def read_text(file: Path) -> str:
    """All of `file`. Raises ConfigurationError when it cannot be read, or is not UTF-8."""
    try:
        data = file.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise ConfigurationError([f"{file}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"{file}:{line}: not UTF-8 text: {error.reason} at byte {error.start}"
        raise ConfigurationError([problem]) from error


def _compose(text: str) -> yaml.Node | None:
    """The one document that `text` is. Raises YAMLError, RecursionError."""
    loader = PlainLoader(text)
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError) as error:  # PyYAML's, of numbers in directives and escapes
        raise yaml.MarkedYAMLError(problem=str(error), problem_mark=loader.get_mark()) from error
    finally:
        loader.dispose()


def _check_nodes(root: yaml.Node | None, file: Path) -> None:
    """Raises ConfigurationError for what nobody could read to its end, or write down: aliases without end or
    measure, and halves of characters.
    """
    sizes: dict[int, int] = {}  # with all that is inside; 0 as long as that is being counted

    def count(node: yaml.Node) -> int:
        size = sizes.get(id(node))
        if size == 0:
            raise ConfigurationError([f"{file}:{line_of(node)}: an alias stands inside of what it repeats"])
        if size is None:
            sizes[id(node)] = 0
            if isinstance(node, yaml.ScalarNode) and _HALF_CHARACTER.search(node.value):
                raise ConfigurationError(
                    [f"{file}:{line_of(node)}: {node.value!r} holds half of a character"]
                )
            size = sizes[id(node)] = 1 + sum(map(count, _inside(node)))
        return size

    repeated = 0 if root is None else count(root) - len(sizes)
    if repeated > _REPEATED_MAX:
        raise ConfigurationError([f"{file}: aliases repeat more than {_REPEATED_MAX:,} values"])


def _inside(node: yaml.Node) -> Iterator[yaml.Node]:
    match node:
        case yaml.MappingNode():
            yield from chain.from_iterable(node.value)
        case yaml.SequenceNode():
            yield from node.value


def _render_syntax_error(file: Path, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{file}:{mark.line + 1}" if mark else str(file)
    context = f" {error.context}" if error.context else ""
    return f"{place}: not YAML: {error.problem}{context}"

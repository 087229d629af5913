"""The text of filters of records. Pure.

    filter      = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" filter ")" | condition
    condition   = field relation literal | field "in" "(" literal { "," literal } ")" | field "exists"
    field       = "key" | "value" | "header" ("." name | "[" string "]") | "$" { "." name | "[" step "]" }
    step        = index | string
    relation    = "=" | "!=" | "<" | "<=" | ">" | ">=" | "starts" "with" | "contains"
    literal     = string in " or ' | number | "true" | "false" | "null"

`$` is the value as JSON. Keys, values and headers are compared with strings, as UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from broker.errors import ConfigurationError
from broker.records.filter_terms import (
    RELATIONS,
    AllOf,
    AnyOf,
    Comparison,
    Existence,
    Field,
    HeaderNamed,
    JsonField,
    Key,
    Literal,
    Membership,
    Not,
    Term,
    Value,
)

CHARACTERS_MAX = 4_096
DEPTH_MAX = 40
"""Of parentheses and negations within each other."""

_STRING = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<string>{_STRING})
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<header>header(?:\.[\w-]+|\[\s*(?:{_STRING})\s*\]))
    |(?P<json>\$(?:\.\w+|\[\s*(?:\d+|{_STRING})\s*\])*)
    |(?P<word>[A-Za-z]+)
    |(?P<sign>==|!=|<=|>=|[=<>(),])
    |(?P<end>$)
    )""",
    re.VERBOSE,
)
_STEP = re.compile(rf"\.(?P<name>[\w-]+)|\[\s*(?:(?P<index>\d+)|(?P<string>{_STRING}))\s*\]")
_WORDS = {"true": True, "false": False, "null": None}
_INDEX_DIGITS_MAX = 9


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


def parse(text: str) -> Term:
    """The predicate that the text describes.

    Raises ConfigurationError, which names the column and what was expected there.
    """
    if len(text) > CHARACTERS_MAX:
        raise ConfigurationError([f"filter: {len(text)} characters, more than {CHARACTERS_MAX}"])
    parser = _Parser(_tokens(text))
    term = parser.alternatives(0)
    if parser.next.kind != "end":
        raise parser.refusal('"and", "or" or the end')
    return term


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip()) + 1
            raise ConfigurationError([f"filter, column {column}: cannot read {text[column - 1 :][:20]!r}"])
        kind = match.lastgroup
        assert kind is not None
        tokens.append(_Token(kind, match[kind], match.start(kind) + 1))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent; `next` is the token that was not consumed yet."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = iter(tokens)
        self.next = next(self._tokens)

    def refusal(self, expected: str) -> ConfigurationError:
        """What is wrong with the next token."""
        found = repr(self.next.text) if self.next.text else "the end"
        return ConfigurationError([f"filter, column {self.next.column}: expected {expected}, not {found}"])

    def alternatives(self, depth: int) -> Term:
        terms = [self._conjunction(depth)]
        while self._skip("or"):
            terms.append(self._conjunction(depth))
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def _conjunction(self, depth: int) -> Term:
        terms = [self._negation(depth)]
        while self._skip("and"):
            terms.append(self._negation(depth))
        return terms[0] if len(terms) == 1 else AllOf(tuple(terms))

    def _negation(self, depth: int) -> Term:
        if depth > DEPTH_MAX:
            raise self.refusal(f"at most {DEPTH_MAX} parentheses and negations within each other")
        if self._skip("not"):
            return Not(self._negation(depth + 1))
        if self._skip("("):
            term = self.alternatives(depth + 1)
            self._require(")")
            return term
        return self._condition()

    def _condition(self) -> Term:
        field = self._field()
        if self._skip("exists"):
            return Existence(field)
        if self._skip("in"):
            self._require("(")
            literals = [self._literal(field)]
            while self._skip(","):
                literals.append(self._literal(field))
            self._require(")")
            return Membership(field, tuple(literals))
        relation = self.next.text
        if relation == "starts":
            self._take()
            self._require("with")
            relation = "starts with"
        elif relation in RELATIONS:
            self._take()
        else:
            raise self.refusal('a relation, "in" or "exists"')
        column = self.next
        literal = self._literal(field)
        if relation in ("starts with", "contains") and not isinstance(literal, bytes | str):
            self.next = column
            raise self.refusal("a string")
        return Comparison(field, RELATIONS[relation], literal)

    def _field(self) -> Field:
        kind, text, _ = self.next
        if kind == "header":
            (name,) = _steps(self._take().text.removeprefix("header"))
            return HeaderNamed(str(name))
        if kind == "json":
            if any(step["index"] and len(step["index"]) > _INDEX_DIGITS_MAX for step in _STEP.finditer(text)):
                raise self.refusal(f"an index of at most {_INDEX_DIGITS_MAX} digits")
            return JsonField(_steps(self._take().text[1:]))
        if text in ("key", "value") and kind == "word":
            return Key() if self._take().text == "key" else Value()
        raise self.refusal('"key", "value", "header.NAME" or "$.NAME"')

    def _literal(self, field: Field) -> Literal:
        kind, text, _ = self.next
        if not isinstance(field, JsonField):
            if kind != "string":
                raise self.refusal("a string")
            return _unquoted(self._take().text).encode()
        if kind == "string":
            return _unquoted(self._take().text)
        if kind == "number":
            self._take()
            return float(text) if {".", "e", "E"} & set(text) else int(text)
        if kind == "word" and text in _WORDS:
            self._take()
            return _WORDS[text]
        raise self.refusal("a string, a number, true, false or null")

    def _take(self) -> _Token:
        taken = self.next
        self.next = next(self._tokens, taken)
        return taken

    def _skip(self, text: str) -> bool:
        if self.next.kind in ("word", "sign") and self.next.text == text:
            self._take()
            return True
        return False

    def _require(self, text: str) -> None:
        if not self._skip(text):
            raise self.refusal(f'"{text}"')


def _steps(path: str) -> tuple[str | int, ...]:
    return tuple(
        step["name"] or (int(step["index"]) if step["index"] else _unquoted(step["string"]))
        for step in _STEP.finditer(path)
    )


def _unquoted(text: str) -> str:
    """What a string in quotes of either kind says, with JSON's escapes; others stand for themselves."""
    body = text[1:-1]
    if text[0] == "'":
        body = body.replace("\\'", "'").replace('"', '\\"')
    try:
        said = json.loads(f'"{body}"', strict=False)
        said.encode()
    except ValueError:
        raise ConfigurationError([f"filter: {text} has an escape that no string can have"]) from None
    return str(said)

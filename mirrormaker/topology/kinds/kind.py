"""What every kind of value can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import yaml

from mirrormaker.topology.document import Place, describe

T = TypeVar("T")
JsonSchema = dict[str, Any]


class UnreadableError(Exception):
    """The value is not of its kind. Whoever asked for it reports the message, with the place."""


class Kind(ABC, Generic[T]):
    """One kind of values, which become `T` in the model."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, for people."""

    @property
    @abstractmethod
    def stand_in(self) -> T:
        """Stands for a value that is missing or unreadable, so that reading can go on."""

    @abstractmethod
    def read(self, place: Place) -> T:
        """The value of a node. Parts of it that are wrong are reported and left out. Raises UnreadableError
        when all of it is.
        """

    @abstractmethod
    def schema(self) -> JsonSchema:
        """What is allowed, in JSON Schema."""

    def render(self, value: T) -> str:
        """A value as one would write it."""
        return str(value)


def unexpected(expected: str, place: Place) -> UnreadableError:
    """Something else stands there."""
    return UnreadableError(f"expected {expected}, found {describe(place.node)}")


def scalar(place: Place, tag: str, expected: str) -> str:
    """The text of a scalar of type `tag`. Raises UnreadableError when it is something else."""
    if not isinstance(place.node, yaml.ScalarNode) or place.node.tag != tag:
        raise unexpected(expected, place)
    return str(place.node.value)


class Checked(Kind[T]):
    """A kind with one more rule: `check` returns the value to take, or raises UnreadableError."""

    def __init__(self, kind: Kind[T], check: Callable[[T], T], **narrower: object) -> None:
        """`narrower` is as much of the rule as JSON Schema can say."""
        self._kind = kind
        self._check = check
        self._narrower = narrower

    @property
    def words(self) -> str:
        return self._kind.words

    @property
    def stand_in(self) -> T:
        return self._kind.stand_in

    def read(self, place: Place) -> T:
        return self._check(self._kind.read(place))

    def schema(self) -> JsonSchema:
        return self._kind.schema() | self._narrower

    def render(self, value: T) -> str:
        return self._kind.render(value)

"""Steps that change records, compiled: each takes a record at work and gives what it becomes. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

from broker.records.filter_terms import Term
from broker.records.record import Header
from mirrormaker.steps.conditions import compile_condition
from mirrormaker.steps.exact_json import canonical_json
from mirrormaker.steps.record import RecordAtWork
from mirrormaker.topology.model import CallFunction, DropParts, MaskParts, RenameParts, RouteTo, TransformStep

Change = Callable[[RecordAtWork], Sequence[RecordAtWork]]
"""May change what it is given. Raises RecordError."""
Edit = Callable[[RecordAtWork], None]
"""Changes what it is given. Raises RecordError."""
Path = tuple[str, ...]


def compile_change(
    step: TransformStep,
    *,
    names: Callable[[str], str],
    function_of: Callable[[CallFunction], Change],
    salt_of: Callable[[str], bytes],
) -> Change:
    """`names` gives the topic that a template of a routing step stands for; the others what is found outside
    of the file (see `outside`).
    """
    match step:
        case DropParts():
            return _in_place(_drop(step))
        case MaskParts():
            return _in_place(_mask(step, salt_of))
        case RenameParts():
            return _in_place(_rename(step))
        case RouteTo(to=template, when=condition):
            return _in_place(
                _route(names(template), None if condition is None else compile_condition(condition))
            )
        case CallFunction():
            return function_of(step)
    assert_never(step)


def _in_place(edit: Edit) -> Change:
    def change(record: RecordAtWork) -> Sequence[RecordAtWork]:
        edit(record)
        return (record,)

    return change


def _route(topic: str, condition: Term | None) -> Edit:
    def edit(record: RecordAtWork) -> None:
        record.settle()
        if condition is None or condition.holds(record):
            record.to = topic

    return edit


def _drop(step: DropParts) -> Edit:
    paths, headers = _paths(step.fields), frozenset(step.headers)

    def edit(record: RecordAtWork) -> None:
        if headers and record.headers:
            record.headers = [header for header in record.headers if header[0] not in headers]
        for place, name in _found(record, paths):
            del place[name]
            record.changed()

    return edit


def _rename(step: RenameParts) -> Edit:
    places: defaultdict[Path, dict[str, str]] = defaultdict(dict)
    for path, new in zip(_paths(step.fields), step.fields.values(), strict=True):
        places[path[:-1]][path[-1]] = new
    deepest_first = sorted(places.items(), key=lambda each: -len(each[0]))
    headers = step.headers

    def edit(record: RecordAtWork) -> None:
        if headers and record.headers:
            record.headers = [(headers.get(name, name), value) for name, value in record.headers]
        for path, names in deepest_first:
            for place in list(_places(record.object(), path)):
                if _rename_keys(place, names):
                    record.changed()

    return edit


def _rename_keys(place: dict[str, Any], names: Mapping[str, str]) -> bool:
    """Rename all at once; whether there was anything to rename. Fields keep their places in the order; one
    that has a new name already, and keeps it, gives way.
    """
    found = {name: new for name, new in names.items() if name in place and name != new}
    if not found:
        return False
    taken = frozenset(found.values())
    entries = [
        (found.get(key, key), value) for key, value in place.items() if key in found or key not in taken
    ]
    place.clear()
    place.update(entries)
    return True


def _mask(step: MaskParts, salt_of: Callable[[str], bytes]) -> Edit:
    paths, headers = _paths(step.fields), frozenset(step.headers)
    cover = _cover_of(step, salt_of)

    def edit(record: RecordAtWork) -> None:
        if step.key and record.key is not None:
            record.key = cover(record.key).encode()
        if headers and record.headers:
            record.headers = [_masked(header, headers, cover) for header in record.headers]
        for place, name in _found(record, paths):
            place[name] = cover(_plain_bytes(place[name]))
            record.changed()

    return edit


def _masked(header: Header, names: frozenset[str], cover: Callable[[bytes], str]) -> Header:
    name, value = header
    return header if name not in names or value is None else (name, cover(value).encode())


def _cover_of(step: MaskParts, salt_of: Callable[[str], bytes]) -> Callable[[bytes], str]:
    if not step.hash:
        return lambda _: step.replacement
    if step.salt is None:
        return lambda plain: hashlib.sha256(plain).hexdigest()
    salt = salt_of(step.salt)
    return lambda plain: hmac.digest(salt, plain, "sha256").hex()


def _plain_bytes(value: Any) -> bytes:
    """What is hashed of a JSON value: text as it is, other values as compact JSON with sorted names."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    return canonical_json(value)


# ---- fields


def _paths(fields: Iterable[str]) -> tuple[Path, ...]:
    return tuple(tuple(field.split(".")) for field in fields)


def _found(record: RecordAtWork, paths: Sequence[Path]) -> Iterator[tuple[dict[str, Any], str]]:
    """Objects and names in them that the paths lead to; a path goes through all elements of lists. To be gone
    through to the end: what was not found, the value does not have afterwards.
    """
    if not paths:
        return
    document = record.object()
    for path in paths:
        for place in list(_places(document, path[:-1])):
            if path[-1] in place:
                yield place, path[-1]
        record.is_without(path[-1])


def _places(value: Any, path: Path) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for element in value:
            yield from _places(element, path)
    elif isinstance(value, dict):
        if not path:
            yield value
        elif path[0] in value:
            yield from _places(value[path[0]], path[1:])

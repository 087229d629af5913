"""Which topics a flow of MirrorMaker 2 takes and what they become, as `topics` of a route. Pure.

Lists of names and expressions match whole names there too. Beside what a file excludes MirrorMaker 2 leaves
out topics of its own and, where it puts the source's name before names, those that have been at the target:
whatever stands before a separator it takes for the name of a cluster. That is written down, but where a flow
names its topics one by one and none of them is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from broker.settings import names, string
from mirrormaker.importing.mirrors import Flow, Settings
from mirrormaker.topology.naming import pattern_problem, template_problem

POLICY, SEPARATOR = "replication.policy.class", "replication.policy.separator"
DEFAULT_POLICY, IDENTITY_POLICY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
SAME_NAME = "{topic}"
EVERYTHING = (".*",)
_EXCLUDED = (r".*[-.]internal", r".*\.replica")
"""Where a file does not say; internal topics (`__.*`) are never taken anyway."""
_ONE_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def read_topics(flow: Flow, aliases: Iterable[str]) -> dict[str, object]:
    """`topics` of the route; `aliases` are the names of all clusters."""
    settings = flow.settings
    separator = _separator(settings)
    name = _template(settings, separator)
    include = read_patterns(settings, "topics")
    if include == ():
        settings.remarks.report(settings.entries["topics"], "names no topics")
    exclude = read_patterns(settings, "topics.exclude", "topics.blacklist")
    taken = tuple(pattern for pattern in include or EVERYTHING if pattern_problem(pattern) is None)
    implied = [
        pattern
        for pattern in (
            *(_EXCLUDED if exclude is None else ()),
            *_own_topics(separator, exclude),
            *(_heartbeats(taken, aliases, separator) if name == SAME_NAME else _cycles(flow, separator)),
        )
        if _may_meet(taken, pattern, separator)
    ]
    left_out = dict.fromkeys((*(exclude or ()), *implied))
    return {"include": list(taken), **({"exclude": list(left_out)} if left_out else {}), "name": name}


def read_patterns(settings: Settings, *names_of_list: str) -> tuple[str, ...] | None:
    """A list of names and expressions, under the first of these names that is given; None where it is not."""
    entry = settings.find(*names_of_list)
    if entry is None:
        return None
    for name in names_of_list:
        if name in settings.entries and settings.entries[name] is not entry:
            settings.note(name, f"is an old name of {names_of_list[0]}, which counts")
    text = settings.text(*names_of_list)
    if text is None:
        return None
    patterns = names().parse(text)
    for pattern in patterns:
        if pattern.count("{") != pattern.count("}"):
            message = f"{pattern!r} is not a regular expression: commas part the list, between braces too"
            settings.remarks.report(entry, message)
        elif problem := pattern_problem(pattern):
            settings.remarks.report(entry, problem)
    return patterns


def _separator(settings: Settings) -> str:
    return settings.read(SEPARATOR, string()) or "."


def _template(settings: Settings, separator: str) -> str:
    policy = (settings.text(POLICY) or DEFAULT_POLICY).rpartition(".")[2]
    if policy == IDENTITY_POLICY:
        return SAME_NAME
    if policy != DEFAULT_POLICY:
        message = f"what topics become is not known here: {DEFAULT_POLICY} and {IDENTITY_POLICY} are"
        settings.remarks.report(settings.entries[POLICY], message)
    template = "{cluster}" + separator.replace("{", "{{").replace("}", "}}") + SAME_NAME
    if problem := template_problem(template):
        settings.remarks.report(settings.entries[SEPARATOR], problem)
    return template


def _own_topics(separator: str, exclude: Iterable[str] | None) -> Iterator[str]:
    """Those that MirrorMaker 2 works with."""
    if exclude is not None or separator not in "-.":
        mark = "[.]" if separator == "." else f"({_literal(separator)}|[.])"
        yield f"(mm2.*|.*{mark}checkpoints){mark}internal"


def _cycles(flow: Flow, separator: str) -> Iterator[str]:
    """What has been at the target."""
    mark = _literal(separator)
    yield f"(.*{mark})?{_literal(flow.target)}{mark}.*"


def _heartbeats(include: Iterable[str], aliases: Iterable[str], separator: str) -> Iterator[str]:
    """Those of MirrorMaker 2, which get the source's name even where others keep theirs."""
    heartbeats = ["heartbeats", *(f"{alias}{separator}heartbeats" for alias in aliases)]
    if any(re.fullmatch(pattern, name) for pattern in include for name in heartbeats):
        yield f"(({'|'.join(map(_literal, aliases))}){_literal(separator)})*heartbeats"


def _literal(text: str) -> str:
    return re.escape(text).replace("\\-", "-")


def _may_meet(include: Iterable[str], pattern: str, separator: str) -> bool:
    """Whether a name that is taken might match; expressions are taken to."""
    return any(
        not _ONE_NAME.fullmatch(each)
        or (separator != "." and "." in each)
        or re.fullmatch(pattern, each) is not None
        for each in include
    )

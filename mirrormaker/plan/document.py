"""A plan as JSON, and a saved one beside a new one. Pure.

The form is stable: `version` changes when a program that reads it has to. `checksum` is over all the rest,
so that a file that was cut off or edited is not taken for a plan. A saved plan may be applied as long as the
world asks for nothing that it does not say: what has been done since, by whoever, does not matter, so one
that was interrupted is simply applied again. Steps say what they found: a topic by its id, a value before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from broker.errors import ConfigurationError
from mirrormaker.plan.plan import Plan
from mirrormaker.plan.render import render_step
from mirrormaker.plan.safety import dangers_of, large_parts
from mirrormaker.plan.steps import (
    AddPartitions,
    AddRules,
    AdoptTopic,
    ChangeRoute,
    ChangeSettings,
    CreateTopic,
    RestartRoute,
    StartRoute,
    Step,
    StopRoute,
)

VERSION = 1
_KINDS: Mapping[type[Any], str] = {
    CreateTopic: "create_topic",
    AddPartitions: "add_partitions",
    ChangeSettings: "change_settings",
    AddRules: "add_rules",
    AdoptTopic: "adopt_topic",
    StartRoute: "start_route",
    ChangeRoute: "change_route",
    RestartRoute: "restart_route",
    StopRoute: "stop_route",
}
_PARTS = ("changes", "rules", "have", "dangers")
"""Of steps: these tell in a later plan what is left to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan as it was read back."""

    digest: str
    clusters: Mapping[str, str | None]
    steps: tuple[Mapping[str, Any], ...]
    dangers: tuple[str, ...]


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as plain data."""
    body: dict[str, Any] = {
        "version": VERSION,
        "topology": {"digest": plan.digest, "generation": plan.generation},
        "clusters": dict(plan.clusters),
        "steps": [step_document(step) for step in plan.steps],
        "large": list(large_parts(plan.steps)),
        "dangers": list(plan.dangers),
        "notices": [
            {
                "kind": notice.kind.value,
                "about": notice.about,
                "message": notice.message,
                "blocks": notice.blocks,
            }
            for notice in plan.notices
        ],
        "routes": [asdict(route) for route in plan.routes],
    }
    return {**body, "checksum": _checksum(body)}


def step_document(step: Step) -> dict[str, Any]:
    """A step as plain data; the same step is always the same."""
    said = {name: _plain(value) for name, value in asdict(step).items()}
    return {"kind": _KINDS[type(step)], **said, "dangers": list(dangers_of(step))}


def read_plan(text: str, shown_as: str) -> SavedPlan:
    """A plan that was written before. Raises ConfigurationError."""
    try:
        body = json.loads(text)
        checksum = body.pop("checksum")
        if body["version"] != VERSION:
            raise ConfigurationError([f"{shown_as}: version {body['version']} of plans is not known here"])
        if checksum != _checksum(body):
            raise ConfigurationError([f"{shown_as}: has been changed since it was written: make a new plan"])
        return SavedPlan(
            digest=body["topology"]["digest"],
            clusters=body["clusters"],
            steps=tuple(body["steps"]),
            dangers=tuple(body["dangers"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError([f"{shown_as}: not a saved plan"]) from error


def differences(saved: SavedPlan, now: Plan) -> list[str]:
    """Why `saved` is not what would be done now, in lines; none where it covers all of it."""
    if saved.digest != now.digest:
        return ["the topology file is another than the one that the plan was made for"]
    lines = [
        f"cluster {name!r} was {saved.clusters.get(name)!r} and is {cluster_id!r}"
        for name, cluster_id in now.clusters.items()
        if saved.clusters.get(name) != cluster_id
    ]
    lines += [f"cluster {name!r} does not answer" for name in saved.clusters if name not in now.clusters]
    known: dict[str, list[Mapping[str, Any]]] = {}
    for step in saved.steps:
        known.setdefault(_identity(step), []).append(step)
    lines += [
        f"this is to be done now, and was not then: {', '.join(line.strip() for line in render_step(step))}"
        for step in now.steps
        for document in [json.loads(json.dumps(step_document(step)))]
        if not any(_covers(then, document) for then in known.get(_identity(document), ()))
    ]
    told = {*saved.dangers, *large_parts(now.steps)}  # of steps that are known there were no fewer
    lines += [f"this was not known then: {danger}" for danger in now.dangers if danger not in told]
    return lines


def _identity(step: Mapping[str, Any]) -> str:
    """What it is, whatever part of it is left to be done."""
    return json.dumps({name: said for name, said in step.items() if name not in _PARTS}, sort_keys=True)


def _covers(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether all of a step was in one of the same identity."""
    return (
        all(then["changes"].get(name) == change for name, change in now.get("changes", {}).items())
        and all(rule in then["rules"] for rule in now.get("rules", ()))
        and then.get("have", 0) <= now.get("have", 0)
        and all(danger in then["dangers"] for danger in now["dangers"])
    )


def _checksum(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value

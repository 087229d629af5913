"""Every setting that a node accepts is read by something, or its documentation says that it has no effect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import broker
from broker.config import SETTINGS
from broker.live_config import DYNAMIC
from broker.server.topic_settings import TOPIC_SETTINGS
from broker.storage.log_config import SETTINGS as LOG_SETTINGS

PACKAGE = Path(broker.__file__).parent


def attributes_read(files: Iterable[Path]) -> set[str]:
    """Names that stand behind a dot in these files."""
    return {name for file in files for name in re.findall(r"\.([a-z_0-9]+)\b", file.read_text())}


def test_every_setting_of_a_node_is_read() -> None:
    read = attributes_read(PACKAGE.rglob("*.py"))
    unread = {name for name, declared in SETTINGS.items() if declared.field_name not in read}
    idle = {name for name, declared in SETTINGS.items() if "No effect" in declared.doc}
    assert unread == idle


def test_every_setting_of_a_topic_is_read_by_logs() -> None:
    """What is merely handed on from a node's settings does not count."""
    handing_on = {"part_configs.py", "topic_settings.py", "config.py"}
    read = attributes_read(file for file in PACKAGE.rglob("*.py") if file.name not in handing_on)
    unread = {name for name, setting in LOG_SETTINGS.items() if setting.field not in read}
    assert unread == {"message.format.version", "unclean.leader.election.enable"}, (
        "the one holds always, the other is read from ZooKeeper by the controller"
    )


def test_what_topics_inherit_can_be_altered_while_nodes_run() -> None:
    inherited = {setting.node_setting for setting in TOPIC_SETTINGS.values()} - {None}
    assert inherited <= DYNAMIC <= set(SETTINGS)


def test_a_topic_has_its_nodes_default_and_the_same_values() -> None:
    for name, setting in TOPIC_SETTINGS.items():
        if setting.node_setting is None:
            continue
        ours, nodes = LOG_SETTINGS[name].kind, SETTINGS[setting.node_setting].kind
        assert ours.type is nodes.type, name

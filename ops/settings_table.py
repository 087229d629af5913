"""The tables of settings in `ops/docs/settings.md`, written out of those that a node and its topics have.

`python -m ops.settings_table` writes them anew; a test fails where the file is not what this would write.
"""

from __future__ import annotations

from pathlib import Path

from broker.config import SETTINGS
from broker.groups.group_configs import GROUP_SETTINGS
from broker.groups.group_configs import KIND as GROUP_KIND
from broker.live_config import DYNAMIC
from broker.server.topic_settings import TOPIC_SETTINGS
from broker.storage.log_config import SETTINGS as LOG_SETTINGS
from ops.markdown_table import table

DOCUMENT = Path(__file__).parent / "docs" / "settings.md"

_INTRODUCTION = """\
# Settings

Names and values are Kafka's, and so are most defaults. A setting that is not listed here is refused: by
`broker start` with file and line, by the APIs that create and alter topics with INVALID_CONFIG. Sizes are
in bytes. An empty default leaves the matter to another setting.

This file is written by `python -m ops.settings_table`.

## Of a node

In a YAML or `.properties` file, or as `-o NAME=VALUE`, which comes last. Those marked as live can be
altered while nodes run (`broker configs alter --entity-type brokers`), for one node or for all; ZooKeeper
keeps them, and they stand before the file.

"""
_TOPICS = """
## Of a topic

Where a topic says nothing, the node's setting holds, in the finest unit that was given.

"""


_GROUPS = """
## Of a group

For groups of the consumer protocol (`broker configs alter --entity-type groups`); their members go by them
from their next heartbeat on. Where a group says nothing, the node's setting holds; what it may be given lies
within the node's `group.consumer.min.*` and `group.consumer.max.*`.

"""


def render() -> str:
    """The whole document."""
    node_rows = [
        (
            f"`{name}`",
            declared.kind.type.name.lower(),
            declared.kind.render(declared.default),
            "yes" if name in DYNAMIC else "",
            declared.doc,
        )
        for name, declared in SETTINGS.items()
    ]
    topic_rows = [
        (
            f"`{name}`",
            LOG_SETTINGS[name].kind.type.name.lower(),
            f"`{setting.node_setting}`" if setting.node_setting else "",
            setting.doc,
        )
        for name, setting in TOPIC_SETTINGS.items()
    ]
    group_rows = [
        (f"`{name}`", GROUP_KIND.type.name.lower(), f"`{setting.node_setting}`", setting.doc)
        for name, setting in GROUP_SETTINGS.items()
    ]
    return (
        _INTRODUCTION
        + table(("Name", "Type", "Default", "Live", "Meaning"), node_rows)
        + _TOPICS
        + table(("Name", "Type", "Node's setting", "Meaning"), topic_rows)
        + _GROUPS
        + table(("Name", "Type", "Node's setting", "Meaning"), group_rows)
    )


if __name__ == "__main__":
    DOCUMENT.write_text(render())

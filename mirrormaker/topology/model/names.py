"""What things in a topology are called, and where local state lives by default."""

from __future__ import annotations

from typing import NewType

ClusterName = NewType("ClusterName", str)
"""What the file calls it."""
ClusterId = NewType("ClusterId", str)
"""What the cluster itself says that it is."""
RouteName = NewType("RouteName", str)
PipelineName = NewType("PipelineName", str)

DEFAULT_TOPIC_TEMPLATE = "{cluster}.{topic}"
LOOPBACK = "127.0.0.1"

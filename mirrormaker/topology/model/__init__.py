"""The topology as data: clusters, links, routes, and where local state lives. Nothing here reads files.

Keys of the file and fields here carry the same names, except `from` and `to`, which are `source` and
`destination`, and where a field's name needs its unit. What a field's docstring says stands in the schema for
editors and in the documentation too.
"""

from mirrormaker.topology.model.clusters import ClusterSpec, EmbeddedSpec, TopicSpec
from mirrormaker.topology.model.copying import (
    BatchSpec,
    Compression,
    CopyMode,
    Delivery,
    Isolation,
    Membership,
)
from mirrormaker.topology.model.links import LinkSpec
from mirrormaker.topology.model.names import (
    DEFAULT_TOPIC_TEMPLATE,
    LOOPBACK,
    ClusterId,
    ClusterName,
    RouteName,
)
from mirrormaker.topology.model.policies import FailurePolicies, FailurePolicy, RecordErrorPolicy
from mirrormaker.topology.model.resources import Objectives, Resources
from mirrormaker.topology.model.routes import RouteSpec
from mirrormaker.topology.model.selection import (
    ExistingTopics,
    PartitionPolicy,
    Start,
    StartAtOffsets,
    StartAtTime,
    StartPosition,
    TopicSelection,
)
from mirrormaker.topology.model.simulation import Outage, SimulatedCluster, SimulatedLink, SimulatedRoute
from mirrormaker.topology.model.steps import (
    AllOf,
    AnyOf,
    CallFunction,
    Condition,
    DropParts,
    FilterAction,
    FilterSpec,
    HeaderTest,
    JsonScalar,
    JsonTest,
    KeyMatches,
    KeyPrefix,
    MaskParts,
    Not,
    RenameParts,
    RouteTo,
    TransformSpec,
    TransformStep,
    Where,
)
from mirrormaker.topology.model.sync import UNCARRIED_SETTINGS, GroupSync, RepairKind, SyncSpec
from mirrormaker.topology.model.topology import Topology
from mirrormaker.topology.model.windows import Day, Window

__all__ = [
    "DEFAULT_TOPIC_TEMPLATE",
    "LOOPBACK",
    "UNCARRIED_SETTINGS",
    "AllOf",
    "AnyOf",
    "BatchSpec",
    "CallFunction",
    "ClusterId",
    "ClusterName",
    "ClusterSpec",
    "Compression",
    "Condition",
    "CopyMode",
    "Day",
    "Delivery",
    "DropParts",
    "EmbeddedSpec",
    "ExistingTopics",
    "FailurePolicies",
    "FailurePolicy",
    "FilterAction",
    "FilterSpec",
    "GroupSync",
    "HeaderTest",
    "Isolation",
    "JsonScalar",
    "JsonTest",
    "KeyMatches",
    "KeyPrefix",
    "LinkSpec",
    "MaskParts",
    "Membership",
    "Not",
    "Objectives",
    "Outage",
    "PartitionPolicy",
    "RecordErrorPolicy",
    "RenameParts",
    "RepairKind",
    "Resources",
    "RouteName",
    "RouteSpec",
    "RouteTo",
    "SimulatedCluster",
    "SimulatedLink",
    "SimulatedRoute",
    "Start",
    "StartAtOffsets",
    "StartAtTime",
    "StartPosition",
    "SyncSpec",
    "TopicSelection",
    "TopicSpec",
    "Topology",
    "TransformSpec",
    "TransformStep",
    "Where",
    "Window",
]

"""Cases of the APIs that describe and administer topics, settings and the cluster."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from broker.errors import ErrorCode
from broker.wire.messages import alter_configs, incremental_alter_configs
from broker.wire.messages.alter_configs import AlterConfigsRequest
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from broker.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from broker.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from broker.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from broker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from broker.wire.messages.list_config_resources import ListConfigResourcesRequest
from broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.conformance.scene import MISSING_ID, MISSING_TOPIC, NONE, TIMEOUT_MS, Scene, until

TOPIC, BROKER = 2, 4
"""Types of resources that have settings."""
DYNAMIC_TOPIC = 1
"""Source of a setting that the topic itself has."""
SET, DELETE, APPEND, SUBTRACT = range(4)
CONTROLLERS = 2

# Metadata


async def _metadata(scene: Scene, version: int, *names: str, **fields: Any) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    response = await scene.ask(MetadataRequest(topics=topics, **fields), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (scene.place.node_id, *scene.place.address)
    assert response.controller_id == (scene.place.node_id if version >= 1 else -1)
    assert response.cluster_id == (scene.place.cluster_id if version >= 2 else None)
    return response


def _is_shelf(scene: Scene, version: int, topic: MetadataResponseTopic) -> bool:
    (partition,) = topic.partitions
    node_id = scene.place.node_id
    assert (topic.error_code, partition.error_code, partition.partition_index) == (NONE, NONE, 0)
    assert (partition.leader_id, tuple(partition.replica_nodes)) == (node_id, (node_id,))
    assert (tuple(partition.isr_nodes), tuple(partition.offline_replicas)) == ((node_id,), ())
    assert partition.leader_epoch == (0 if version >= 7 else -1)
    if version >= 10:
        assert topic.topic_id == scene.place.shelf_id
    return topic.name == scene.place.shelf


async def metadata_describes_a_topic(scene: Scene, version: int) -> None:
    (topic,) = (await _metadata(scene, version, scene.place.shelf)).topics
    assert _is_shelf(scene, version, topic)


async def metadata_describes_a_topic_by_id(scene: Scene, version: int) -> None:
    known = MetadataRequestTopic(name=None, topic_id=scene.place.shelf_id)
    unknown = MetadataRequestTopic(name=None, topic_id=MISSING_ID)
    response = await scene.ask(MetadataRequest(topics=[known, unknown]), version)
    if version < 12:  # whose answers cannot leave out the name
        assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_REQUEST}
        return
    by_code = {topic.error_code: topic for topic in response.topics}
    assert _is_shelf(scene, version, by_code[NONE])
    assert by_code[ErrorCode.UNKNOWN_TOPIC_ID].topic_id == MISSING_ID


async def metadata_looks_at_no_name_beside_an_id(scene: Scene, version: int) -> None:
    known = MetadataRequestTopic(name="", topic_id=scene.place.shelf_id)  # as Java's admin client asks
    unknown = MetadataRequestTopic(name="", topic_id=MISSING_ID)
    response = await scene.ask(MetadataRequest(topics=[known, unknown]), version)
    by_code = {topic.error_code: topic for topic in response.topics}
    assert _is_shelf(scene, version, by_code[NONE])
    assert by_code[ErrorCode.UNKNOWN_TOPIC_ID].topic_id == MISSING_ID
    assert by_code[ErrorCode.UNKNOWN_TOPIC_ID].name is None


async def describe_topic_partitions_describes_a_topic(scene: Scene, version: int) -> None:
    wanted = [TopicRequest(name=name) for name in sorted((scene.place.shelf, "missing"))]
    response = await scene.ask(DescribeTopicPartitionsRequest(topics=wanted), version)
    topics = {topic.name: topic for topic in response.topics}
    shelf = topics[scene.place.shelf]
    (partition,) = shelf.partitions
    assert (shelf.error_code, shelf.topic_id, partition.leader_id) == (
        NONE,
        scene.place.shelf_id,
        scene.place.node_id,
    )
    assert topics["missing"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.next_cursor is None


async def metadata_describes_all_topics(scene: Scene, version: int) -> None:
    topics = [] if version == 0 else None
    response = await scene.ask(MetadataRequest(topics=topics), version)
    (shelf,) = (topic for topic in response.topics if topic.name == scene.place.shelf)
    assert _is_shelf(scene, version, shelf)


async def metadata_of_no_topics_describes_none(scene: Scene, version: int) -> None:
    assert (await _metadata(scene, version)).topics == []


async def metadata_of_a_missing_topic_is_an_error(scene: Scene, version: int) -> None:
    response = await _metadata(scene, version, MISSING_TOPIC, allow_auto_topic_creation=False)
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, MISSING_TOPIC)


async def metadata_of_an_impossible_name_is_an_error(scene: Scene, version: int) -> None:
    (topic,) = (await _metadata(scene, version, "not a name")).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def metadata_creates_a_missing_topic(scene: Scene, version: int) -> None:
    name = f"topic-{uuid4().hex}"
    passing = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    described = await until(
        lambda: _metadata(scene, version, name), lambda answer: answer.topics[0].error_code not in passing
    )
    (topic,) = described.topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (NONE, name, 1)


# CreateTopics


async def _create(
    scene: Scene, version: int, topic: CreatableTopic, *, validate_only: bool = False
) -> CreatableTopicResult:
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    (result,) = (await scene.ask(request, version)).topics
    assert result.name == topic.name
    return result


def _topic(name: str = "", partitions: int = 2, replication_factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(
        name=name or f"topic-{uuid4().hex}",
        num_partitions=partitions,
        replication_factor=replication_factor,
        **fields,
    )


async def create_topics_creates(scene: Scene, version: int) -> None:
    asked = _topic(configs=[CreatableTopicConfig(name="retention.ms", value="12345")])
    result = await _create(scene, version, asked)
    assert (result.error_code, result.error_message) == (NONE, None if version >= 1 else "")
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        settings = {setting.name: setting.value for setting in result.configs or ()}
        assert settings["retention.ms"] == "12345"
        assert "segment.bytes" in settings
    if version >= 7:
        assert result.topic_id == await scene.topic_id(asked.name)
    (topic,) = (await _metadata(scene, 1, asked.name)).topics
    assert len(topic.partitions) == 2


async def create_topics_places_replicas_as_told(scene: Scene, version: int) -> None:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[scene.place.node_id])
        for index in range(3)
    ]
    asked = _topic(partitions=-1, replication_factor=-1, assignments=assignments)
    assert (await _create(scene, version, asked)).error_code == NONE
    (topic,) = (await _metadata(scene, 1, asked.name)).topics
    assert len(topic.partitions) == 3


async def create_topics_takes_the_defaults(scene: Scene, version: int) -> None:
    asked = _topic(partitions=-1, replication_factor=-1)
    assert (await _create(scene, version, asked)).error_code == NONE
    (topic,) = (await _metadata(scene, 1, asked.name)).topics
    assert len(topic.partitions) == 1


async def create_topics_validates_only(scene: Scene, version: int) -> None:
    asked = _topic()
    assert (await _create(scene, version, asked, validate_only=True)).error_code == NONE
    await metadata_of_a_missing_topic(scene, asked.name)


async def metadata_of_a_missing_topic(scene: Scene, name: str) -> None:
    """That there is no such topic."""
    (topic,) = (await _metadata(scene, 4, name, allow_auto_topic_creation=False)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def create_topics_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    bad_setting = CreatableTopicConfig(name="no.such.setting", value="1")
    bad_value = CreatableTopicConfig(name="retention.ms", value="long")
    for asked, code in (
        (_topic(scene.place.shelf), ErrorCode.TOPIC_ALREADY_EXISTS),
        (_topic("not a name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (_topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (_topic(replication_factor=5), ErrorCode.INVALID_REPLICATION_FACTOR),
        (_topic(configs=[bad_setting]), ErrorCode.INVALID_CONFIG),
        (_topic(configs=[bad_value]), ErrorCode.INVALID_CONFIG),
    ):
        result = await _create(scene, version, asked)
        assert result.error_code == code
        assert bool(result.error_message) == (version >= 1)


# DeleteTopics


async def delete_topics_deletes_by_name(scene: Scene, version: int) -> None:
    name = await scene.new_topic()
    topics = [DeleteTopicState(name=name)] if version >= 6 else []
    names = [] if version >= 6 else [name]
    request = DeleteTopicsRequest(topics=topics, topic_names=names, timeout_ms=TIMEOUT_MS)
    (result,) = (await scene.ask(request, version)).responses
    assert (result.name, result.error_code) == (name, NONE)
    await metadata_of_a_missing_topic(scene, name)


async def delete_topics_deletes_by_id(scene: Scene, version: int) -> None:
    name = await scene.new_topic()
    asked = DeleteTopicState(topic_id=await scene.topic_id(name))
    request = DeleteTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
    (result,) = (await scene.ask(request, version)).responses
    assert (result.name, result.topic_id, result.error_code) == (name, asked.topic_id, NONE)
    await metadata_of_a_missing_topic(scene, name)


async def delete_topics_refuses_an_unknown_id(scene: Scene, version: int) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=MISSING_ID)], timeout_ms=TIMEOUT_MS)
    (result,) = (await scene.ask(request, version)).responses
    assert (result.name, result.topic_id) == (None, MISSING_ID)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def delete_topics_refuses_an_unknown_name(scene: Scene, version: int) -> None:
    topics = [DeleteTopicState(name=MISSING_TOPIC)] if version >= 6 else []
    names = [] if version >= 6 else [MISSING_TOPIC]
    request = DeleteTopicsRequest(topics=topics, topic_names=names, timeout_ms=TIMEOUT_MS)
    (result,) = (await scene.ask(request, version)).responses
    assert (result.name, result.error_code) == (MISSING_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# CreatePartitions


async def _grow(
    scene: Scene, version: int, topic: CreatePartitionsTopic, *, validate_only: bool = False
) -> int:
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    (result,) = (await scene.ask(request, version)).results
    assert result.name == topic.name
    return result.error_code


async def create_partitions_grows_a_topic(scene: Scene, version: int) -> None:
    name = await scene.new_topic()
    wish = CreatePartitionsTopic(name=name, count=3, assignments=None)
    assert await _grow(scene, version, wish, validate_only=True) == NONE
    assert len((await _metadata(scene, 1, name)).topics[0].partitions) == 1
    assert await _grow(scene, version, wish) == NONE
    assignments = [CreatePartitionsAssignment(broker_ids=[scene.place.node_id])]
    wish = CreatePartitionsTopic(name=name, count=4, assignments=assignments)
    assert await _grow(scene, version, wish) == NONE
    assert len((await _metadata(scene, 1, name)).topics[0].partitions) == 4


async def create_partitions_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    unplaceable = [CreatePartitionsAssignment(broker_ids=[999])]
    shelf = scene.place.shelf
    for asked, code in (
        (CreatePartitionsTopic(name=shelf, count=1, assignments=None), ErrorCode.INVALID_PARTITIONS),
        (
            CreatePartitionsTopic(name=MISSING_TOPIC, count=2, assignments=None),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            CreatePartitionsTopic(name=shelf, count=2, assignments=unplaceable),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ):
        assert await _grow(scene, version, asked) == code
        assert await _grow(scene, version, asked, validate_only=True) == code


# DescribeConfigs


async def _describe_configs(
    scene: Scene, version: int, resource: DescribeConfigsResource, **fields: Any
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(resources=[resource], **fields)
    (result,) = (await scene.ask(request, version)).results
    assert (result.resource_type, result.resource_name) == (resource.resource_type, resource.resource_name)
    return result


async def describe_configs_describes_a_topic(scene: Scene, version: int) -> None:
    name = await scene.new_topic(settings={"retention.ms": "12345"})
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
    fields = {"include_synonyms": version >= 1, "include_documentation": version >= 3}
    result = await _describe_configs(scene, version, asked, **fields)
    assert result.error_code == NONE
    settings = {setting.name: setting for setting in result.configs}
    retention, segment = settings["retention.ms"], settings["segment.bytes"]
    assert (retention.value, retention.read_only, retention.is_sensitive) == ("12345", False, False)
    if version == 0:
        assert not retention.is_default
    else:
        assert retention.config_source == DYNAMIC_TOPIC != segment.config_source
        assert [synonym.name for synonym in retention.synonyms][:1] == ["retention.ms"]
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation


async def describe_configs_describes_what_is_asked_for(scene: Scene, version: int) -> None:
    asked = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=scene.place.shelf, configuration_keys=["cleanup.policy"]
    )
    result = await _describe_configs(scene, version, asked)
    (setting,) = result.configs
    assert (setting.name, setting.value, setting.synonyms) == ("cleanup.policy", "delete", [])


async def describe_configs_describes_the_node(scene: Scene, version: int) -> None:
    node = str(scene.place.node_id)
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=node, configuration_keys=None)
    fields = {"include_synonyms": version >= 1, "include_documentation": version >= 3}
    result = await _describe_configs(scene, version, asked, **fields)
    settings = {setting.name: setting for setting in result.configs}
    assert settings["broker.id"].value == node
    assert settings["broker.id"].read_only


async def list_config_resources_lists_by_type(scene: Scene, version: int) -> None:
    async def listed(*types: int) -> set[tuple[int, str]]:
        response = await scene.ask(ListConfigResourcesRequest(resource_types=types), version)
        assert response.error_code == NONE
        return {(each.resource_type, each.resource_name) for each in response.config_resources}

    node, shelf = (BROKER, str(scene.place.node_id)), (TOPIC, scene.place.shelf)
    if version == 0:  # of the metrics of clients, of which there are none
        assert await listed() == set()
        return
    assert {node, shelf} <= await listed()
    assert await listed(BROKER) == {node}
    assert {kind for kind, _ in await listed(TOPIC)} == {TOPIC}
    assert await listed(16) == set()


async def list_config_resources_refuses_unknown_types(scene: Scene, version: int) -> None:
    response = await scene.ask(ListConfigResourcesRequest(resource_types=[99]), version)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def describe_configs_of_the_unknown_is_refused(scene: Scene, version: int) -> None:
    for kind, name, code in (
        (TOPIC, MISSING_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "999", ErrorCode.INVALID_REQUEST),
    ):
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        result = await _describe_configs(scene, version, asked)
        assert (result.error_code, result.configs) == (code, [])


# AlterConfigs and IncrementalAlterConfigs


async def _setting(scene: Scene, topic: str, name: str) -> str | None:
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[name])
    (setting,) = (await _describe_configs(scene, 1, asked)).configs
    return setting.value


async def _alter(
    scene: Scene, version: int, topic: str, settings: dict[str, str], *, validate_only: bool = False
) -> int:
    configs = [alter_configs.AlterableConfig(name=name, value=value) for name, value in settings.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await scene.ask(request, version)).responses
    assert (result.resource_type, result.resource_name) == (TOPIC, topic)
    return result.error_code


async def alter_configs_replaces_all_settings(scene: Scene, version: int) -> None:
    topic = await scene.new_topic(settings={"segment.ms": "77777"})
    assert await _alter(scene, version, topic, {"retention.ms": "5"}, validate_only=True) == NONE
    assert await _setting(scene, topic, "segment.ms") == "77777"
    assert await _alter(scene, version, topic, {"retention.ms": "1234567"}) == NONE
    await until(lambda: _setting(scene, topic, "retention.ms"), lambda value: value == "1234567")
    assert await _setting(scene, topic, "segment.ms") != "77777"


async def alter_configs_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    shelf, good, bad = scene.place.shelf, {"retention.ms": "1"}, {"retention.ms": "long"}
    assert await _alter(scene, version, MISSING_TOPIC, good) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await _alter(scene, version, shelf, bad) == ErrorCode.INVALID_CONFIG
    assert await _alter(scene, version, shelf, {"no.such.setting": "1"}) == ErrorCode.INVALID_CONFIG


async def _change(
    scene: Scene, version: int, topic: str, name: str, operation: int, value: str | None
) -> int:
    change = incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[change]
    )
    (result,) = (await scene.ask(IncrementalAlterConfigsRequest(resources=[resource]), version)).responses
    assert (result.resource_type, result.resource_name) == (TOPIC, topic)
    return result.error_code


async def incremental_alter_configs_changes_one_setting(scene: Scene, version: int) -> None:
    topic = await scene.new_topic(settings={"segment.ms": "77777"})
    for name, operation, value, expected in (
        ("retention.ms", SET, "1234567", "1234567"),
        ("cleanup.policy", APPEND, "compact", "compact,delete"),
        ("cleanup.policy", SUBTRACT, "delete", "compact"),
        ("cleanup.policy", DELETE, None, "delete"),
    ):
        assert await _change(scene, version, topic, name, operation, value) == NONE
        await until(
            lambda name=name: _setting(scene, topic, name),
            lambda value, expected=expected: _sorted_words(value) == expected,
        )
    assert await _setting(scene, topic, "segment.ms") == "77777"


def _sorted_words(value: str | None) -> str:
    return ",".join(sorted((value or "").split(",")))


async def incremental_alter_configs_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    for topic, name, operation, value, code in (
        (MISSING_TOPIC, "retention.ms", SET, "1", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (scene.place.shelf, "retention.ms", SET, "long", ErrorCode.INVALID_CONFIG),
        (scene.place.shelf, "no.such.setting", SET, "1", ErrorCode.INVALID_CONFIG),
        (scene.place.shelf, "retention.ms", APPEND, "1", ErrorCode.INVALID_CONFIG),
    ):
        assert await _change(scene, version, topic, name, operation, value) == code


# DescribeLogDirs


async def describe_log_dirs_tells_the_size_of_logs(scene: Scene, version: int) -> None:
    asked = DescribableLogDirTopic(topic=scene.place.shelf, partitions=[0])
    response = await scene.ask(DescribeLogDirsRequest(topics=[asked]), version)
    (root,) = response.results
    assert (response.error_code, root.error_code) == (NONE, NONE)
    assert root.log_dir.startswith("/")
    (topic,) = root.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == (scene.place.shelf, 0)
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    assert partition.partition_size > 60
    assert (root.total_bytes > root.usable_bytes > 0) == (version >= 4)


async def describe_log_dirs_describes_all(scene: Scene, version: int) -> None:
    (root,) = (await scene.ask(DescribeLogDirsRequest(topics=None), version)).results
    assert scene.place.shelf in {topic.name for topic in root.topics}


async def describe_log_dirs_of_an_unknown_topic_is_empty(scene: Scene, version: int) -> None:
    asked = DescribableLogDirTopic(topic=MISSING_TOPIC, partitions=[0])
    (root,) = (await scene.ask(DescribeLogDirsRequest(topics=[asked]), version)).results
    assert (root.error_code, root.topics) == (NONE, [])


async def alter_replica_log_dirs_refuses_roots_that_are_not_there(scene: Scene, version: int) -> None:
    topics = [AlterReplicaLogDirTopic(name=scene.place.shelf, partitions=[0])]
    directory = AlterReplicaLogDir(path="/no/such/root", topics=topics)
    response = await scene.ask(AlterReplicaLogDirsRequest(dirs=[directory]), version)
    (topic,) = response.results
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index) == (scene.place.shelf, 0)
    assert partition.error_code == ErrorCode.LOG_DIR_NOT_FOUND


async def alter_replica_log_dirs_is_content_where_a_log_is(scene: Scene, version: int) -> None:
    (root,) = (await scene.ask(DescribeLogDirsRequest(topics=[]))).results
    topics = [AlterReplicaLogDirTopic(name=scene.place.shelf, partitions=[0])]
    directory = AlterReplicaLogDir(path=root.log_dir, topics=topics)
    response = await scene.ask(AlterReplicaLogDirsRequest(dirs=[directory]), version)
    assert response.results[0].partitions[0].error_code == NONE


# ElectLeaders


async def elect_leaders_tells_where_none_is_needed(scene: Scene, version: int) -> None:
    asked = [TopicPartitions(topic=scene.place.shelf, partitions=[0])]
    response = await scene.ask(ElectLeadersRequest(topic_partitions=asked, timeout_ms=TIMEOUT_MS), version)
    assert response.error_code == NONE
    (topic,) = response.replica_election_results
    (partition,) = topic.partition_result
    assert (topic.topic, partition.partition_id) == (scene.place.shelf, 0)
    assert partition.error_code == ErrorCode.ELECTION_NOT_NEEDED


async def elect_leaders_elects_everywhere(scene: Scene, version: int) -> None:
    response = await scene.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS), version)
    assert (response.error_code, response.replica_election_results) == (NONE, [])


async def elect_leaders_of_an_unknown_topic_is_refused(scene: Scene, version: int) -> None:
    asked = [TopicPartitions(topic=MISSING_TOPIC, partitions=[0])]
    response = await scene.ask(ElectLeadersRequest(topic_partitions=asked, timeout_ms=TIMEOUT_MS), version)
    (topic,) = response.replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# AlterPartitionReassignments and ListPartitionReassignments


async def _reassign(
    scene: Scene, version: int, topic: str, replicas: list[int] | None
) -> ReassignablePartitionResponse:
    partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=partitions)]
    )
    response = await scene.ask(request, version)
    assert response.error_code == NONE
    ((answer,),) = [topic.partitions for topic in response.responses]
    assert answer.partition_index == 0
    return answer


async def alter_partition_reassignments_to_where_it_is_ends_at_once(scene: Scene, version: int) -> None:
    answer = await _reassign(scene, version, scene.place.shelf, [scene.place.node_id])
    assert (answer.error_code, answer.error_message) == (NONE, None)
    listing = await scene.ask(ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS), 0)
    assert listing.topics == []


async def alter_partition_reassignments_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    for topic, replicas, code in (
        (scene.place.shelf, [99], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (scene.place.shelf, [scene.place.node_id] * 2, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (scene.place.shelf, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (scene.place.shelf, [-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MISSING_TOPIC, [scene.place.node_id], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert (await _reassign(scene, version, topic, replicas)).error_code == code


async def alter_partition_reassignments_cancels_only_what_is_under_way(scene: Scene, version: int) -> None:
    answer = await _reassign(scene, version, scene.place.shelf, None)
    assert answer.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def list_partition_reassignments_is_empty_where_nothing_moves(scene: Scene, version: int) -> None:
    asked = [ListPartitionReassignmentsTopics(name=scene.place.shelf, partition_indexes=[0])]
    for topics in (None, asked):
        request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)
        response = await scene.ask(request, version)
        assert (response.error_code, response.topics) == (NONE, [])


# DescribeCluster and ApiVersions


async def describe_cluster_lists_the_brokers(scene: Scene, version: int) -> None:
    response = await scene.ask(DescribeClusterRequest(), version)
    place = scene.place
    assert (response.error_code, response.cluster_id) == (NONE, place.cluster_id)
    assert (response.controller_id, response.endpoint_type) == (place.node_id, 1)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (place.node_id, *place.address)


async def describe_cluster_has_no_controller_endpoints(scene: Scene, version: int) -> None:
    response = await scene.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), version)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def api_versions_lists_what_is_served(scene: Scene, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
    response = await scene.ask(request, version)
    assert response.error_code == NONE
    served = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert served[ApiVersionsRequest.api_key] == (0, ApiVersionsRequest.max_version)
    assert len(served) == len(response.api_keys) > 30


async def api_versions_refuses_software_that_is_no_name(scene: Scene, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a b", client_software_version="")
    assert (await scene.ask(request, version)).error_code == ErrorCode.INVALID_REQUEST

"""Errors that callers catch, and the one table of wire error codes.

Three families: the peer broke a rule (answered with a code, or the connection is closed), the world failed
(retried, or the log directory goes offline), and our own bugs (assertions). This module holds the first two.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """A wire error code, whether a client may retry, and its meaning. Source: the Kafka protocol."""

    retriable: bool
    meaning: str

    def __new__(cls, code: int, retriable: bool, meaning: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "the server met an error it has no code for"
    NONE = 0, False, "success"
    OFFSET_OUT_OF_RANGE = 1, False, "the offset is not within the range kept for the partition"
    CORRUPT_MESSAGE = (
        2,
        True,
        "the records failed their checksum or are otherwise malformed",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "this server does not host the topic or partition"
    INVALID_FETCH_SIZE = 4, False, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, True, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, True, "this server is not the leader or a replica of the partition"
    REQUEST_TIMED_OUT = 7, True, "the request timed out"
    BROKER_NOT_AVAILABLE = 8, False, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, False, "the record batch is larger than the server accepts"
    STALE_CONTROLLER_EPOCH = 11, False, "the controller moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the metadata of the committed offset is too large"
    NETWORK_EXCEPTION = 13, True, "the server disconnected before it answered"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "the coordinator is loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, True, "the coordinator is not available"
    NOT_COORDINATOR = 16, True, "this server is not the coordinator"
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "the topic name is invalid, or not allowed in this operation",
    )
    RECORD_LIST_TOO_LARGE = 18, False, "the request holds a batch larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, True, "fewer in-sync replicas than min.insync.replicas"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "written, but to fewer in-sync replicas than required",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks is not one of 0, 1 and -1"
    ILLEGAL_GENERATION = 22, False, "the generation of the group is not the current one"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member's protocols do not match those of the group"
    INVALID_GROUP_ID = 24, False, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, False, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, False, "the session timeout is outside the allowed range"
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing, rejoin"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the committed offset is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not allowed on the cluster"
    INVALID_TIMESTAMP = 32, False, "a timestamp is out of the accepted range"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "the SASL mechanism is not supported"
    ILLEGAL_SASL_STATE = 34, False, "the request does not fit the SASL state"
    UNSUPPORTED_VERSION = 35, False, "the version of the API is not supported"
    TOPIC_ALREADY_EXISTS = 36, False, "a topic of this name exists"
    INVALID_PARTITIONS = 37, False, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, False, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment is invalid"
    INVALID_CONFIG = 40, False, "the configuration is invalid"
    NOT_CONTROLLER = 41, True, "this server is not the controller"
    INVALID_REQUEST = 42, False, "the request is malformed or its fields contradict each other"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the message format of the log does not support the request"
    POLICY_VIOLATION = 44, False, "the request violates a policy of this cluster"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "the sequence number is not the next one of its producer"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "the sequence number was seen before"
    INVALID_PRODUCER_EPOCH = 47, False, "the producer's epoch is old"
    INVALID_TXN_STATE = 48, False, "the transaction is in a state that does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the transactional id belongs to another producer id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction timeout exceeds the server's maximum"
    CONCURRENT_TRANSACTIONS = 51, True, "another operation of the same transaction is under way"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "a newer coordinator of the transaction exists"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not allowed on this transactional id"
    SECURITY_DISABLED = 54, False, "security features are disabled"
    OPERATION_NOT_ATTEMPTED = 55, False, "an earlier failure in the same request kept the broker from trying"
    KAFKA_STORAGE_ERROR = 56, True, "the log directory of the partition failed, or is full"
    LOG_DIR_NOT_FOUND = 57, False, "the log directory is not configured"
    SASL_AUTHENTICATION_FAILED = 58, False, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, False, "the producer's state is not known here"
    REASSIGNMENT_IN_PROGRESS = 60, False, "the partitions are being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "the delegation token is not known"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "the principal does not own the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "token requests are not allowed on this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "the principal type is not supported"
    NON_EMPTY_GROUP = 68, False, "the group has members"
    GROUP_ID_NOT_FOUND = 69, False, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "the fetch session is not known"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "the fetch session's epoch is not the next one"
    LISTENER_NOT_FOUND = 72, True, "no listener of the leader matches the one asked on"
    TOPIC_DELETION_DISABLED = 73, False, "topic deletion is disabled"
    FENCED_LEADER_EPOCH = 74, True, "the leader epoch of the request is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, True, "the leader epoch of the request is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "the client does not support the codec of the records"
    STALE_BROKER_EPOCH = 77, False, "the broker epoch is old"
    OFFSET_NOT_AVAILABLE = 78, True, "the leader's high watermark has not caught up after its election"
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id of this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group is full"
    FENCED_INSTANCE_ID = 82, False, "another member registered with the same group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, True, "the leader is already the one asked for"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "no reassignment is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group is subscribed to the topic"
    INVALID_RECORD = 87, False, "a record failed validation"
    UNSTABLE_OFFSET_COMMIT = 88, True, "offsets of an open transaction are pending"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "the quota was exceeded"
    PRODUCER_FENCED = 90, False, "a newer producer with the same transactional id exists"
    RESOURCE_NOT_FOUND = 91, False, "the resource does not exist"
    DUPLICATE_RESOURCE = 92, False, "the resource exists already"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, False, "the voter set is inconsistent"
    INVALID_UPDATE_VERSION = 95, False, "the update version is invalid"
    FEATURE_UPDATE_FAILED = 96, False, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "the forwarded principal could not be read"
    SNAPSHOT_NOT_FOUND = 98, False, "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, False, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "this server does not know the topic id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "the broker id is in use"
    BROKER_ID_NOT_REGISTERED = 102, False, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, True, "the topic id does not match the log's"
    INCONSISTENT_CLUSTER_ID = 104, False, "the cluster id does not match"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "the fetch session met inconsistent topic ids"
    INELIGIBLE_REPLICA = 107, False, "the replica may not join the ISR"
    NEW_LEADER_ELECTED = 108, False, "the leader changed while the partition was altered"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, False, "the member epoch is fenced, rejoin"
    UNRELEASED_INSTANCE_ID = 111, False, "the group.instance.id is still in use"
    UNSUPPORTED_ASSIGNOR = 112, False, "the assignor is not supported"
    STALE_MEMBER_EPOCH = 113, False, "the member epoch is stale, retry with the new one"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "the request was sent to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "the endpoint type is not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "the controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription is not known"
    TELEMETRY_TOO_LARGE = 118, False, "the telemetry exceeds the limit"
    INVALID_REGISTRATION = 119, False, "the registration is invalid"
    TRANSACTION_ABORTABLE = 120, False, "the transaction must be aborted"
    INVALID_RECORD_STATE = 121, False, "the record is in a state that does not allow this"
    SHARE_SESSION_NOT_FOUND = 122, True, "the share session is not known"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "the share session's epoch is not the next one"
    FENCED_STATE_EPOCH = 124, False, "the share-group state epoch is fenced"
    INVALID_VOTER_KEY = 125, False, "the voter key does not match"
    DUPLICATE_VOTER = 126, False, "the voter exists already"
    VOTER_NOT_FOUND = 127, False, "the voter does not exist"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, False, "the client must begin with its bootstrap servers again"

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member for a code off the wire; codes newer than this table read as UNKNOWN_SERVER_ERROR."""
        member = cls._value2member_map_.get(code)
        return member if isinstance(member, ErrorCode) else cls.UNKNOWN_SERVER_ERROR


def code_for_old_clients(code: ErrorCode, version: int, *, known_from: int) -> ErrorCode:
    """KAFKA_STORAGE_ERROR as clients read it that are older than the code: look for another leader."""
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < known_from:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code


class BrokerError(Exception):
    """Root of every error that this package raises on purpose."""


class ProtocolError(BrokerError):
    """A wire rule was broken, by us, by a peer, or by stored data; carries the code to answer with."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message or code.meaning}")
        self.code = code
        self.message = message or code.meaning


class WireError(BrokerError):
    """Bytes are not the message they claim to be: torn, over a bound, or of an unknown layout."""


class CorruptRecordsError(ProtocolError):
    """Records fail their checksum or their structure contradicts itself."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class ExpansionError(CorruptRecordsError):
    """Compressed records unpack to more than is allowed."""


class ConfigurationError(BrokerError):
    """Settings are wrong; every problem is listed, each with its file, line and path where known."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StorageError(BrokerError):
    """A file or data directory is not usable as it is."""


class DiskFailedError(StorageError):
    """A disk does not do what it must: what it lost is unknown, so its log directory goes offline."""


class MissingFileError(StorageError):
    """A file or directory is not there, perhaps no longer: somebody else may have removed it meanwhile."""


class DiskFullError(StorageError):
    """No room is left; whatever was half written is cut back, and the disk is good."""


class ConnectionFailedError(BrokerError):
    """A peer cannot be reached, or the connection was lost before the answer came."""


class RequestTimedOutError(BrokerError):
    """No answer within the time allowed; whether the request took effect is unknown."""


class AuthenticationError(BrokerError):
    """A peer and this side do not accept each other: a password, a token, a certificate, or no mechanism that
    both know. Another attempt with the same credentials ends in the same way.
    """


class BufferFullError(BrokerError):
    """A producer has no room for a record, and is set to drop what does not fit."""


class CoordinationError(BrokerError):
    """ZooKeeper could not be reached or refused an operation."""


def first_failure(failure: BaseException) -> BaseException:
    """The first single failure inside exception groups."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure

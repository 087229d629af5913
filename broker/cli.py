"""The `broker` command: nodes, and what there is to do with a cluster.

Data goes to stdout, logs and errors to stderr. Exit codes: 0 done, 1 failed with one readable message, 2
wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from broker import (
    admin_commands,
    archive_commands,
    config_commands,
    group_commands,
    import_commands,
    inspection_commands,
    perf_commands,
    placement_commands,
    quota_commands,
    record_commands,
    topic_descriptions,
    transaction_commands,
)
from broker.admin_commands import DEFAULT_BOOTSTRAP
from broker.clock import SystemClock
from broker.config_loading import load_config
from broker.coordination.zookeeper import ZooKeeper
from broker.descriptor_limit import claim_descriptors
from broker.errors import BrokerError
from broker.group_access import add_zookeeper_option
from broker.records.batch import Codec
from broker.storage.disk import SystemDisk
from broker.telemetry import configure_logging
from broker.types import HostPort
from broker.zookeeper_server import exec_zookeeper

Command: TypeAlias = Callable[[argparse.Namespace], Coroutine[Any, Any, None]]

_LOG_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    configure_logging(options.log_level)
    code = 0
    try:
        options.run(options)
    except* BrokerError as errors:
        for error in _leaves(errors):
            print(f"broker: {error}", file=sys.stderr)
        code = 1
    except* KeyboardInterrupt:
        code = 130
    except* BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    return code


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="broker", description="A broker node that speaks the Kafka protocol."
    )
    parser.add_argument("--version", action="version", version=f"broker {version('mirrormaker')}")
    parser.set_defaults(log_level="warning")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_node_commands(commands)
    _add_topics(commands)
    _add_groups(commands)
    _add_configs(commands)
    _add_quotas(commands)
    _add_transactions(commands)
    _add_records(commands)
    _add_perf(commands)
    inspection_commands.add_commands(commands)
    loading = "load a directory of Kafka 0.7 or MetaQ into a topic"
    import_commands.add_options(
        _client_command(commands, "import", import_commands.import_directory, loading)
    )
    archive_commands.add_commands(commands)
    restoring = "load archived records into a topic, or put archived segments back into a data root"
    archive_commands.add_restore_options(
        _client_command(commands, "restore", archive_commands.restore, restoring)
    )
    return parser


def _add_node_commands(commands: Any) -> None:
    start = commands.add_parser("start", help="run one node in the foreground; SIGTERM stops it cleanly")
    start.add_argument("config", type=Path, metavar="CONFIG", help="settings, as .yaml or .properties")
    start.add_argument(
        "-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="override one setting"
    )
    start.add_argument(
        "--http",
        type=_address,
        metavar="HOST:PORT",
        help="serve /metrics and /health there",
    )
    start.add_argument("--log-level", choices=_LOG_LEVELS, default="info")
    start.set_defaults(run=_start)
    nameserver = commands.add_parser(
        "nameserver",
        help="tell clients where brokers and leaders are, out of ZooKeeper; SIGTERM stops it cleanly",
        description="Answers ApiVersions, Metadata, DescribeCluster and FindCoordinator out of ZooKeeper. Any"
        " number may run side by side.",
    )
    nameserver.add_argument(
        "--zookeeper", required=True, metavar="HOST:PORT[,HOST:PORT][/CHROOT]", help="as the brokers have it"
    )
    nameserver.add_argument(
        "--listen",
        type=_address,
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"default: {DEFAULT_BOOTSTRAP}",
    )
    nameserver.add_argument(
        "--listener-name",
        default="PLAINTEXT",
        metavar="NAME",
        help="clients are told the brokers' addresses on their listener of this name (default: PLAINTEXT)",
    )
    nameserver.add_argument(
        "--session-timeout-ms", type=_positive, default=18_000, metavar="MS", help="default: 18000"
    )
    nameserver.add_argument("--log-level", choices=_LOG_LEVELS, default="info")
    nameserver.set_defaults(run=_nameserver)
    zookeeper = commands.add_parser("zookeeper", help="become a ZooKeeper server on 127.0.0.1 (needs Java)")
    zookeeper.add_argument("--port", type=int, required=True)
    zookeeper.add_argument("--data", type=Path, required=True, metavar="DIR", help="where it keeps its data")
    zookeeper.set_defaults(run=_zookeeper)


def _add_topics(commands: Any) -> None:
    topics = commands.add_parser("topics", help="create, list, describe, alter, delete and move topics")
    actions = topics.add_subparsers(required=True, metavar="ACTION")
    create = _client_command(actions, "create", admin_commands.create_topic, "create a topic")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--partitions", type=_positive, default=-1, help="default: the cluster's")
    create.add_argument("--replication-factor", type=_positive, default=-1, help="default: the cluster's")
    create.add_argument("--config", action="append", default=[], type=_assignment, metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="be content when it exists")
    listing = _client_command(actions, "list", admin_commands.list_topics, "list topics")
    listing.add_argument("--internal", action="store_true", help="the cluster's own ones too")
    describe = _client_command(
        actions, "describe", topic_descriptions.describe_topics, "show partitions and replicas"
    )
    topic_descriptions.add_describe_options(describe)
    alter = _client_command(actions, "alter", admin_commands.alter_topic, "add partitions, change settings")
    alter.add_argument("name", metavar="NAME")
    alter.add_argument("--partitions", type=_positive, help="grow to so many")
    alter.add_argument("--config", action="append", default=[], type=_assignment, metavar="KEY=VALUE")
    alter.add_argument(
        "--delete-config", action="append", default=[], metavar="KEY", help="back to the default"
    )
    delete = _client_command(actions, "delete", admin_commands.delete_topics, "delete topics")
    delete.add_argument("names", nargs="+", metavar="NAME")
    reassign = _client_command(
        actions, "reassign", placement_commands.reassign, "move replicas to other brokers"
    )
    placement_commands.add_reassign_options(reassign)
    elect = _client_command(actions, "elect", placement_commands.elect, "have preferred replicas lead again")
    placement_commands.add_elect_options(elect)


def _add_groups(commands: Any) -> None:
    groups = commands.add_parser(
        "groups",
        help="list, describe, reset and delete consumer groups",
        description="Groups of coordinators, or with --zookeeper those that meet there.",
    )
    actions = groups.add_subparsers(required=True, metavar="ACTION")
    for name, command, add_options, description in (
        (
            "list",
            group_commands.list_groups,
            group_commands.add_list_options,
            "list groups, states and types",
        ),
        (
            "describe",
            group_commands.describe_groups,
            group_commands.add_describe_options,
            "show members, offsets and lag",
        ),
        (
            "reset-offsets",
            group_commands.reset_offsets,
            group_commands.add_reset_options,
            "move the offsets of a group without members",
        ),
        (
            "delete",
            group_commands.delete_groups,
            group_commands.add_delete_options,
            "delete groups without members",
        ),
    ):
        parser = _client_command(actions, name, command, description)
        add_zookeeper_option(parser)
        add_options(parser)


def _add_transactions(commands: Any) -> None:
    transactions = commands.add_parser(
        "transactions", help="list and describe transactions, end those that hang"
    )
    actions = transactions.add_subparsers(required=True, metavar="ACTION")
    for name, command, add_options, description in (
        (
            "list",
            transaction_commands.list_transactions,
            transaction_commands.add_list_options,
            "list transactional ids and their states",
        ),
        (
            "describe",
            transaction_commands.describe_transactions,
            transaction_commands.add_describe_options,
            "show owner, state and partitions of transactional ids",
        ),
        (
            "producers",
            transaction_commands.describe_producers,
            transaction_commands.add_partition_options,
            "show the producers that a partition remembers, and where their open transactions begin",
        ),
        (
            "find-hanging",
            transaction_commands.find_hanging,
            transaction_commands.add_hanging_options,
            "show open transactions that no coordinator will end",
        ),
        (
            "abort",
            transaction_commands.abort_transaction,
            transaction_commands.add_abort_options,
            "end a transaction that hangs in a partition",
        ),
    ):
        add_options(_client_command(actions, name, command, description))


def _add_configs(commands: Any) -> None:
    configs = commands.add_parser("configs", help="show and alter settings of topics and nodes")
    actions = configs.add_subparsers(required=True, metavar="ACTION")
    describe = _config_command(
        actions, "describe", config_commands.describe_configs, "show settings and their sources"
    )
    describe.add_argument("--all", action="store_true", help="defaults too")
    alter = _config_command(
        actions, "alter", config_commands.alter_configs, "change settings while the cluster runs"
    )
    alter.add_argument(
        "--add",
        action="append",
        default=[],
        type=config_commands.assignments,
        metavar="KEY=VALUE,...",
        help="set these; a value with commas stands in brackets",
    )
    alter.add_argument(
        "--delete", action="append", default=[], metavar="KEY,...", help="back to what holds without"
    )


def _add_quotas(commands: Any) -> None:
    quotas = commands.add_parser("quotas", help="show and alter quotas of users, clients and addresses")
    actions = quotas.add_subparsers(required=True, metavar="ACTION")
    describe = _client_command(
        actions, "describe", quota_commands.describe_quotas, "show quotas: all, or those of some"
    )
    quota_commands.add_entity_options(describe)
    alter = _client_command(
        actions, "alter", quota_commands.alter_quotas, "change quotas while the cluster runs"
    )
    quota_commands.add_entity_options(alter)
    quota_commands.add_change_options(alter)


def _config_command(actions: Any, name: str, command: Command, description: str) -> argparse.ArgumentParser:
    parser = _client_command(actions, name, command, description)
    parser.add_argument("--entity-type", choices=config_commands.ENTITY_TYPES, required=True)
    of = parser.add_mutually_exclusive_group(required=True)
    of.add_argument("--entity-name", metavar="NAME", help="the topic, the group, or the id of the broker")
    of.add_argument("--entity-default", action="store_true", help="all brokers")
    run = parser.get_default("run")

    def checked(options: argparse.Namespace) -> None:
        if problem := config_commands.entity_problem(options):
            parser.error(problem)
        run(options)

    parser.set_defaults(run=checked)
    return parser


def _add_perf(commands: Any) -> None:
    perf = commands.add_parser("perf", help="measure a cluster: rates and latencies")
    actions = perf.add_subparsers(required=True, metavar="ACTION")
    for name, command, add_options, description in (
        ("produce", perf_commands.produce, perf_commands.add_produce_options, "send records"),
        ("consume", perf_commands.consume, perf_commands.add_consume_options, "read a topic"),
        (
            "end-to-end",
            perf_commands.end_to_end,
            perf_commands.add_end_to_end_options,
            "send one record after the other, and read each before the next",
        ),
    ):
        add_options(_client_command(actions, name, command, description))


def _add_records(commands: Any) -> None:
    produce = _client_command(commands, "produce", record_commands.produce, "send the lines of stdin")
    produce.add_argument("topic", metavar="TOPIC")
    produce.add_argument("--key-separator", metavar="TEXT", help="what parts key and value of a line")
    produce.add_argument("--partition", type=int, help="default: by key")
    produce.add_argument("--acks", choices=("0", "1", "all"), default="all")
    produce.add_argument(
        "--compression", choices=[codec.name.lower() for codec in Codec], default="none", metavar="CODEC"
    )
    consume = _client_command(commands, "consume", record_commands.consume, "print records as lines")
    consume.add_argument("topic", metavar="TOPIC")
    consume.add_argument("--key-separator", metavar="TEXT", help="print keys too, parted by this")
    consume.add_argument("--from-beginning", action="store_true", help="default: what comes from now on")
    consume.add_argument(
        "--filter", metavar="EXPRESSION", help="only records that match, as: 'key starts with \"JFK\"'"
    )
    consume.add_argument("--group", metavar="GROUP", help="read as a member of a group, with its offsets")
    consume.add_argument(
        "--group-protocol",
        choices=("classic", "consumer"),
        help="members assign the partitions (default), or the coordinator does (KIP-848)",
    )
    consume.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="the group meets there, as those of Kafka's old consumers do",
    )
    consume.add_argument("--partition", type=int, help="default: all")
    consume.add_argument("--rack", default="", metavar="RACK", help="read from replicas in this rack")
    consume.add_argument("--max-messages", type=_positive, metavar="N", help="end after so many")
    consume.add_argument(
        "--timeout-ms", type=_positive, metavar="MS", help="end when nothing came for so long"
    )


def _client_command(actions: Any, name: str, command: Command, description: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=description, description=description)
    parser.add_argument(
        "--bootstrap-server",
        type=_addresses,
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT[,HOST:PORT]",
        help=f"any nodes of the cluster (default: {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="security.protocol, ssl.* and sasl.* as Kafka's clients have them, in .properties or .yaml",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(run=lambda options: asyncio.run(_interruptible(command(options))))
    return parser


def _addresses(text: str) -> list[HostPort]:
    return [_address(part) for part in text.split(",")]


def _address(text: str) -> HostPort:
    try:
        return HostPort.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


async def _interruptible(command: Coroutine[Any, Any, None]) -> None:
    """Run the command; SIGINT and SIGTERM end it, and what it has open is closed in order."""
    task = asyncio.current_task()
    assert task is not None, "called as a task"
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await command


def _start(options: argparse.Namespace) -> None:
    from broker.http_endpoint import http_endpoint
    from broker.node import Node  # only here: other commands start twice as fast without a node's modules

    loaded = load_config(options.config, options.overrides)
    claim_descriptors()

    async def serve() -> None:
        _cancel_when_signalled()
        coordination = ZooKeeper(
            loaded.node.zookeeper_connect, session_timeout_ms=loaded.node.zookeeper_session_timeout_ms
        )
        node = Node(
            loaded, coordination=coordination, disk=SystemDisk(), clock=SystemClock(), rng=random.Random()
        )
        await _run_until_cancelled(running(node))

    @contextlib.asynccontextmanager
    async def running(node: Node) -> AsyncIterator[None]:
        gc.disable()  # a start makes what stays, and looking through it again and again takes a fifth of it
        async with node.running(), contextlib.AsyncExitStack() as stack:
            if options.http is not None:  # it closes first: a node that stops is not told to be healthy
                stack.enter_context(http_endpoint(options.http, node.metrics))
            gc.enable()
            gc.freeze()  # what a started node consists of need not be looked at by every collection
            yield

    asyncio.run(serve())


def _nameserver(options: argparse.Namespace) -> None:
    from broker.nameserver import serving_names
    from broker.server.security import Listener, SecurityProtocol

    listener = Listener(
        name=options.listener_name, protocol=SecurityProtocol.PLAINTEXT, address=options.listen
    )
    coordination = ZooKeeper(options.zookeeper, session_timeout_ms=options.session_timeout_ms)

    async def serve() -> None:
        _cancel_when_signalled()
        serving = serving_names(
            coordination,
            listener,
            SystemClock(),
            timeout_ms=options.session_timeout_ms,
            rng=random.Random(),
        )
        await _run_until_cancelled(serving)

    asyncio.run(serve())


async def _run_until_cancelled(serving: contextlib.AbstractAsyncContextManager[object]) -> None:
    """Serve until the task is cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        async with serving:
            with contextlib.suppress(asyncio.CancelledError):  # so that it ends in order, as by itself
                await asyncio.Event().wait()


def _cancel_when_signalled() -> None:
    """Have SIGTERM and SIGINT cancel the running task, once."""
    task = asyncio.current_task()
    assert task is not None, "run as a task"
    signalled = _once(task.cancel)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled)


def _once(action: Callable[[], object]) -> Callable[[], None]:
    """`action` at the first call, nothing later: a second signal must not cut the clean stop short."""
    done = False

    def act() -> None:
        nonlocal done
        if not done:
            done = True
            action()

    return act


def _zookeeper(options: argparse.Namespace) -> None:
    exec_zookeeper(options.port, options.data)


if __name__ == "__main__":
    sys.exit(main())

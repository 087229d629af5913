"""The `broker` command: nodes, and what there is to do with a cluster.

Data goes to stdout, logs and errors to stderr. Exit codes: 0 done, 1 failed with one readable message, 2
wrong usage, 130 and 143 ended by SIGINT and SIGTERM before all was done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TypeVar

from broker.errors import BrokerError
from broker.output_end import end_without_output, prepare_streams
from broker.program_options import ProgramParser, TellVersion
from broker.telemetry import configure_logging

ErrorT = TypeVar("ErrorT", bound=BaseException)

_MODULES = {
    "start": "node_commands",
    "nameserver": "node_commands",
    "zookeeper": "node_commands",
    "topics": "topic_commands",
    "groups": "group_commands",
    "configs": "config_commands",
    "quotas": "quota_commands",
    "transactions": "transaction_commands",
    "produce": "record_commands",
    "consume": "record_commands",
    "perf": "perf_commands",
    "dump-log": "inspection_commands",
    "verify": "inspection_commands",
    "import": "import_commands",
    "archive": "archive_commands",
    "restore": "archive_commands",
}
"""Command -> the module that adds it. Only what a command needs is imported: a node starts a third sooner."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    prepare_streams()
    given = sys.argv[1:] if arguments is None else arguments
    code = 0
    try:
        options = _parser(given[:1]).parse_args(given)
        configure_logging(options.log_level)
        options.run(options)
        sys.stdout.flush()
    except* BrokerError as errors:
        for error in _leaves(errors):
            print(f"broker: {error}", file=sys.stderr)
        code = 1
    except* KeyboardInterrupt:
        code = 130
    except* OSError as failures:
        for failure in _leaves(failures):
            code = end_without_output("broker", failure)
    return code


def _leaves(group: BaseExceptionGroup[ErrorT]) -> list[ErrorT]:
    leaves: list[ErrorT] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def _parser(command: Sequence[str]) -> argparse.ArgumentParser:
    """What reads the command line: with this command, or with all when it is none of them."""
    parser = ProgramParser(prog="broker", description="A broker node that speaks the Kafka protocol.")
    parser.add_argument("--version", action=TellVersion)
    parser.set_defaults(log_level="warning")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    known = [_MODULES[name] for name in command if name in _MODULES]
    for module in known or dict.fromkeys(_MODULES.values()):
        import_module(f"broker.{module}").add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The commands that look at files of a data directory and change nothing: dump-log and verify.

Kafka's own flag names are taken beside the short ones. Damage is part of the output, where it was met; a
command that found any ends with code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from broker.errors import BrokerError, StorageError
from broker.progress import progress_bar
from broker.storage.disk import Disk
from broker.storage.dump import DumpOptions, dump_file
from broker.storage.dump_line import Damage, Finding, document_of, text_of
from broker.storage.filenames import LOCK_FILE
from broker.storage.internal_records import decode_offsets_record, decode_transaction_record
from broker.storage.log_dump import LogDumpOptions
from broker.storage.read_only_disk import ReadOnlyDisk
from broker.storage.segment_check import Problem, Severity
from broker.storage.stored_entries import ENTRY_BYTES_MAX
from broker.storage.verify import Verification


class DamageFoundError(BrokerError):
    """What was looked at is damaged; the output says where."""


def add_commands(commands: Any) -> None:
    """Add `dump-log` and `verify` to the command line."""
    _add_dump_log(commands)
    _add_verify(commands)


def _add_dump_log(commands: Any) -> None:
    description = (
        "show what is in logs, indexes, snapshots and checkpoints; indexes are verified against their logs"
    )
    dump = commands.add_parser(
        "dump-log", help="show what is in files of a data directory", description=description
    )
    dump.add_argument("files", nargs="*", type=Path, metavar="FILE")
    dump.add_argument(
        "--files", dest="listed", type=_paths, default=[], metavar="FILE[,FILE]", help="more files"
    )
    dump.add_argument(
        "--deep", "--deep-iteration", action="store_true", help="the records inside batches too"
    )
    dump.add_argument(
        "--print-data", "--print-data-log", action="store_true", help="their keys and payloads too"
    )
    dump.add_argument(
        "--offsets", "--offsets-decoder", action="store_true", help="decode records of __consumer_offsets"
    )
    dump.add_argument(
        "--transactions",
        "--transaction-log-decoder",
        action="store_true",
        help="decode records of __transaction_state",
    )
    dump.add_argument(
        "--skip-record-metadata", action="store_true", help="of records, only keys and payloads"
    )
    dump.add_argument(
        "--verify-index", "--verify-index-only", action="store_true", help="of indexes, only what is wrong"
    )
    dump.add_argument(
        "--index-sanity", "--index-sanity-check", action="store_true", help="check indexes as a start does"
    )
    dump.add_argument("--max-bytes", type=_size, metavar="BYTES", help="read no further into a log")
    dump.add_argument(
        "--max-message-size",
        type=_size,
        default=ENTRY_BYTES_MAX,
        metavar="BYTES",
        help=f"largest batch that is opened (default: {ENTRY_BYTES_MAX})",
    )
    dump.add_argument("--output", choices=("text", "json"), default="text", help="json: one object a line")

    def run(options: argparse.Namespace) -> None:
        if not (options.files or options.listed):
            dump.error("name at least one FILE")
        if options.offsets and options.transactions:
            dump.error("--offsets and --transactions exclude each other")
        dump_log(options)

    dump.set_defaults(run=run)


def _add_verify(commands: Any) -> None:
    description = (
        "check meta.properties, checkpoints, and every file of every partition; nothing is written, and a "
        "running node is not disturbed"
    )
    verify = commands.add_parser(
        "verify", help="check a whole data directory without changing it", description=description
    )
    verify.add_argument(
        "directory", type=Path, metavar="DIR", help="a data root, or one partition's directory"
    )
    verify.add_argument("--shallow", action="store_true", help="checksums and headers only, no records")
    verify.add_argument("--output", choices=("text", "json"), default="text")
    verify.set_defaults(run=verify_directory)


def _paths(text: str) -> list[Path]:
    return [Path(part.strip()) for part in text.split(",") if part.strip()]


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes from 1 on")
    return int(text)


def dump_log(options: argparse.Namespace) -> None:
    """Print every file. Raises DamageFoundError when any is damaged or cannot be read."""
    disk = ReadOnlyDisk()
    dump_options = _dump_options(options)
    places = sum(_dump_one(disk, path, dump_options, options) for path in (*options.files, *options.listed))
    if places:
        raise DamageFoundError(f"{_counted(places, 'damaged place')}")


def _dump_options(options: argparse.Namespace) -> DumpOptions:
    decoder = None
    if options.offsets:
        decoder = decode_offsets_record
    elif options.transactions:
        decoder = decode_transaction_record
    return DumpOptions(
        log=LogDumpOptions(
            deep=options.deep,
            print_data=options.print_data or decoder is not None,
            record_metadata=not options.skip_record_metadata,
            decoder=decoder,
            bytes_max=options.max_bytes,
            entry_bytes_max=options.max_message_size,
        ),
        verify_only=options.verify_index,
        sanity_only=options.index_sanity,
    )


def _dump_one(disk: Disk, path: Path, dump_options: DumpOptions, options: argparse.Namespace) -> int:
    """Print one file; how many damaged places it has, an unreadable one counting as one."""
    write: Callable[[Path, Finding], None] = _write_json if options.output == "json" else _write_text
    if options.output == "text":
        sys.stdout.write(f"Dumping {path}\n")
    places = 0
    try:
        for found in dump_file(disk, path, dump_options):
            places += isinstance(found, Damage)
            write(path, found)
    except StorageError as error:
        places += 1
        write(path, Damage(None, str(error)))
    return places


def _write_text(path: Path, found: Finding) -> None:
    line = f"DAMAGED {path}: {found}" if isinstance(found, Damage) else text_of(found)
    sys.stdout.write(f"{line}\n")


def _write_json(path: Path, found: Finding) -> None:
    document: dict[str, object] = {"file": str(path)}
    if isinstance(found, Damage):
        document |= {"kind": "damage", "position": found.position, "message": found.message}
    else:
        document |= document_of(found)
    sys.stdout.write(f"{json.dumps(document)}\n")


def verify_directory(options: argparse.Namespace) -> None:
    """Check a directory and print what is wrong. Raises DamageFoundError when it is damaged, StorageError
    when it is no data directory.
    """
    disk = ReadOnlyDisk()
    in_use = disk.is_locked(_root_of(disk, options.directory) / LOCK_FILE)
    with progress_bar("checked") as progress:
        check = Verification(
            disk=disk, path=options.directory, deep=not options.shallow, in_use=in_use, on_bytes=progress.by
        )
        progress.begin(check.log_size())
        problems = list(_told(check, options))
    damages = [problem for problem in problems if problem.severity is Severity.DAMAGE]
    _write_summary(check, problems, options)
    if damages:
        raise DamageFoundError(f"{options.directory}: {_counted(len(damages), 'damaged place')}")


def _root_of(disk: Disk, directory: Path) -> Path:
    """The data root that a directory belongs to: itself, or the one above a partition's."""
    return directory if disk.exists(directory / LOCK_FILE) else directory.absolute().parent


def _told(check: Verification, options: argparse.Namespace) -> Iterator[Problem]:
    """The problems, printed as they come when they are to be read by people."""
    for problem in check.problems():
        if options.output == "text":
            place = "" if problem.position is None else f"position {problem.position}: "
            word = "DAMAGED" if problem.severity is Severity.DAMAGE else "NOTE"
            sys.stdout.write(f"{word} {problem.path}: {place}{problem.message}\n")
        yield problem


def _write_summary(check: Verification, problems: list[Problem], options: argparse.Namespace) -> None:
    tally = check.tally
    if options.output == "text":
        damages = sum(problem.severity is Severity.DAMAGE for problem in problems)
        records = "" if options.shallow else f", {_counted(tally.records, 'record')}"
        sys.stdout.write(
            f"{_counted(tally.partitions, 'partition')}, {_counted(tally.segments, 'segment')}, "
            f"{_counted(tally.entries, 'batch', 'batches')}{records}, {_counted(tally.size, 'byte')}: "
            f"{_counted(damages, 'damaged place')}\n"
        )
        return
    document = {
        "directory": str(check.path),
        "in_use": check.in_use,
        "partitions": tally.partitions,
        "segments": tally.segments,
        "batches": tally.entries,
        "records": None if options.shallow else tally.records,
        "bytes": tally.size,
        "problems": [
            {
                "severity": problem.severity.value,
                "path": str(problem.path),
                "position": problem.position,
                "message": problem.message,
            }
            for problem in problems
        ],
    }
    sys.stdout.write(f"{json.dumps(document)}\n")


def _counted(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"

"""`mirrormaker import`: what another mirror was told, as a topology."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from broker.errors import ConfigurationError
from mirrormaker.importing.importer import import_files
from mirrormaker.importing.positions import OffsetsFile

_UNNAMED = Path("topology.yaml")


def add_import_verb(verbs: Any) -> None:
    """`import FILE... [--positions [TARGET=]OFFSETS] [--out TOPOLOGY]`."""
    purpose = "make a topology of what MirrorMaker 2 was told"
    verb = verbs.add_parser("import", help=purpose, description=purpose)
    verb.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="connect-mirror-maker.properties, or connectors in JSON",
    )
    verb.add_argument(
        "--positions",
        type=OffsetsFile.parse,
        action="append",
        default=[],
        metavar="[TARGET=]OFFSETS",
        help="start where it has stopped: records of its topic of offsets, or GET /connectors/NAME/offsets",
    )
    verb.add_argument("--out", type=Path, metavar="TOPOLOGY", help="save it there; stdout if left out")
    verb.set_defaults(command=_import)


def _import(options: argparse.Namespace) -> int:
    imported = import_files(options.files, options.out or _UNNAMED, options.positions)
    if options.out is None:
        sys.stdout.write(imported.text)
    else:
        _save(options.out, imported.text)
    for note in imported.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _save(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([f"{file}: cannot be written: {error.strerror}"]) from error

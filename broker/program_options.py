"""What both programs take before any command: `--help` and `--version`, that of the package they come in.

What cannot be written is an error as of any command: it is told, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, TextIO


class ProgramParser(argparse.ArgumentParser):
    """argparse's own passes over help that nobody can read."""

    def print_help(self, file: Any = None) -> None:
        """Raises OSError."""
        _write(self.format_help(), sys.stdout if file is None else file)


class TellVersion(argparse.Action):
    """Print it and end. The package's metadata is only looked for then: programs start 40 ms sooner."""

    def __init__(self, option_strings: list[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        _write(f"{parser.prog} {version('mirrormaker')}\n", sys.stdout)
        parser.exit()


def _write(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()

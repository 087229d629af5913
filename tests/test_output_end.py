"""Commands that were started without an output."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("program", ["broker.cli", "mirrormaker.cli"])
@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_command_whose_output_is_closed_does_its_work(program: str, closed: str) -> None:
    script = f'exec "$0" -m {program} "$@" {closed}>&-'
    verb = ["verify", "/dev/null/none"] if program == "broker.cli" else ["validate", "topologies/demo.yaml"]
    done = subprocess.run(["sh", "-c", script, sys.executable, *verb], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if program == "broker.cli" else 0)

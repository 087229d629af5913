"""The limit of open files is raised where that is allowed, and a hopeless one refuses the start."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from broker.descriptor_limit import claim_descriptors
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(claim_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def claimed(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("soft", "hard"), [(300, 600), (600, 600)])
def test_the_limit_is_raised_as_far_as_allowed_and_a_low_one_is_told(soft: int, hard: int) -> None:
    done = claimed(soft, hard)
    assert done.stdout.split()[-2:] == ["600", "600"]
    assert "descriptor_limit_low" in done.stdout + done.stderr


def test_a_hopeless_limit_refuses_the_start() -> None:
    done = claimed(64, 100)
    assert done.returncode != 0
    assert "the process may open 100 files, a node needs 256 (`ulimit -n`)" in done.stderr

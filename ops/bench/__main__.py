"""Run every benchmark, or those named: `python -m ops.bench [NAME ... [--OPTION ...]]`."""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run the benchmarks one after the other, each in a process of its own and with the options that follow
    the names; returns how many failed.
    """
    names = list(takewhile(lambda argument: not argument.startswith("-"), arguments))
    options = arguments[len(names) :]
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or known:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"ops.bench.{name}", *options]
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

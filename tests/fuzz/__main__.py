"""Fuzzing with atheris: `python -m tests.fuzz [TARGET ...]`, which `make fuzz` calls.

Every target has a process of its own, FUZZ_SECONDS long (60), two at a time, with its memory limited. An
input that makes one fail is left in `.fuzz/`, and `python -m tests.fuzz --input FILE TARGET` repeats it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))
AT_ONCE = 2
INPUT_BYTES_MAX = 1 << 16
INPUT_SECONDS_MAX = 20
MEMORY_BYTES_MAX = 3 << 30
FINDINGS = Path(".fuzz")
_TAIL = 6000


def main() -> int:
    """Fuzz the targets; 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all of them")
    parser.add_argument("--input", type=Path, metavar="FILE", help="only this input, without atheris")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _fuzz(options.targets[0])
    from tests.fuzz.targets import BY_NAME

    if unknown := set(options.targets) - set(BY_NAME):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(BY_NAME)}")
    if options.input is not None:
        for name in options.targets:
            BY_NAME[name].run(options.input.read_bytes())
        return 0
    with ThreadPoolExecutor(AT_ONCE) as executor:
        return max(executor.map(_start, options.targets or BY_NAME))


def _start(name: str) -> int:
    """One target in a process of its own; says how it ended."""
    command = [sys.executable, "-m", "tests.fuzz", "--child", name]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    if finished.returncode:
        sys.stdout.write(f"{name}: FAILED\n{finished.stdout[-_TAIL:]}\n")
        return 1
    runs = [line for line in finished.stdout.splitlines() if line.startswith("Done ")]
    sys.stdout.write(f"{name}: {runs[-1] if runs else 'ended'}\n")
    return 0


def _fuzz(name: str) -> int:
    """Be the fuzzer of one target; atheris ends the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    import atheris

    with atheris.instrument_imports(include=["broker", "mirrormaker", "yaml"], enable_loader_override=False):
        from tests.fuzz.targets import BY_NAME
    target = BY_NAME[name]
    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as corpus:
        for number, seed in enumerate(target.seeds()):
            Path(corpus, str(number)).write_bytes(seed[:INPUT_BYTES_MAX])
        flags = {
            "max_total_time": FUZZ_SECONDS,
            "max_len": INPUT_BYTES_MAX,
            "timeout": INPUT_SECONDS_MAX,
            "rss_limit_mb": MEMORY_BYTES_MAX >> 20,
            "artifact_prefix": f"{FINDINGS}/{name.replace(' ', '-')}-",
        }
        atheris.Setup([name, *(f"-{flag}={value}" for flag, value in flags.items()), corpus], target.run)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())

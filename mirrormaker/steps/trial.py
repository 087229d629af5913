"""Whether functions that a file names can be had, found out in a process of its own: what a module does while
it is imported is its own affair, and may print, end the process, or never come to an end. For commands that
only check.

The process tells as one line of JSON what each name is wrong with, null where it is not: into a file, as
processes that the module has forked may hold any other way open for longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping

from broker.child_process import describe_exit, dying_with_parent
from broker.errors import ConfigurationError
from mirrormaker.steps.outside import find_function
from mirrormaker.topology.model import CallFunction

TRIAL_SECONDS = 60.0
"""How long a module may take to be imported."""
_CHILD = "import sys; from mirrormaker.steps.trial import tell; tell(*sys.argv[1:])"


def find_missing(functions: Iterable[CallFunction]) -> dict[CallFunction, str]:
    """Those of the functions that cannot be had here, each with the reason. What their modules print goes to
    standard error.
    """
    modules: dict[str, dict[str, CallFunction]] = {}
    for each in functions:
        modules.setdefault(each.module, {})[each.name] = each
    return {
        named[name]: problem
        for module, named in modules.items()
        for name, problem in _try(module, named).items()
        if problem is not None
    }


def tell(module: str, *names: str) -> None:
    """What the process is for."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # also of processes that the module starts
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        try:
            find_function(CallFunction(module=module, name=name))
        except ConfigurationError as error:
            found[name] = str(error)
    with answer:
        answer.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what the module has begun is waited for by nobody


def _try(module: str, names: Iterable[str]) -> Mapping[str, str | None]:
    command = dying_with_parent([sys.executable, "-P", "-c", _CHILD, module, *names])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with os.fdopen(os.memfd_create("functions"), "r+b") as answer:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=answer, env=environment, start_new_session=True
        )
        with _ended(process):
            try:
                process.wait(TRIAL_SECONDS)
            except subprocess.TimeoutExpired:
                problem = f"it is not imported after {TRIAL_SECONDS:g} s"
            else:
                problem = f"the process that imported it {describe_exit(process.returncode)}"
        answer.seek(0)
        if line := answer.readline():
            told: dict[str, str | None] = json.loads(line)
            return told
    return {name: f"function {module}:{name}: {problem}" for name in names}


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """With all that it has started."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

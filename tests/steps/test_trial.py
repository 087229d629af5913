"""Functions that a file names, whatever their modules do while they are imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.steps import trial
from mirrormaker.steps.trial import find_missing
from mirrormaker.topology.model import CallFunction


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print('imported')\ndef f(record): ...", None),
        ("import subprocess\nchild = subprocess.Popen(['cat', '/dev/zero'])\ndef f(record): ...", None),
        ("import os, time\nif not os.fork():\n    time.sleep(600)\ndef f(record): ...", None),
        (
            "def made(record): ...",
            "AttributeError: module 'steps_a' has no attribute 'mode'; did you mean 'made'?",
        ),
        ("f = 1", "it cannot be called"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: "),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import os; os._exit(0)", "the process that imported it ended with 0"),
        ("import os; os.kill(os.getpid(), 11)", "the process that imported it was ended by SIGSEGV"),
        ("while True: pass", "it is not imported after 2 s"),
    ],
)
def test_what_keeps_a_function_from_being_had_is_told_and_befalls_nobody(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    text: str,
    told: str | None,
) -> None:
    (tmp_path / "steps_a.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    if "while" in text:
        monkeypatch.setattr(trial, "TRIAL_SECONDS", 2)
    name = "mode" if "mode" in str(told) else "f"
    function = CallFunction(module="steps_a", name=name)
    missing = {} if told is None else {function: f"function steps_a:{name}: {told}"}
    assert find_missing([function, function]) == missing
    assert capfd.readouterr().out == ""


def test_functions_of_several_modules_are_told_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "steps_a.py").write_text("def f(record): ...")
    monkeypatch.syspath_prepend(tmp_path)
    wanted = [CallFunction(module=module, name=name) for module in ("steps_a", "nowhere") for name in "fg"]
    assert [(each.module, each.name) for each in find_missing(wanted)] == [
        ("steps_a", "g"),
        ("nowhere", "f"),
        ("nowhere", "g"),
    ]

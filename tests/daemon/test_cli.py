"""The command line by itself: exit codes, messages, and what `status` shows of clusters that are away."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.loopback import free_ports
from tests.daemon.conftest import PATIENCE_SECONDS, mirrormaker

GOOD = """\
clusters:
  jfk: {{bootstrap: ["127.0.0.1:{port}"]}}
  aggregate: {{embedded: {{brokers: 1, port: {other}}}}}
routes:
  - {{from: jfk, to: aggregate, topics: {{include: [flights]}}}}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A valid topology whose clusters do not run."""
    port, other = free_ports(2)
    file = tmp_path / "good.yaml"
    file.write_text(GOOD.format(port=port, other=other))
    return file


def test_a_good_file_is_valid(good: Path) -> None:
    done = mirrormaker("validate", str(good))
    assert done.returncode == 0
    assert done.stdout == f"{good}: 2 clusters, 1 routes, 0 pipelines, no problems\n"
    assert done.stderr == ""


def test_what_is_most_probably_not_meant_is_warned_of_where_it_stands(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "steps_here.py").write_text("print('imported')\ndef change(record): ...\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    text = good.read_text()
    first = text.count("\n") + 1
    good.write_text(
        f"{text}defaults:\n"
        "  sync:\n"
        "    config:\n"
        "      - retention.sm\n"
        "  transforms:\n"
        "    - {function: 'steps_here:change'}\n"
        "    - {function: 'steps_here:chagne'}\n"
        "    - {function: 'steps_there:change'}\n"
    )
    done = mirrormaker("validate", str(good))
    assert done.returncode == 0
    assert done.stdout == f"{good}: 2 clusters, 1 routes, 0 pipelines, 3 warnings\n"
    here = "it must be where Python finds it, wherever a daemon runs the route"
    assert done.stderr.splitlines() == [
        "imported",
        f"warning: {good}:{first + 3}: routes[0].sync.config[0]: 'retention.sm' is no setting of a topic"
        " that is known, and carries nothing over; did you mean 'retention.ms'?",
        f"warning: {good}:{first + 6}: routes[0].transforms[1].function: function steps_here:chagne:"
        f" AttributeError: module 'steps_here' has no attribute 'chagne'; did you mean 'change'? ({here})",
        f"warning: {good}:{first + 7}: routes[0].transforms[2].function: function steps_there:change:"
        f" ModuleNotFoundError: No module named 'steps_there' ({here})",
    ]
    notices = json.loads(mirrormaker("plan", str(good), "--output", "json").stdout)["notices"]
    kinds = [(notice["kind"], notice["about"]) for notice in notices if notice["kind"] != "unreachable"]
    assert kinds == [
        ("setting", f"{good}:{first + 3}: routes[0].sync.config[0]"),
        ("function", f"{good}:{first + 6}: routes[0].transforms[1].function"),
        ("function", f"{good}:{first + 7}: routes[0].transforms[2].function"),
    ]


@pytest.mark.parametrize("verb", ["validate", "run", "up", "status"])
def test_a_bad_file_is_refused_with_one_readable_message_by_every_verb(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "clusters:\n  jfk: {bootstrap: [9092]}\nroutes:\n  - {from: jfk, to: lga, topics: {include: [a]}}\n"
    )
    done = mirrormaker(verb, str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{file}:2: clusters.jfk.bootstrap[0]: expected text, found a whole number (9092)",
        f"{file}:4: routes[0].to: there is no cluster 'lga'",
    ]


@pytest.mark.parametrize(
    "command",
    [("plan",), ("plan", "FILE", "--simulate", "soon"), ("audit", "FILE", "--windw", "5m"), ("plann",)],
)
def test_a_command_that_is_asked_for_wrongly_is_an_error_and_no_finding(
    good: Path, command: tuple[str, ...]
) -> None:
    """2 would say that there are changes to apply, or differences."""
    done = mirrormaker(*(str(good) if word == "FILE" else word for word in command))
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: " in done.stderr


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_an_empty_token_is_none(good: Path, tmp_path: Path, content: str) -> None:
    """Whoever says `Authorization: Bearer` would have it."""
    token = tmp_path / "token"
    token.write_text(content)
    done = mirrormaker("run", str(good), "--http", "0", "--http-token", f"file:{token}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"--http-token: file:{token}: there is no token in it"


@pytest.mark.parametrize("verb", ["run", "up"])
def test_a_token_for_a_port_that_is_not_served_is_not_passed_over(good: Path, verb: str) -> None:
    good.write_text(good.read_text() + "owner: nobody\n")  # told first, or a daemon would run
    done = mirrormaker(verb, str(good), "--http-token", "env:TOKEN")
    assert done.returncode == 1
    assert done.stderr == "--http-token needs --http: nothing is served without\n"


def test_what_is_no_text_is_not_taken_for_a_reason(good: Path) -> None:
    done = mirrormaker("pause", str(good), "jfk-to-aggregate", "--reason", "bad\udcff")
    assert done.returncode == 1
    assert "is not text in UTF-8" in done.stderr


@pytest.mark.parametrize("timeout", ["nan", "inf", "1e400", "1e9", "0", "-1", "soon"])
def test_the_time_for_a_switch_is_a_number_of_seconds(good: Path, timeout: str) -> None:
    done = mirrormaker("failover", str(good), "group", f"--timeout={timeout}")
    assert done.returncode == 1
    assert f"--timeout: '{timeout}' is not a number of seconds" in done.stderr


def test_the_version_is_told() -> None:
    done = mirrormaker("--version")
    assert (done.returncode, done.stdout.startswith("mirrormaker ")) == (0, True)


def test_the_status_of_clusters_that_are_away_says_so_and_exits_1(good: Path) -> None:
    done = mirrormaker("status", str(good), "--output", "json")
    assert done.returncode == 1
    (route,) = json.loads(done.stdout)["routes"]
    assert route["lag"] is None
    assert route["state"] == "stopped"
    assert route["problem"].startswith("cluster 'jfk': no node can be reached")
    shown = mirrormaker("status", str(good))
    assert "jfk-to-aggregate  stopped" in shown.stdout
    assert "cluster 'jfk': no node can be reached" in shown.stdout


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_where_no_cluster_answers_nothing_is_said_to_be_as_the_file_asks(good: Path, verb: str) -> None:
    done = mirrormaker(verb, str(good))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "nothing to do where it could be seen; see above"


def test_a_port_in_use_keeps_up_from_starting(good: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        good.write_text(GOOD.format(port=free_ports(1)[0], other=taken.getsockname()[1]))
        done = mirrormaker("up", str(good))
    assert done.returncode == 1
    assert str(taken_port := good.read_text().split("port: ")[1].split("}")[0]) in done.stderr, taken_port


def test_a_data_dir_that_cannot_be_written_keeps_the_daemon_from_starting(good: Path, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where a folder should be")
    good.write_text(good.read_text() + "data_dir: blocked\n")
    done = mirrormaker("run", str(good))
    assert done.returncode == 1
    assert "blocked/daemon: cannot be written: Not a directory" in done.stderr


def test_a_mesh_is_simulated_without_asking_anybody(good: Path) -> None:
    file = good.with_name("mesh.yaml")
    simulated = "[flights]}, simulate: {bytes_per_second: 5MB}}"
    file.write_text(good.read_text().replace("[flights]}}", simulated))
    done = mirrormaker("plan", str(file), "--simulate", "12h", "--output", "json")
    assert done.returncode == 0, done.stderr
    (route,) = json.loads(done.stdout)["routes"]
    assert route["copied_bytes_per_second"] == pytest.approx(5_000_000, rel=0.01)
    assert mirrormaker("plan", str(file), "--simulate").stdout.endswith("1 routes over 1.0 d, 0 warnings\n")
    for span in ("12", "0.0001s", "367d"):
        assert "is not a span" in mirrormaker("plan", str(file), "--simulate", span).stderr


def test_places_to_translate_are_text(good: Path) -> None:
    command = [sys.executable, "-m", "mirrormaker.cli", "translate", str(good), "jfk-to-aggregate"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    for given, said in (
        (b"flights:0\n", "is no TOPIC:PARTITION:OFFSET"),
        (b"\xff:0:1\n", "not text in UTF-8"),
    ):
        done = subprocess.run(
            command, input=given, env=environment, capture_output=True, timeout=PATIENCE_SECONDS
        )
        assert (done.returncode, said in done.stderr.decode()) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("flights", "0"), "takes TOPIC PARTITION OFFSET"),
        (("flights", "0", "-3"), "OFFSET: -3 is below 0"),
        (("flights", "-1", "3"), "PARTITION: -1 is below 0"),
    ],
)
def test_a_place_to_translate_is_whole_and_not_below_zero(
    good: Path, place: tuple[str, ...], said: str
) -> None:
    done = mirrormaker("translate", str(good), "jfk-to-aggregate", *place)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def test_a_step_that_one_way_of_a_mesh_has_alone_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    lines = [(source, to) for source in "abc" for to in "abc" if source != to]
    step = {"route": {"to": "late", "when": {"key_prefix": "x"}}}
    routes: list[dict[str, Any]] = [
        {"from": source, "to": to, "topics": {"include": [".*"], "name": "{topic}", "merge": True}}
        for source, to in lines
    ]
    routes[0]["transforms"] = [step]
    clusters = {name: {"bootstrap": [f"{name}:1"]} for name in "abc"}
    for also, warnings in (([], 1), ([1], 0)):
        for index in also:
            routes[index]["transforms"] = [step]
        file.write_text(yaml.safe_dump({"clusters": clusters, "routes": routes}))
        done = mirrormaker("validate", str(file))
        assert done.returncode == 0, done.stderr
        assert (
            done.stderr.count("'late' goes on from 'b' to 'c' without what the step sends there") == warnings
        )

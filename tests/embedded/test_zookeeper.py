import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from broker.child_process import EmbeddedError
from broker.embedded import EmbeddedZooKeeper
from broker.errors import ConfigurationError
from broker.loopback import accepts, free_ports
from broker.zookeeper_server import zookeeper_command
from tests.conftest import until


def _ask(port: int, command: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=0.5) as connection:
        connection.sendall(command)
        answer = b""
        while data := connection.recv(4096):
            answer += data
        return answer


def test_a_server_answers_keeps_its_data_and_stops(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zk") as server:
        assert _ask(server.port, b"ruok") == b"imok"
        assert b"Mode: standalone" in _ask(server.port, b"srvr")
        assert server.pid is not None
        process = psutil.Process(server.pid)
        listening = {c.laddr for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
        port = server.port
    assert not process.is_running()
    assert (tmp_path / "zk" / "version-2").is_dir()
    with EmbeddedZooKeeper(tmp_path / "zk", port=port) as again:
        assert again.connect_string("jfk") == f"127.0.0.1:{port}/jfk"


def test_a_server_that_died_is_launched_again_at_its_port(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.pid is not None
        assert server.log_if_dead() is None
        psutil.Process(server.pid).kill()
        until(lambda: server.log_if_dead() is not None)
        server.launch()
        until(lambda: accepts(server.address))
        assert server.log_if_dead() is None


def test_a_taken_port_is_one_clear_message(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}.*in use"):
            zookeeper_command(port, tmp_path)


def test_missing_java_is_one_clear_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match="needs Java"):
        zookeeper_command(free_ports(1)[0], tmp_path)


def test_missing_pyspark_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"mirrormaker\[spark\]"):
        zookeeper_command(free_ports(1)[0], tmp_path)


def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=str(tmp_path / "file")):
        zookeeper_command(free_ports(1)[0], tmp_path / "file")


def test_pyspark_is_found_without_importing_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from broker.loopback import free_ports;"
        "import broker.embedded; from broker.zookeeper_server import zookeeper_command;"
        f"zookeeper_command(free_ports(1)[0], Path({str(tmp_path)!r})); assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_server_that_dies_while_starting_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "version-2").write_text("not a directory")
    with pytest.raises(EmbeddedError, match="zookeeper exited with"):
        EmbeddedZooKeeper(tmp_path).start()


def test_a_server_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = textwrap.dedent(
        f"""
        import sys, threading
        from pathlib import Path
        from broker.embedded import EmbeddedZooKeeper
        server = EmbeddedZooKeeper(Path({str(tmp_path)!r}))
        starter = threading.Thread(target=server.start)  # the starting thread ends, the server stays
        starter.start()
        starter.join()
        print(server.pid, flush=True)
        sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        assert server.is_running()
        parent.kill()
    server.wait(timeout=20)


def test_a_second_server_on_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(tmp_path, fsync=False),
        pytest.raises(ConfigurationError, match="in use by another server"),
        EmbeddedZooKeeper(tmp_path, fsync=False),
    ):
        raise AssertionError("two servers on one directory")
    with EmbeddedZooKeeper(tmp_path, fsync=False):  # free again
        pass


def test_a_process_becomes_the_server_and_keeps_others_out(tmp_path: Path) -> None:
    [port] = free_ports(1)
    command = [sys.executable, "-m", "broker.cli", "zookeeper", "--data", str(tmp_path), "--port"]
    process = subprocess.Popen([*command, str(port)])
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                assert _ask(port, b"ruok") == b"imok"
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
        assert "java" in os.path.basename(psutil.Process(process.pid).exe())
        second = [*command, str(free_ports(1)[0])]
        refused = subprocess.run(second, capture_output=True, text=True, timeout=30, check=False)
        assert refused.returncode == 1
        assert f"{tmp_path} is in use by another server" in refused.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)

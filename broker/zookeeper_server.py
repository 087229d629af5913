"""The ZooKeeper server that pyspark's wheel ships: its command, its files, and who may use its directory.

It is the real server out of the wheel's jars; nothing of pyspark is imported. Files of its directory:
`zoo.cfg`, `log4j2.properties`, `.lock`, and the server's own `version-2/`.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
from pathlib import Path

from broker.errors import ConfigurationError
from broker.loopback import LOOPBACK, require_free_ports
from broker.types import HostPort

_JARS = (
    "commons-cli",
    "commons-io",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "metrics-core",
    "netty-buffer",
    "netty-common",
    "netty-handler-4",
    "netty-transport-4",
    "slf4j-api",
    "snappy-java",
    "zookeeper",
)
"""The few of pyspark's jars that the server loads: starting with all 300 of them takes twice as long."""

_ZOO_CFG = """\
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir={directory}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""

_LOG4J = """\
status = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} zookeeper %p %c{1}: %m%n
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""


def zookeeper_command(port: int, directory: Path, *, fsync: bool = True) -> list[str]:
    """Prepare `directory` and return the command of a ZooKeeper on 127.0.0.1:`port` with its data there.

    Without `fsync` the server answers before its log is on the disk: for tests. Raises ConfigurationError
    when Java or pyspark is missing, the port is taken, or the directory cannot be written.
    """
    java = _find_java()
    jars = _find_jars()
    require_free_ports([port])
    _write_zookeeper_files(port, directory)
    return [
        java,
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Djute.maxbuffer=8388608",
        f"-Dzookeeper.forceSync={'yes' if fsync else 'no'}",
        "-Dzookeeper.jmx.log4j.disable=true",
        f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(str(jar) for jar in jars),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(directory / "zoo.cfg"),
    ]


def configured_address(directory: Path) -> HostPort | None:
    """Where the server that was started last with its data in `directory` serves; None: none was."""
    try:
        lines = (directory / "zoo.cfg").read_text().splitlines()
    except OSError:
        return None
    settings = dict(line.split("=", 1) for line in lines)
    return HostPort(settings["clientPortAddress"], int(settings["clientPort"]))


def exec_zookeeper(port: int, data_dir: Path) -> None:
    """Become the ZooKeeper server: this process is replaced by it and the call does not return.

    Raises ConfigurationError as `zookeeper_command` does, and when another server uses the directory.
    """
    lock = lock_zookeeper_directory(data_dir.absolute())
    command = zookeeper_command(port, data_dir.absolute())
    os.set_inheritable(lock, True)  # held for as long as the server lives
    os.execv(command[0], command)


def lock_zookeeper_directory(directory: Path) -> int:
    """Keep a second server out, as two would write into the same logs; the descriptor that holds the lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError([f"cannot write to the ZooKeeper directory {directory}: {error}"]) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        problem = f"the ZooKeeper directory {directory} is in use by another server"
        raise ConfigurationError([problem]) from error
    return lock


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    java = shutil.which("java")
    if java is None:
        problem = "the embedded ZooKeeper needs Java, 11 or newer (Debian: apt install default-jre-headless)"
        raise ConfigurationError([problem])
    return java


def _find_jars() -> list[Path]:
    for home in _spark_homes():
        jars = sorted(jar for jar in Path(home, "jars").glob("*.jar") if jar.name.startswith(_JARS))
        if any(jar.name.startswith("zookeeper-3") for jar in jars):
            return jars
    problem = "the embedded ZooKeeper comes with pyspark, which is missing: pip install 'mirrormaker[spark]'"
    raise ConfigurationError([problem])


def _spark_homes() -> list[str]:
    home = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    return [*([home] if home else []), *(spec.submodule_search_locations or [] if spec else [])]


def _write_zookeeper_files(port: int, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "zoo.cfg").write_text(_ZOO_CFG.format(directory=directory, port=port, host=LOOPBACK))
        (directory / "log4j2.properties").write_text(_LOG4J)
    except OSError as error:
        raise ConfigurationError([f"cannot write to the ZooKeeper directory {directory}: {error}"]) from error

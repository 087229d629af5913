"""What a daemon keeps in the topology's `data_dir`: its lock, its name, and a picture of its state.

Files of `data_dir/daemon/`: `lock` (held by flock while a daemon runs: a second one is refused, and `status`
sees whether one is alive), `id` (a name that survives restarts), `state.json` (rewritten every second by
writing aside and renaming: a reader never sees half of it, and after a kill the last picture stays until
the next daemon starts),
`topology.yaml`, the text that is in force: the file itself may have errors meanwhile, and `clusters.json`,
the ids that clusters told last.

While the file that a daemon follows says another `data_dir`, that is held and told in as well
(`AskedDirectory`).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from broker.errors import ConfigurationError
from mirrormaker.folder_lock import FolderLock
from mirrormaker.topology.model import ClusterId, ClusterName

STATE_VERSION = 1


class StateDirectory:
    """The daemon's folder below `data_dir`."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "daemon"
        self._lock = FolderLock(self.path)
        self._state = self.path / "state.json"
        self._topology = self.path / "topology.yaml"
        self._cluster_ids = self.path / "clusters.json"
        self._kept: str | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one daemon here; the picture of the one before is gone. Raises ConfigurationError when there
        is one, or nothing can be written.
        """
        busy = ConfigurationError([f"{self.path}: another daemon is running on this data_dir"])
        with self._lock.held(busy):
            with suppress(OSError):  # told by its age
                self._state.unlink()
            yield

    def is_locked(self) -> bool:
        """Whether a daemon runs on this directory."""
        return self._lock.is_held()

    def daemon_id(self) -> str:
        """The daemon's name, made up the first time, and where what was kept is none any more, as after a
        crash of the machine. Raises ConfigurationError when that cannot be kept.
        """
        file = self.path / "id"
        try:
            name = file.read_text(encoding="ascii", errors="replace").strip() if file.exists() else ""
            if name and name.isascii() and name.isprintable():
                return name
            name = uuid.uuid4().hex[:12]
            self.path.mkdir(parents=True, exist_ok=True)
            _write_whole(file, name + "\n")
        except OSError as error:
            raise ConfigurationError([f"{file}: cannot be kept: {error.strerror}"]) from error
        return name

    def write(self, state: dict[str, Any]) -> None:
        """Replace the picture. Raises OSError."""
        _write_whole(self._state, json.dumps(state, separators=(",", ":")))

    def keep_topology(self, text: str) -> None:
        """Have the text in force at hand for those who meet errors in the file. Raises OSError."""
        if text != self._kept:
            _write_whole(self._topology, text)
            self._kept = text

    def kept_topology(self) -> str | None:
        """The text that was kept last; None when there is none."""
        try:
            return self._topology.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None

    def keep_cluster_ids(self, ids: Mapping[ClusterName, ClusterId]) -> None:
        """Have the ids of clusters at hand while these are away; workers do that too. Raises OSError."""
        _write_whole(self._cluster_ids, json.dumps(ids, indent=2) + "\n", f".{os.getpid()}.tmp")

    def kept_cluster_ids(self) -> dict[ClusterName, ClusterId]:
        """Those that were kept last, by the clusters' names."""
        try:
            ids = json.loads(self._cluster_ids.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        told = ids.items() if isinstance(ids, dict) else ()
        return {
            ClusterName(name): ClusterId(cluster_id)
            for name, cluster_id in told
            if isinstance(cluster_id, str)
        }

    def read(self) -> dict[str, Any] | None:
        """The last picture; None when there is none, or it is of another version."""
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) and state.get("version") == STATE_VERSION else None


class AskedDirectory:
    """The `data_dir` that an edited file says while the daemon at work stays on its own: whoever goes by the
    file meets that daemon there, as `status` does, and a second one, which is refused.
    """

    def __init__(self, own: Path) -> None:
        """`own`: the daemon's `data_dir`."""
        self._own = self._asked = own
        self._directory: StateDirectory | None = None
        self._hold = ExitStack()

    def keep(self, asked: Path, state: dict[str, Any], topology: str) -> None:
        """Hold the `data_dir` that the file says now, unless it is the daemon's own, and tell the same there.
        One where another daemon is, or that cannot be written, is tried again the next time.
        """
        if asked != self._asked:
            self.close()
            self._asked = asked
        if asked == self._own:
            return
        try:
            if self._directory is None:
                directory = StateDirectory(asked)
                self._hold.enter_context(directory.locked())
                self._directory = directory
            self._directory.write(state)
            self._directory.keep_topology(topology)
        except (ConfigurationError, OSError):
            self.close()

    def close(self) -> None:
        """Hold none."""
        self._hold.close()
        self._directory = None


def _write_whole(file: Path, text: str, aside_suffix: str = ".tmp") -> None:
    aside = file.with_suffix(aside_suffix)
    aside.write_text(text, encoding="utf-8")
    aside.replace(file)

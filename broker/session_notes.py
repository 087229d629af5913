"""What a node leaves in its data directories about its ZooKeeper session, so that its next start can end it.

After kill -9 ZooKeeper keeps the session, and with it the node's registration, for the rest of the session
timeout. The next start knows better: it holds the locks of the data directories, so the process before it is
dead, and it may end that session at once. The note says what that takes: id and password of the session (the
password is why only the node's user may read the file), its ensemble and chroot, the cluster's id, and the
locks that the process held. It lies in the first live root; whoever writes it removes what other roots hold.

Ending the session of a process that lives would take its registration away. So a session is left to its
timeout unless each lock that its process held is now held here. A lock's identity is the boot id of the
kernel with device and number of the lock file, and that is safer than names:

- A copied directory (`cp -r`, a backup) has another lock file, whose number is another one as long as the
  original's is open.
- A disk image or a network file system used on another machine, even one with the same host name and path, is
  seen by a kernel with another boot id. After a reboot it differs as well; the session has mostly ended
  by then, and if not, it is waited for.
- Containers of one machine share the boot id, and locks work between them. Host name and path, which
  differ when a container is made anew or a volume is mounted elsewhere, say nothing then.
- A process whose failed root was let go still holds its other roots' locks, and those are named too.

Two nodes that were given one id by mistake have different directories, and the later one is still refused.
A note that is damaged, missing or of elsewhere changes nothing but the wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.coordination.document import Document, to_json
from broker.coordination.protocol import SessionKey
from broker.errors import CoordinationError, StorageError
from broker.storage.log_directories import LogDirectories
from broker.storage.private_note import PrivateNote
from broker.telemetry import logger

_log = logger("node")

_VERSION = 1
_SESSION_IDS = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNote:
    """A session and its process: `zookeeper` is the connect string with its chroot, `locks` what it held."""

    key: SessionKey
    zookeeper: str
    cluster_id: str
    locks: frozenset[str]

    def encode(self) -> bytes:
        return to_json(
            {
                "version": _VERSION,
                "zookeeper": self.zookeeper,
                "cluster_id": self.cluster_id,
                "session_id": self.key.session_id,
                "password": self.key.password.hex(),
                "locks": sorted(self.locks),
            }
        )

    @classmethod
    def decode(cls, data: bytes, path: str) -> SessionNote:
        """Raises CoordinationError that names `path`."""
        document = Document.parse(data, path)
        version = document.integer("version")
        if version != _VERSION:
            raise CoordinationError(f"{path}: version {version} is not known")
        try:
            password = bytes.fromhex(document.text("password"))
        except ValueError as error:
            raise CoordinationError(f"{path}: 'password' is not hexadecimal") from error
        session_id = document.integer("session_id")
        if session_id not in _SESSION_IDS:
            raise CoordinationError(f"{path}: {session_id} is no id of a session")
        return cls(
            key=SessionKey(session_id=session_id, password=password),
            zookeeper=document.text("zookeeper"),
            cluster_id=document.text("cluster_id"),
            locks=frozenset(document.texts("locks")),
        )


class SessionNotes:
    """The notes in the roots of a node of one cluster. Its methods block and raise nothing: what the disk
    refuses is logged, and costs a wait.
    """

    def __init__(self, directories: LogDirectories, *, zookeeper: str, cluster_id: str) -> None:
        self._directories = directories
        self._zookeeper = zookeeper
        self._cluster_id = cluster_id

    def find_former(self) -> list[SessionKey]:
        """Sessions of processes that are certainly dead."""
        notes = [self._read(directory.session_note) for directory in self._directories.live.values()]
        return [note.key for note in notes if note is not None and self._is_of_the_dead(note)]

    def write(self, key: SessionKey) -> None:
        """Note the session that the node has now, in place of every earlier one."""
        locks = [directory.lock_identity for directory in self._directories.live.values()]
        known = frozenset(identity for identity in locks if identity is not None)
        if len(known) < len(locks):  # a kernel that does not tell its boot id
            return
        note = SessionNote(key=key, zookeeper=self._zookeeper, cluster_id=self._cluster_id, locks=known)
        is_written = False
        for directory in self._directories.live.values():
            try:
                if is_written:
                    directory.session_note.remove()
                else:
                    directory.session_note.write(note.encode())
                    is_written = True
            except StorageError as error:
                _log.warning("session_note_not_written", reason=str(error))

    def remove(self) -> None:
        """Leave no note, as the session is about to end in order."""
        for directory in self._directories.live.values():
            try:
                directory.session_note.remove()
            except StorageError as error:
                _log.warning("session_note_not_removed", reason=str(error))

    def _read(self, file: PrivateNote) -> SessionNote | None:
        try:
            data = file.read()
            return SessionNote.decode(data, str(file.path)) if data is not None else None
        except (StorageError, CoordinationError) as error:
            _log.warning("session_note_ignored", reason=str(error))
            return None

    def _is_of_the_dead(self, note: SessionNote) -> bool:
        held = {directory.lock_identity for directory in self._directories.live.values()}
        return (
            note.zookeeper == self._zookeeper
            and note.cluster_id == self._cluster_id
            and bool(note.locks)
            and note.locks <= held
        )

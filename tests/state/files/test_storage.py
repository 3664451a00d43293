"""The durable local writer: a name is created at most once, whole, durable and for its owner only
(hazard rule HD1).
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.rights import umask
from tests.state.conftest import snapshot
from twophase.errors import ConfigError, CorruptRecordError
from twophase.state.files import storage as module
from twophase.state.files.storage import (
    AlreadyExistsError,
    LocalStorage,
    ReadOnlyStorage,
    UnclearOutcomeError,
)

NAME = "log/0000000001"
Patch = pytest.MonkeyPatch


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def temporaries(folder: Path) -> list[Path]:
    return list(folder.rglob(".tmp-*"))


# -- create and read -------------------------------------------------------------------------------


def test_what_is_created_is_read(storage: LocalStorage) -> None:
    storage.create(NAME, b"data")
    assert storage.read(NAME) == b"data"
    assert storage.names("log") == ["0000000001"]


def test_an_empty_file_is_created_and_read(storage: LocalStorage) -> None:
    storage.create(NAME, b"")
    assert storage.read(NAME) == b""


def test_a_name_is_created_once_and_never_replaced(storage: LocalStorage, folder: Path) -> None:
    storage.create(NAME, b"first")
    with pytest.raises(AlreadyExistsError):
        storage.create(NAME, b"second")
    assert storage.read(NAME) == b"first"
    assert temporaries(folder) == []


def test_a_name_taken_by_a_dangling_link_is_taken(storage: LocalStorage, folder: Path) -> None:
    storage.create("log/other", b"")
    (folder / NAME).symlink_to("nowhere")
    with pytest.raises(AlreadyExistsError):
        storage.create(NAME, b"data")
    assert not (folder / "log" / "nowhere").exists()


def test_nothing_is_left_of_the_temporary_name(storage: LocalStorage, folder: Path) -> None:
    storage.create(NAME, b"data")
    assert temporaries(folder) == []
    assert (folder / NAME).stat().st_nlink == 1


def test_a_missing_name_is_named_as_missing(storage: LocalStorage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read(NAME)
    assert storage.names("log") == []


def test_a_short_write_is_continued(storage: LocalStorage, monkeypatch: Patch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    storage.create(NAME, b"0123456789")
    assert storage.read(NAME) == b"0123456789"


def test_torn_temporary_names_are_no_names(storage: LocalStorage, folder: Path) -> None:
    storage.create(NAME, b"data")
    (folder / "log" / ".tmp-0000000002-0011223344556677").write_bytes(b"to")
    assert storage.names("log") == ["0000000001"]
    storage.create("log/0000000002", b"data")


def test_more_than_can_be_read_back_is_not_written(
    storage: LocalStorage, folder: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    with pytest.raises(OSError, match="11 bytes, more than 10"):
        storage.create(NAME, b"x" * 11)
    storage.create(NAME, b"x" * 10)
    assert storage.read(NAME) == b"x" * 10


def test_a_folder_goes_with_its_torn_temporary_names(storage: LocalStorage, folder: Path) -> None:
    storage.create("chk/a/_metadata", b"data")
    (folder / "chk" / "a" / ".tmp-_metadata-0011223344556677").write_bytes(b"da")
    storage.delete("chk/a/_metadata")
    storage.delete("chk/a")
    assert storage.names("chk") == []


def test_deleting_what_is_not_there_is_done(storage: LocalStorage) -> None:
    storage.delete("chk/a/_metadata")
    storage.delete("chk/a")


def test_a_folder_that_holds_something_is_not_deleted(storage: LocalStorage) -> None:
    storage.create("chk/a/_metadata", b"data")
    with pytest.raises(OSError, match="not empty"):
        storage.delete("chk/a")
    assert storage.read("chk/a/_metadata") == b"data"


RACER = """
import sys
from twophase.state.files.storage import AlreadyExistsError, LocalStorage

storage = LocalStorage(sys.argv[1])
for line in sys.stdin:
    try:
        storage.create(line.strip(), sys.argv[2].encode())
        print("won", flush=True)
    except AlreadyExistsError:
        print("lost", flush=True)
"""


def test_of_racing_processes_exactly_one_creates_a_name(folder: Path) -> None:
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RACER, str(folder), str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    text=True,
                    bufsize=1,
                )
            )
            for number in range(3)
        ]
        storage = LocalStorage(folder)
        for turn in range(50):
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"log/{turn}\n")
            replies = [
                racer.stdout.readline().strip() for racer in racers if racer.stdout is not None
            ]
            assert sorted(replies) == ["lost", "lost", "won"]
            assert storage.read(f"log/{turn}") == str(replies.index("won")).encode()
    assert temporaries(folder) == []


# -- rights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_folders_are_0700_and_files_0600_whatever_the_umask(folder: Path, mask: int) -> None:
    with umask(mask):
        LocalStorage(folder / "made").create("chk/a/_metadata", b"data")
    made = folder / "made"
    assert [mode(path) for path in (folder, made, made / "chk", made / "chk" / "a")] == [0o700] * 4
    assert mode(made / "chk" / "a" / "_metadata") == 0o600


@pytest.mark.parametrize("rights", [0o777, 0o1777, 0o702])
def test_a_folder_that_everybody_may_write_to_is_refused(tmp_path: Path, rights: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(rights)
    with pytest.raises(ConfigError, match=r"open is writable by everyone.*Next: run: chmod o-w"):
        LocalStorage(folder)


def test_a_folder_whose_parent_lets_everybody_replace_it_is_refused_and_not_made(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="is writable by everyone"):
        LocalStorage(tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_a_folder_below_one_with_the_sticky_bit_is_accepted(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    LocalStorage(tmp_path / "job").create(NAME, b"data")


def in_group(
    monkeypatch: pytest.MonkeyPatch, folder: Path, listed: list[str], primary: list[str]
) -> None:
    """Let the machine know these accounts: listed in the folder's group, or
    with it as their own.
    """
    found = folder.stat()
    users = [SimpleNamespace(pw_name=name, pw_uid=70_000, pw_gid=1) for name in listed]
    users += [SimpleNamespace(pw_name=name, pw_uid=70_001, pw_gid=found.st_gid) for name in primary]
    users.append(SimpleNamespace(pw_name="etl", pw_uid=found.st_uid, pw_gid=found.st_gid))
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_mem=[*listed, "etl"]))


@pytest.mark.parametrize("rights", [0o770, 0o2775, 0o720])
@pytest.mark.parametrize(("listed", "primary"), [(["mallory"], []), ([], ["mallory"])])
def test_a_folder_that_a_group_of_several_may_write_to_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rights: int,
    listed: list[str],
    primary: list[str],
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(rights)
    in_group(monkeypatch, folder, listed, primary)
    with pytest.raises(
        ConfigError,
        match=r"writable by its group, whose members include mallory: .*Next: run: chmod g-w",
    ) as caught:
        LocalStorage(folder)
    subprocess.run(shlex.split(caught.value.remedy.removeprefix("run: ")), check=True)
    LocalStorage(folder).create(NAME, b"data")


def test_a_group_that_is_the_user_s_alone_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with umask 002, where each user has a group of the same name."""
    folder = tmp_path / "own"
    folder.mkdir()
    folder.chmod(0o775)
    in_group(monkeypatch, folder, [], [])
    LocalStorage(folder).create(NAME, b"data")


def test_a_group_without_a_name_has_nobody_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes mounts a volume with fsGroup."""
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o2770)
    in_group(monkeypatch, folder, [], [])
    monkeypatch.setattr(grp, "getgrgid", {}.__getitem__)
    LocalStorage(folder).create(NAME, b"data")


def test_a_folder_below_one_that_a_group_administers_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o2775)
    in_group(monkeypatch, tmp_path, ["mallory"], [])
    LocalStorage(tmp_path / "job").create(NAME, b"data")


# -- where the folder may be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/job",
        "s3a://bucket/job",
        "gs://bucket/job",
        "abfss://container@account/job",
        "hdfs://name/job",
        "hdfs:/job",
        "dbfs:/mnt/job",
        "http://host/job",
        "FILE:///job",
        "memory://job",
    ],
)
def test_another_storage_is_refused_because_its_create_is_not_proven_atomic(
    url: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match="is not supported: its create-if-absent is not proven to be atomic"
    ):
        LocalStorage(url)
    assert list(tmp_path.iterdir()) == []
    LocalStorage(tmp_path / "job").create(NAME, b"data")


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost"])
def test_a_local_folder_may_be_given_as_path_or_file_url(tmp_path: Path, prefix: str) -> None:
    assert LocalStorage(f"{prefix}{tmp_path}/job").root == tmp_path / "job"


@pytest.mark.parametrize("url", ["file://host/job", "file://job"])
def test_a_file_url_of_another_machine_is_refused(
    url: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is on another machine"):
        LocalStorage(url)
    assert list(tmp_path.iterdir()) == []


def test_a_path_with_nul_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a path"):
        LocalStorage("/tmp/a\0b")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        LocalStorage(tmp_path / "job")
    LocalStorage(tmp_path / "another").create(NAME, b"data")


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "job").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is not a folder"):
        LocalStorage(tmp_path / "job")
    LocalStorage(tmp_path / "elsewhere").create(NAME, b"data")


def test_a_folder_that_is_only_read_and_is_not_there_is_refused_by_its_option(
    storage: LocalStorage, folder: Path
) -> None:
    storage.create(NAME, b"data")
    with pytest.raises(ConfigError, match="There is no folder") as caught:
        ReadOnlyStorage(folder.with_name("jbo"), "checkpointLocation")
    assert caught.value.remedy == "name the job's checkpointLocation."
    assert ReadOnlyStorage(folder, "checkpointLocation").read(NAME) == b"data"


# -- what is found there ---------------------------------------------------------------------------


def link(path: Path) -> None:
    (path.parent / "target").write_bytes(b"data")
    path.symlink_to("target")


def oversize(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


PLACES: dict[str, Callable[[Path], object]] = {
    "a link": link,
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a terabyte": oversize,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_only_a_plain_file_of_bounded_size_is_read(
    storage: LocalStorage, folder: Path, place: Callable[[Path], object]
) -> None:
    storage.create("log/other", b"")
    place(folder / NAME)
    with pytest.raises(
        CorruptRecordError,
        match=r"is (a symbolic link|not a regular file|1099511627776 bytes long)",
    ):
        storage.read(NAME)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["a link", "a dangling link", "a pipe"])
def test_only_plain_files_are_synced(storage: LocalStorage, folder: Path, kind: str) -> None:
    storage.create("log/other", b"")
    PLACES[kind](folder / NAME)
    with pytest.raises(CorruptRecordError):
        storage.sync("log")


def test_a_file_in_the_place_of_a_folder_is_named_as_such(
    storage: LocalStorage, folder: Path
) -> None:
    (folder / "log").write_bytes(b"")
    with pytest.raises(CorruptRecordError, match="log is not a folder"):
        storage.names("log")


def test_a_linked_log_folder_is_refused(storage: LocalStorage, folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "log").symlink_to("elsewhere")
    with pytest.raises(CorruptRecordError, match="log is a symbolic link"):
        storage.sync("log")


# -- durability and errors -------------------------------------------------------------------------


class Tape:
    """Records what the writer asks of the operating system, and fails where it is told to."""

    def __init__(self, monkeypatch: Patch) -> None:
        self.calls: list[str] = []
        self.fail: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._real = {
            name: getattr(os, name)
            for name in ("open", "write", "fsync", "link", "mkdir", "unlink")
        }
        for name in self._real:
            monkeypatch.setattr(os, name, getattr(self, f"_{name}"))

    def _note(self, verb: str, path: object) -> None:
        name = Path(os.fspath(str(path))).name
        call = f"{verb} {'temporary' if name.startswith('.tmp-') else name}"
        self.calls.append(call)
        if call in self.fail:
            raise OSError(self.fail[call], os.strerror(self.fail[call]), str(path))

    def _open(self, path: Any, flags: int, mode: int = 0o777, **rest: Any) -> int:
        if flags & os.O_CREAT:
            self._note("create", path)
        descriptor: int = self._real["open"](path, flags, mode, **rest)
        self._paths[descriptor] = str(path)
        return descriptor

    def _write(self, descriptor: int, data: Any) -> int:
        if descriptor in self._paths:
            self._note("write", self._paths[descriptor])
        return int(self._real["write"](descriptor, data))

    def _fsync(self, descriptor: int) -> None:
        self._note("fsync", self._paths[descriptor])
        self._real["fsync"](descriptor)

    def _link(self, source: Any, target: Any, **rest: Any) -> None:
        self._note("link", target)
        self._real["link"](source, target, **rest)

    def _mkdir(self, path: Any, mode: int = 0o777, **rest: Any) -> None:
        self._note("mkdir", path)
        self._real["mkdir"](path, mode, **rest)

    def _unlink(self, path: Any, **rest: Any) -> None:
        self._note("unlink", path)
        self._real["unlink"](path, **rest)


@pytest.fixture
def tape(storage: LocalStorage, monkeypatch: Patch) -> Tape:
    storage.create("log/other", b"")
    return Tape(monkeypatch)


def test_a_name_is_written_synced_linked_and_its_folder_synced_in_this_order(
    storage: LocalStorage, tape: Tape
) -> None:
    storage.create(NAME, b"data")
    assert tape.calls == [
        "create temporary",
        "write temporary",
        "write temporary",
        "fsync temporary",
        "link 0000000001",
        "fsync log",
        "unlink temporary",
    ]


def test_a_new_folder_is_durable_before_anything_is_written_into_it(
    storage: LocalStorage, tape: Tape
) -> None:
    storage.create("chk/a/_metadata", b"data")
    assert tape.calls[:4] == ["mkdir chk", "fsync job", "mkdir a", "fsync chk"]
    assert tape.calls[4] == "create temporary"


def test_a_reader_syncs_every_file_and_the_folders_that_lead_to_them(
    storage: LocalStorage, tape: Tape
) -> None:
    storage.create(NAME, b"data")
    tape.calls.clear()
    storage.sync("log")
    assert tape.calls == ["fsync 0000000001", "fsync other", "fsync log", "fsync job"]


def test_a_name_that_vanishes_while_it_is_synced_is_not_missed(
    storage: LocalStorage, monkeypatch: Patch
) -> None:
    storage.create(NAME, b"data")
    monkeypatch.setattr(storage, "names", lambda folder: ["0000000000", "0000000001"])
    storage.sync("log")


CERTAIN = [
    ("create temporary", errno.ENOSPC),
    ("create temporary", errno.EROFS),
    ("create temporary", errno.EMFILE),
    ("write temporary", errno.ENOSPC),
    ("write temporary", errno.EIO),
    ("write temporary", errno.EDQUOT),
    ("fsync temporary", errno.EIO),
    ("fsync temporary", errno.ENOSPC),
    ("link 0000000001", errno.ENOSPC),
    ("link 0000000001", errno.EDQUOT),
    ("link 0000000001", errno.EMLINK),
]
UNCLEAR = [
    ("link 0000000001", errno.EIO),
    ("link 0000000001", errno.ETIMEDOUT),
    ("link 0000000001", errno.ESTALE),
    ("fsync log", errno.EIO),
    ("fsync log", errno.ENOSPC),
]


@pytest.mark.parametrize(("where", "number"), CERTAIN)
def test_an_error_before_the_link_says_certainly_not_created_and_that_is_so(
    storage: LocalStorage, folder: Path, tape: Tape, where: str, number: int
) -> None:
    before = snapshot(folder)
    tape.fail[where] = number
    with pytest.raises(OSError, match=os.strerror(number)):
        storage.create(NAME, b"data")
    assert snapshot(folder) == before
    tape.fail.clear()
    storage.create(NAME, b"data")
    assert storage.read(NAME) == b"data"


@pytest.mark.parametrize(("where", "number"), UNCLEAR)
def test_an_error_at_the_link_or_after_it_is_unclear(
    storage: LocalStorage, tape: Tape, where: str, number: int
) -> None:
    tape.fail[where] = number
    with pytest.raises(UnclearOutcomeError):
        storage.create(NAME, b"data")


@pytest.mark.parametrize(("where", "number"), UNCLEAR)
def test_h21_an_unclear_outcome_stays_unclear_on_a_file_system_that_went_read_only(
    storage: LocalStorage, tape: Tape, where: str, number: int
) -> None:
    tape.fail[where] = number
    tape.fail["unlink temporary"] = errno.EROFS
    with pytest.raises(UnclearOutcomeError):
        storage.create(NAME, b"data")


def test_a_temporary_name_that_cannot_be_dropped_does_not_undo_the_creation(
    storage: LocalStorage, tape: Tape
) -> None:
    tape.fail["unlink temporary"] = errno.EIO
    storage.create(NAME, b"data")
    assert storage.read(NAME) == b"data"
    assert storage.names("log") == ["0000000001", "other"]


def test_after_a_failed_sync_the_next_try_uses_a_new_file(
    storage: LocalStorage, tape: Tape, monkeypatch: Patch
) -> None:
    tape.fail["fsync temporary"] = errno.EIO
    tape.fail["unlink temporary"] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        storage.create(NAME, b"data")
    tape.fail.clear()
    storage.create(NAME, b"data")
    assert storage.read(NAME) == b"data"


@pytest.mark.parametrize("where", ["mkdir chk", "fsync job", "mkdir a", "fsync chk"])
def test_an_error_while_a_folder_is_made_says_certainly_not_created(
    storage: LocalStorage, folder: Path, tape: Tape, where: str
) -> None:
    tape.fail[where] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        storage.create("chk/a/_metadata", b"data")
    assert not (folder / "chk" / "a" / "_metadata").exists()

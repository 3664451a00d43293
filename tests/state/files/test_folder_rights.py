"""A volume of a container is writable by everyone who is there: the job alone."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from harness.volumes import volume
from twophase.cli.main import main
from twophase.engine.engine import Engine
from twophase.errors import ConfigError
from twophase.events import Observers
from twophase.internals import volumes
from twophase.options.job_options import JobOptions
from twophase.state.files.folder_rights import check_owner
from twophase.state.files.storage import LocalStorage

__all__ = ["volume"]


@pytest.mark.parametrize("rights", [0o777, 0o2777])
@pytest.mark.parametrize("below", ["job", "jobs/orders"])
def test_a_folder_inside_a_volume_is_made_and_found_again(
    volume: Path, rights: int, below: str
) -> None:
    volume.chmod(rights)
    for _ in range(2):
        assert LocalStorage(volume / below).root.stat().st_mode & 0o777 == 0o700


def test_the_volume_itself_is_refused_with_a_remedy_that_a_pod_can_follow(volume: Path) -> None:
    with pytest.raises(ConfigError, match="is writable by everyone") as caught:
        LocalStorage(volume)
    path = caught.value.remedy.rpartition(": ")[2]
    assert Path(path).parent == volume
    LocalStorage(path)


def test_a_folder_of_another_account_in_a_volume_is_refused(volume: Path) -> None:
    (volume / "job").symlink_to(volume)
    with pytest.raises(ConfigError, match="is writable by everyone"):
        LocalStorage(volume / "job" / "orders")
    (volume / "theirs").mkdir()
    if os.geteuid() == 0:
        os.chown(volume / "theirs", 12345, 12345)
        with pytest.raises(ConfigError, match="is writable by everyone"):
            LocalStorage(volume / "theirs")


def test_elsewhere_such_a_folder_is_refused(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (volume / "open").mkdir()
    (volume / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="run: chmod o-w"):
        LocalStorage(volume / "open" / "job")
    monkeypatch.setattr(volumes, "_CONTAINER_FILES", ())
    with pytest.raises(ConfigError, match="run: chmod o-w"):
        LocalStorage(volume / "job")


_MOUNTED = """
mount -t tmpfs -o mode="$2" none "$1" || exit 77
exec "$0" -c "
import sys
from twophase.errors import ConfigError
from twophase.state.files.storage import LocalStorage
for _ in range(2):
    print(oct(LocalStorage(sys.argv[1] + '/jobs/orders').root.stat().st_mode & 0o777))
try:
    LocalStorage(sys.argv[1])
except ConfigError as error:
    LocalStorage(error.remedy.rpartition(': ')[2])
    print('as the remedy says')
" "$1"
"""


@pytest.mark.parametrize("rights", ["0777", "2777"])
def test_a_volume_that_is_really_mounted(tmp_path: Path, rights: str) -> None:
    """In a mount namespace of its own, which only root can make: nothing of it is left."""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _MOUNTED, sys.executable, str(tmp_path), rights],
        env={**os.environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and "Traceback" not in done.stderr:
        pytest.skip(f"no mount can be made here: {done.stderr}")
    assert done.stdout.splitlines() == ["0o700", "0o700", "as the remedy says"], done.stderr
    assert not any(tmp_path.iterdir())


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into others' folders")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of a job that an account runs; it was made beforehand, for others to look into."""
    folder = tmp_path / "job"
    folder.mkdir(mode=0o755)
    LocalStorage(folder).create("log/1", b"")
    for path in (folder, folder / "log", folder / "log" / "1"):
        os.chown(path, 12345, 12345)
    return folder


@as_root
def test_root_does_not_write_what_the_jobs_account_could_not_read(job: Path) -> None:
    with pytest.raises(ConfigError, match="the job runs as the account #12345") as caught:
        check_owner(job)
    LocalStorage(job).read("log/1")
    run = caught.value.remedy.rpartition("run: ")[2]
    subprocess.run(shlex.split(run), check=True)
    check_owner(job)


@as_root
def test_root_runs_a_job_in_a_folder_of_another_account(tmp_path: Path) -> None:
    """A container's volume, say."""
    (tmp_path / "job").mkdir(mode=0o755)
    os.chown(tmp_path / "job", 12345, 12345)
    check_owner(tmp_path / "job")
    LocalStorage(tmp_path / "job").create("log/1", b"")
    check_owner(tmp_path / "job")


@as_root
def test_root_writes_where_the_file_system_gives_all_files_to_one_account(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an NFS export does with `all_squash`."""

    def squashed(**given: Any) -> Any:
        file = TemporaryFile(**given)  # noqa: SIM115 the caller closes it
        os.chown(file.fileno(), 12345, 12345)
        return file

    monkeypatch.setattr("twophase.state.files.folder_rights.TemporaryFile", squashed)
    check_owner(job)


@as_root
def test_where_root_cannot_write_there_is_nothing_to_refuse(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only = mock.Mock(side_effect=OSError(errno.EROFS, "Read-only file system"))
    monkeypatch.setattr("twophase.state.files.folder_rights.TemporaryFile", read_only)
    check_owner(job)


@as_root
def test_every_command_that_writes_for_the_job_asks(job: Path) -> None:
    options = JobOptions.parse({"checkpointLocation": str(job)}, "job")
    with pytest.raises(ConfigError, match="the job runs as the account"):
        Engine(mock.Mock(), "orders", {}, options, Observers())
    file = job.parent / "orders.yaml"
    file.write_text(
        f"""
name: orders
source: {{format: twophase-kafka, schema: id long, options: {{}}}}
sinks: {{lake: {{type: file, options: {{path: {job.parent}/lake, format: json}}}}}}
options: {{checkpointLocation: {job}}}
"""
    )
    for command in (
        ["repair", "adopt-from-target", str(file)],
        ["savepoint", "create", str(file), str(job.parent / "saved")],
    ):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == ConfigError.exit_code, result.output
        assert "the job runs as the account #12345" in " ".join(result.output.split())

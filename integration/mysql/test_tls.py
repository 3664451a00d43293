"""An authority is replaced under a running job: the server gets another certificate first, and the
job's file of authorities follows.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from harness.certificate_authority import FolderAuthority
from integration.mysql.plain_job import MySqlJob
from integration.mysql.sink_harness import MySqlHarness
from twophase.errors import PreflightError
from twophase.events import CheckpointDecided, CheckpointTriggered, CommitRetried, JobRestarting
from twophase.testing.services import MariaDbService

pytestmark = pytest.mark.part("mysql")

ONE = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("when", ["write", "commit"])
def test_a_job_goes_on_when_its_file_has_the_new_authority(tmp_path: Path, when: str) -> None:
    """MariaDB reads its certificate again while it runs; MySQL 8.0.12 would have to restart."""
    authorities = []
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        authorities.append(FolderAuthority(tmp_path / name))
    before, after = authorities
    trusted, certificate = tmp_path / "trusted.pem", tmp_path / "server.pem"
    shutil.copy(before.file, trusted)
    shutil.copy(before.server_file("127.0.0.1"), certificate)
    options = [f"--ssl-cert={certificate}", f"--ssl-key={certificate}"]
    with MariaDbService(own=True, local_infile=True, server_options=options) as server:
        harness = MySqlHarness(
            server, "id BIGINT PRIMARY KEY", ONE, tls="verify_identity", tls_ca=str(trusted)
        )
        job = MySqlJob(harness, tmp_path / "job", [[[{"id": number}]] for number in range(3)])

        def replace() -> None:
            shutil.copy(after.server_file("127.0.0.1"), certificate)
            with closing(server.connect()) as admin, admin.cursor() as cursor:
                cursor.execute("FLUSH SSL")
            harness.end_sessions()

        job.on(CheckpointTriggered if when == "write" else CheckpointDecided, replace, at=2)
        retried = JobRestarting if when == "write" else CommitRetried
        job.on(retried, lambda: shutil.copy(after.file, trusted), at=3)
        assert job.run() is None
        assert any("CERTIFICATE_VERIFY_FAILED" in str(event) for event in job.events)
        assert harness.ids() == [0, 1, 2]
        assert job.leaves_nothing()


def test_a_server_that_refuses_sessions_without_tls_takes_one_that_has_it(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    certificate = authority.server_file("127.0.0.1")
    options = [f"--ssl-cert={certificate}", f"--ssl-key={certificate}"]
    with MariaDbService(own=True, local_infile=True, server_options=options) as server:
        harness = MySqlHarness(server, "id BIGINT PRIMARY KEY", ONE)
        with closing(server.connect()) as admin, admin.cursor() as cursor:
            cursor.execute("SET GLOBAL require_secure_transport = 1")
            with pytest.raises(PreflightError, match=r"\(1045\).* requires TLS \(tls\)"):
                harness.opened()
            harness.opened(tls="verify_identity", tls_ca=str(authority.file)).close()
            cursor.execute("SET GLOBAL require_secure_transport = 0")

"""What a declared sink tells and does before it is open: every sink has these methods."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from twophase.contract.outcome import Committed
from twophase.contract.sink import Sink
from twophase.errors import TwoPhaseError
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import FIRST, SinkHarness, transaction_id


class BeforeOpenContract(ContractBase):
    """`check_connection`, `spark_conf` and `rehearsal`; `needs_spark` is in `SinkKillContract`."""

    def test_an_early_look_leaves_nothing_behind(self, harness: SinkHarness) -> None:
        declared, before, files = harness.new_sink(), harness.contents(), _files_in_use()
        declared.check_connection()
        _check_closed(files)
        assert harness.contents() == before

    def test_an_early_look_tells_what_open_would_tell(self, harness: SinkHarness) -> None:
        declared = harness.unreachable()
        if declared is None:
            early = type(harness.new_sink()).check_connection
            assert early is Sink.check_connection, "override SinkHarness.unreachable"
            return
        files = _files_in_use()
        with pytest.raises(TwoPhaseError) as late:
            declared.open(self.context())
        with pytest.raises(TwoPhaseError) as early_one:
            declared.check_connection()
        assert type(early_one.value) is type(late.value)
        _check_closed(files)

    def test_the_settings_for_spark_are_text_and_need_no_target(self, harness: SinkHarness) -> None:
        for declared in (harness.new_sink(), harness.unreachable()):
            if declared is not None:
                _check_text(declared.spark_conf())

    def test_a_rehearsal_writes_into_its_folder_alone(
        self, harness: SinkHarness, tmp_path: Path
    ) -> None:
        """It is carried out here unless it needs settings that this Spark was not started with."""
        folder, here = tmp_path / "rehearsal", tmp_path / "working-folder"
        folder.mkdir()
        here.mkdir()
        before = harness.contents()
        with chdir(here):
            found = type(harness.new_sink()).rehearsal(folder)
            if found is None:
                return
            sink, settings = found
            assert isinstance(sink, Sink)
            _check_text(settings)
            if not settings:
                self._write(sink)
                assert [*folder.iterdir()], "it has written nothing here"
        assert [*here.iterdir()] == []
        assert harness.contents() == before

    def _write(self, declared: Sink) -> None:
        sink = declared.open(self.context())
        sink.fence(FIRST)
        made = self.prepare(sink, range(3), transaction_id())
        assert self.commit(sink, made) == [Committed()] * len(made)
        sink.close()


def _check_text(found: Mapping[str, str]) -> None:
    assert all(type(one) is str for pair in found.items() for one in pair), found


def _files_in_use() -> set[str]:
    """Return the open files, without those of garbage: a client in it, which threads of its own
    serve, would open others during the look.
    """
    gc.collect()
    return _open_files()


def _check_closed(files: set[str]) -> None:
    sparks = _ports_of_spark()
    found = {file: _ports(file) for file in _open_files() - files}
    left = {file: ports for file, ports in found.items() if sparks.isdisjoint(ports)}
    shown = ", ".join(map(_shown, left, left.values()))
    assert not left, f"a session or a file stays open: {shown}"


def _ports_of_spark() -> set[int]:
    """Return the ports at which this process and the JVM of its Spark call each other, if it has
    one: a thread of py4j connects, on either side, once something of the other's is collected.
    """
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return set()
    server = gateway.get_callback_server()
    return {gateway.gateway_parameters.port} | ({server.get_listening_port()} if server else set())


def _ports(file: str) -> Sequence[int]:
    """Return the ports of a connection, that of this end first; of any other file none."""
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, _, _, inode, *_ = line.split()
            if file == f"socket:[{inode}]":
                return [int(end.rpartition(":")[2], 16) for end in (local, remote)]
    return []


def _shown(file: str, ports: Sequence[int]) -> str:
    return "{}, port {} to port {}".format(file, *ports) if ports else file


def _open_files() -> set[str]:
    """Return what the descriptors of this process lead to: sockets by number, files by name."""
    found = set[str]()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the look itself
            found.add(str(entry.readlink()))
    return found

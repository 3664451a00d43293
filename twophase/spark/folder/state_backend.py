"""The state store that Spark keeps a job's keyed state in: `state.backend`.

A query takes the class of its state store from the session that starts it, and notes it with the
offsets of each micro-batch. From then on the note wins over the session, with a line in Spark's
log and nothing else (seen with Spark 4.2): a job cannot change its backend. Whether RocksDB writes
changelogs is noted nowhere, and RocksDB reads both forms.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twophase.errors import ConfigError
from twophase.options.job_options import JobOptions, StateBackend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_CLASSES = {
    StateBackend.HASHMAP: (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    StateBackend.ROCKSDB: (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_ROCKSDB = _CLASSES[StateBackend.ROCKSDB]
_SWITCH = (
    "No tool moves state between backends: to switch, start the job without its state in a new "
    "checkpointLocation."
)
_starting = threading.Lock()


def wanted_settings(job: str, options: JobOptions, session: SparkSession) -> Mapping[str, str]:
    """Return Spark's settings for the query of a job; empty without an option for the backend.

    Raises:
        ConfigError: an option contradicts what the user has set in Spark, or has no effect.
    """
    with _starting:  # another job of this session may be starting
        return _wanted(job, options, session)


def _wanted(job: str, options: JobOptions, session: SparkSession) -> Mapping[str, str]:
    backend, incremental = options.state_backend, options.state_backend_incremental
    wanted = {}
    if backend is not None:
        wanted[PROVIDER] = _CLASSES[backend]
    if incremental is not None:
        wanted[CHANGELOG] = str(incremental).lower()
    for key, value in wanted.items():
        given = session.conf.get(key, None)
        if given is not None and given.strip().lower() != value.lower():
            raise _contradiction(job, key, given, options)
    if backend is StateBackend.ROCKSDB and session.conf.get(CHANGELOG, None) is None:
        wanted.setdefault(CHANGELOG, "true")
    provider = wanted.get(PROVIDER) or session.conf.get(PROVIDER)
    if incremental is not None and provider != _ROCKSDB:
        raise ConfigError(
            f"Job {job!r}: state.backend.incremental applies to RocksDB only, but Spark keeps the "
            f"job's state in {provider}. Nothing was written.",
            remedy="set `state.backend=rocksdb`, or leave state.backend.incremental out.",
        )
    return wanted


def check_noted(job: str, options: JobOptions, header: str) -> None:
    """Check that the state that a job continues with is of the backend that its options name.

    Args:
        job: the job's name.
        options: of the job.
        header: what Spark noted with the offsets of the newest micro-batch; empty if there is none.

    Raises:
        ConfigError: it is of another one.
    """
    noted = noted_provider(header)
    if options.state_backend is None or noted in ("", _CLASSES[options.state_backend]):
        return
    name = _name_of(noted)
    remedy = f"set `state.backend={name}`, or leave it out. {_SWITCH}"
    if name == noted:
        remedy = f"leave state.backend out. {_SWITCH}"
    raise ConfigError(
        f"Job {job!r}: state.backend is {options.state_backend}, but {name} wrote the state that "
        f"the job continues with, and Spark would use {name} whatever is set. "
        "Nothing was written.",
        remedy=remedy,
    )


def noted_provider(header: str) -> str:
    """Return the class that Spark noted; empty if it did not say."""
    try:
        return str(json.loads(header)["conf"][PROVIDER])
    except (ValueError, KeyError, TypeError):
        return ""


def is_rocksdb(header: str) -> bool:
    """Return whether Spark noted that it keeps state in RocksDB."""
    return noted_provider(header) == _ROCKSDB


@contextmanager
def applied(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have settings in a session for the block in which a query starts.

    A query has a copy of the session's settings from its start on, so the session then gets its own
    again. Queries of other jobs start before or after, also those without settings.
    """
    with _starting:
        before = {key: session.conf.get(key, None) for key in settings}
        try:
            for key, value in settings.items():
                session.conf.set(key, value)
            yield
        finally:
            for key, old in before.items():
                session.conf.unset(key) if old is None else session.conf.set(key, old)


def _name_of(provider: str) -> str:
    return next((name.value for name, one in _CLASSES.items() if one == provider), provider)


def _contradiction(job: str, key: str, given: str, options: JobOptions) -> ConfigError:
    if key == PROVIDER:
        option = f"state.backend is {options.state_backend}"
    else:
        option = f"state.backend.incremental is {str(options.state_backend_incremental).lower()}"
    return ConfigError(
        f"Job {job!r}: {option}, but {key} is {given}. Nothing was written.",
        remedy="leave out either the option or Spark's setting.",
    )

"""The table that rows go to, as its writers need it; the sink takes it to the executors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.sinks.paimon.private_api import PaimonTable, Schema


@dataclass(frozen=True)
class WrittenTable:
    """One version of a table, for the writers of one job and sink, which compute the rest.

    Attributes:
        area: the staging area of the job and sink, in the table's folder.
        target: the target's identity (I10).
        location: the table's folder.
        name: its name.
        schema_json: its schema.
        base: the id of its newest snapshot, 0 if there is none.
    """

    area: StagingArea
    target: str
    location: Path
    name: str
    schema_json: str
    base: int

    @cached_property
    def table(self) -> PaimonTable:
        """The table."""
        return PaimonTable(self.location, self.name, Schema.decode(self.schema_json))

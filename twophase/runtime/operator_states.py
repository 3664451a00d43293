"""The operator state of a job: of its sources and checkpointed functions, in every checkpoint.

A source's state is built from its line in Spark's offset log, for any Spark source: list state, one
entry per partition for `twophase-kafka`, a single entry for others. Within a lineage Spark's offset
log is the truth and the state a copy; across lineages the state is the truth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twophase.config import JobOptions
from twophase.errors import ConfigError
from twophase.protocol.listener import (
    CheckpointedFunction,
    CheckpointListener,
    InitializationContext,
    SnapshotContext,
)
from twophase.runtime.logical_plan import KAFKA, SourceLeg
from twophase.sources.kafka import state as kafka
from twophase.state.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.operator_state import Redistribution

_FILE_SOURCE = "FileSource["


class OperatorStates:
    """Snapshots and restores the operator states of one job.

    Args:
        legs: the sources of the plan, in plan order.
        functions: by name.
    """

    def __init__(
        self, legs: Sequence[SourceLeg], functions: Mapping[str, CheckpointedFunction]
    ) -> None:
        self._legs = legs
        self._functions = functions

    def listeners(self) -> list[CheckpointListener]:
        """Return the functions that also listen to checkpoints."""
        return [
            function
            for function in self._functions.values()
            if isinstance(function, CheckpointListener)
        ]

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> Mapping[str, Any]:
        """Return the states for a checkpoint, as JSON values."""
        context = SnapshotContext(checkpoint)
        return {
            "sources": [
                _source_state(leg, line) for leg, line in zip(self._legs, offsets.end, strict=True)
            ],
            "functions": {
                name: function.snapshot_state(context) for name, function in self._functions.items()
            },
        }

    def initialize(self, checkpoint: CompletedCheckpoint | None) -> None:
        """Give every function its state from the newest decided checkpoint."""
        states = checkpoint.operator_states.get("functions", {}) if checkpoint else {}
        for name, function in self._functions.items():
            function.initialize_state(
                InitializationContext(states.get(name, {}), is_restored=name in states)
            )

    def reads_same_sources(self, checkpoint: CompletedCheckpoint) -> bool:
        """Return whether a checkpoint has the state of the job's sources, in the same order."""
        sources = checkpoint.operator_states.get("sources", [])
        return [state["format"] for state in sources] == [leg.name for leg in self._legs]

    def check_functions(self, checkpoint: CompletedCheckpoint, options: JobOptions) -> None:
        """Check that the job has a place for the state of every function.

        Raises:
            ConfigError: it has none, and the options do not allow that.
        """
        surplus = self._surplus_functions(checkpoint)
        if surplus and not options.allow_non_restored_state:
            raise _has_no_place(checkpoint, surplus)

    def _surplus_functions(self, checkpoint: CompletedCheckpoint) -> list[str]:
        functions = checkpoint.operator_states.get("functions", {})
        return [name for name in functions if name not in self._functions]

    def start_offsets(
        self, checkpoint: CompletedCheckpoint, options: JobOptions
    ) -> tuple[str | None, ...]:
        """Return the offset line that each source of a new lineage begins with.

        Raises:
            ConfigError: the state has a source or function that the job does not have, and the
                options do not allow that; or a source can only go on in its own folder.
        """
        if bound := [leg.name for leg in self._legs if leg.name.startswith(_FILE_SOURCE)]:
            raise ConfigError(
                f"{bound[0]} cannot be restored: Spark keeps in its own folder which files it has "
                "read. Nothing was written.",
                remedy="leave restore.path out and let the job go on in its own folder.",
            )
        states = checkpoint.operator_states
        sources = states.get("sources", [])
        surplus = [state["format"] for state in sources[len(self._legs) :]]
        surplus += self._surplus_functions(checkpoint)
        for state, leg in zip(sources, self._legs, strict=False):
            if state["format"] != leg.name:
                surplus.append(f"{state['format']} (the job reads {leg.name} in its place)")
        if surplus and not options.allow_non_restored_state:
            raise _has_no_place(checkpoint, surplus)
        lines = [
            _source_line(state) if state["format"] == leg.name else None
            for state, leg in zip(sources, self._legs, strict=False)
        ]
        return (*lines, *(None for _ in self._legs[len(lines) :]))


def _source_state(leg: SourceLeg, line: str | None) -> dict[str, Any]:
    state: dict[str, Any] = {
        "format": leg.name,
        "scheme": Redistribution.UNION.value,
        "entries": [],
    }
    if line is None:
        return state
    if leg.name != KAFKA:
        return state | {"entries": [line]}
    source = json.loads(line)["source"]
    return state | {
        "scheme": Redistribution.SPLIT.value,
        "source": source,
        "entries": kafka.to_entries(line),
    }


def _source_line(state: Mapping[str, Any]) -> str | None:
    if not state["entries"]:
        return None
    if state["format"] != KAFKA:
        return str(state["entries"][0])
    return kafka.to_line(state["source"], state["entries"])


def _has_no_place(checkpoint: CompletedCheckpoint, surplus: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"Checkpoint {checkpoint.checkpoint} has state that the job has no place for: "
        f"{', '.join(surplus)}.",
        remedy="restore the source or function, or set restore.allow_non_restored_state to drop "
        "its state.",
    )

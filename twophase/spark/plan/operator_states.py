"""The operator state of a job: of its sources and checkpointed functions, in every checkpoint.

A source's state is built from its line in Spark's offset log, for any Spark source: list state, one
entry per partition for `twophase-kafka`, a single entry for others. Within a lineage Spark's offset
log is the truth and the state a copy; across lineages the state is the truth.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twophase.contract.listener import (
    CheckpointedFunction,
    CheckpointListener,
    InitializationContext,
    SnapshotContext,
    is_listener,
)
from twophase.contract.source import SourceLeg
from twophase.contract.source_entry_points import skips_existing, source_of
from twophase.errors import ConfigError, RestoreRefusedError, SourceLossError
from twophase.functions.operator_state import OperatorStateStore, Redistribution, SerializedState
from twophase.functions.serializer import JsonSerializer
from twophase.options.job_options import JobOptions
from twophase.spark.plan import state_plan
from twophase.state.checkpoints.checkpoint import (
    CompletedCheckpoint,
    FrozenOffsets,
    OperatorStateFields,
    SourceState,
)
from twophase.state.checkpoints.function_state import FunctionState
from twophase.state.journal.entries import StartingOffsets

_log = logging.getLogger("twophase")
_RAW = ""
"""The name of raw state in a checkpoint; no named state has it."""
_SourceKey = tuple[str, str]
SAVEPOINT_INSTEAD = (
    "make a savepoint of the job that has written it, as it is now, and restore that: twophase "
    "savepoint create JOB.yaml PATH; or start the job in its own folder without restore.path."
)
"""The remedy where a checkpoint does not have what a start needs, and a savepoint does."""


class OperatorStates:
    """Snapshots and restores the operator states of one job.

    Args:
        legs: the sources of the plan, in plan order.
        functions: by name.
        plan: what Spark keeps state of, as `state_plan.describe` says.
    """

    def __init__(
        self,
        legs: Sequence[SourceLeg],
        functions: Mapping[str, CheckpointedFunction],
        plan: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._legs = legs
        self._functions = functions
        self._plan = plan
        self._stores: dict[str, OperatorStateStore] = {}

    @cached_property
    def _sealed_plan(self) -> Mapping[str, Any]:
        return state_plan.sealed(self._plan)

    @property
    def has_functions(self) -> bool:
        """True if the job has functions with state."""
        return bool(self._functions)

    @property
    def skips_existing(self) -> bool:
        """True if a source begins after the records that exist, or may."""
        return skips_existing(self._legs)

    def listeners(self) -> list[CheckpointListener]:
        """Return the functions that also listen to checkpoints."""
        return [function for function in self._functions.values() if is_listener(function)]

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:
        """Return the states for a checkpoint, as `coordinator.attempt.Snapshot` does."""
        returned, function_states = {}, {}
        for uid, function in self._functions.items():
            context = SnapshotContext(checkpoint)
            returned[uid] = _kept(uid, function.snapshot_state(context))
            if states := self._states_of(uid, context):
                function_states[uid] = states
        return {
            "sources": tuple(
                _source_state(leg, line) for leg, line in zip(self._legs, offsets.end, strict=True)
            ),
            "functions": returned,
            "function_states": function_states,
            "state_plan": self._sealed_plan,
        }

    def _states_of(self, uid: str, context: SnapshotContext) -> tuple[FunctionState, ...]:
        states = self._stores[uid].snapshot() if uid in self._stores else []
        if partitions := context.raw_operator_state_output.partitions:
            entries = tuple(bytes(partition) for partition in partitions)
            states.append(SerializedState(_RAW, Redistribution.SPLIT, ("bytes",), entries))
        return tuple(FunctionState.of(state) for state in states)

    def initialize(self, checkpoint: CompletedCheckpoint | None, options: JobOptions) -> None:
        """Give every function its state from the newest decided checkpoint.

        Args:
            checkpoint: with the data of its states; None for a fresh start.
            options: the job's options.

        Raises:
            ConfigError: the checkpoint has state of a function that the job does not have, and
                the options do not allow that; or a function asks for a state in another way
                than the checkpoint has it.
        """
        returned = checkpoint.functions if checkpoint else {}
        if checkpoint:
            self.check_functions(checkpoint, options)
        self._stores = {}
        for uid, function in self._functions.items():
            listed = checkpoint.function_states.get(uid, ()) if checkpoint else ()
            states = [state.serialized() for state in listed]
            store = OperatorStateStore(uid, (state for state in states if state.name != _RAW))
            raw = [entry for state in states if state.name == _RAW for entry in state.entries]
            self._stores[uid] = store
            function.initialize_state(
                InitializationContext(
                    returned.get(uid, {}),
                    is_restored=uid in returned,
                    operator_state_store=store,
                    raw_operator_state_inputs=raw,
                )
            )

    def check_starting(self, job: str, confirmed: Sequence[StartingOffsets]) -> None:
        """Check that the sources begin where an operator has confirmed it.

        Raises:
            ConfigError: they do not: records would be missing, or come twice.
        """
        check_starting(job, self._legs, confirmed)

    def reads_same_sources(self, checkpoint: CompletedCheckpoint) -> bool:
        """Return whether a checkpoint has the state of the job's sources, in the same order."""
        sources = checkpoint.sources
        return len(sources) == len(self._legs) and all(map(_is_of, sources, self._legs))

    def check_functions(self, checkpoint: CompletedCheckpoint, options: JobOptions) -> None:
        """Check that the job has a place for the state of every function.

        Raises:
            ConfigError: it has none, and the options do not allow that.
        """
        _check_place(checkpoint, self._surplus_functions(checkpoint), options)

    def check_plan(self, checkpoint: CompletedCheckpoint, options: JobOptions) -> None:
        """Check that the plan can go on in the Spark folder of a checkpoint.

        Raises:
            ConfigError: a source has the place of another one; or the plan keeps state of something
                else, and the options do not allow that.
        """
        self._check_places(checkpoint)
        state_plan.check(checkpoint.state_plan, self._plan, options)

    def _check_places(self, checkpoint: CompletedCheckpoint) -> None:
        """Check that no source has the place of another one: Spark knows them by it only.

        One that is new in its place may be the old one by another name, such as a folder that was
        moved, or the old one with other topics.
        """
        states = checkpoint.sources
        for state, leg in zip(states, self._legs, strict=False):
            if _may_be_of(state, leg) or not any(_may_be_of(other, leg) for other in states):
                continue
            if not _is_of(state, leg) or any(_may_be_of(state, one) for one in self._legs):
                raise _changed_places(
                    checkpoint.job, _named(leg), self._named_in(state), map(self._named_in, states)
                )

    def _named_in(self, state: SourceState) -> str:
        """Return what a message calls a source that has begun."""
        known = next((leg for leg in self._legs if _may_be_of(state, leg)), None)
        return _named(known) if known else _called(*_key_in(state))

    def check_logs(self, job: str, spark: Path) -> None:
        """Check the same of a lineage without a checkpoint, by what Spark has noted of its sources.

        Args:
            job: the job's name.
            spark: Spark's folder of the lineage.

        Raises:
            ConfigError: a source has the place of another one.
        """
        noted = [
            self._noted_in(spark / "sources" / str(at), leg) for at, leg in enumerate(self._legs)
        ]
        for leg, before in zip(self._legs, noted, strict=True):
            if before is not leg:
                raise _changed_places(job, _named(leg), _named(before), map(_named, noted))

    def _noted_in(self, log: Path, leg: SourceLeg) -> SourceLeg:
        """Return the source that a log in place of `leg` is of: itself, unless of another."""
        source = source_of(leg.name)
        others = [one for one in self._legs if type(source_of(one.name)) is type(source)]
        return next((one for one in [leg, *others] if source.may_have_noted(one, log)), leg)

    def _surplus_functions(self, checkpoint: CompletedCheckpoint) -> list[str]:
        return [f"function {uid!r}" for uid in checkpoint.functions if uid not in self._functions]

    def start_offsets(
        self, checkpoint: CompletedCheckpoint, options: JobOptions
    ) -> tuple[str | None, ...]:
        """Return the offset line that each source of a new lineage begins with.

        A source is recognised by its format and uid, not by its place in the plan; several of one
        format without uids by what their lines tell (`Source.may_be_at`), the others by their
        order.

        Raises:
            ConfigError: the state has a source or function that the job does not have, and the
                options do not allow that; or a source can only go on in its own folder.
        """
        for leg in self._legs:
            if reason := source_of(leg.name).bound_to_folder():
                raise ConfigError(
                    f"{leg.name} cannot be restored: {reason}. Nothing was written.",
                    remedy=SAVEPOINT_INSTEAD,
                )
        waiting: dict[_SourceKey, list[SourceState]] = {}
        for state in checkpoint.sources:
            if state.entries:
                waiting.setdefault(_key_in(state), []).append(state)
        self.check_uids({key: len(listed) for key, listed in waiting.items()})
        lines = self._taken(waiting)
        surplus = [*_surplus_sources(waiting), *self._surplus_functions(checkpoint)]
        _check_place(checkpoint, surplus, options)
        return lines

    def _taken(self, waiting: Mapping[_SourceKey, list[SourceState]]) -> tuple[str | None, ...]:
        """Take the line of each source out of those that wait, first of those that may be its."""
        lines: dict[int, str] = {}
        for is_of in (_may_be_of, _is_of):
            for place, leg in enumerate(self._legs):
                found = waiting.get(_key_of(leg), [])
                state = next((one for one in found if is_of(one, leg)), None)
                if state is not None and place not in lines:
                    found.remove(state)
                    lines[place] = _source_line(state)
        return tuple(lines.get(place) for place in range(len(self._legs)))

    def unproven(self, lines: Sequence[str | None], spark: Path | None) -> list[str]:
        """Check that what each source has read after an offset can be read again.

        Args:
            lines: for each source, where it is to begin; None if its options say.
            spark: Spark's folder of the lineage that has read it; None if there is none.

        Returns:
            A sentence for each source that cannot prove it.

        Raises:
            SourceLossError: it cannot, or the source would begin after what exists.
            SourceUnavailableError: the source does not answer.
        """
        found = []
        for place, (leg, line) in enumerate(zip(self._legs, lines, strict=True)):
            if leg in self._legs[:place]:
                spark = None  # Spark numbers one that is read twice once, and two equal ones twice
            log = None if spark is None else spark / "sources" / str(place)
            source = source_of(leg.name)
            if line is None and source.skips_existing(leg.options):
                raise SourceLossError(
                    f"{leg.name} has no offset in it, and would begin after records that exist "
                    "already.",
                    remedy="have that source begin before them, such as with "
                    "`startingOffsets=earliest`.",
                )
            if line is None:
                found.append(
                    f"{leg.name} begins as its options say: whether that is before what is taken "
                    "back cannot be determined."
                )
                continue
            try:
                if not source.check_readable(leg, line, log):
                    found.append(
                        f"{leg.name} cannot tell whether all that it has read after {line} is "
                        "still there."
                    )
            except RestoreRefusedError as error:
                found.append(error.what)
        return found

    def check_uids(self, known: Mapping[_SourceKey, int] = MappingProxyType({})) -> None:
        """Check that no two sources have one uid, where a lineage begins.

        One source that the plan reads twice, as in a union with itself, is no collision. Sources
        without a uid are distinguished by their order.

        Args:
            known: how many sources of a key the restored checkpoint has: as many may go on.

        Raises:
            ConfigError: two have.
        """
        for key in {key for leg in self._legs if (key := _key_of(leg))[1]}:
            mine = [leg.options for leg in self._legs if _key_of(leg) == key]
            if any(options != mine[0] for options in mine) and known.get(key, 0) < len(mine):
                raise ConfigError(
                    f"{len(mine)} sources {key[0]} of the job have the uid {key[1]!r}: a later "
                    "restore could not distinguish them. No rows were written.",
                    remedy='give each its own, with .option("uid", ...), and keep it.',
                )


def _kept(uid: str, value: dict[str, Any] | None) -> Any:
    """Return a copy of what a function has returned, which it may change from here on.

    Raises:
        ValueError: it is no dict, or JSON has no such value, or would give another one back.
    """
    json = JsonSerializer()
    try:
        kept = json.deserialize(json.serialize({} if value is None else value))
        if not isinstance(kept, dict):
            raise TypeError(f"a {type(value).__name__} where a dict belongs")
        return kept
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"what function {uid!r} has returned: {error}") from error


def _key_of(leg: SourceLeg) -> _SourceKey:
    """Return the format of a source and its uid; empty for a format without uids."""
    return leg.name, source_of(leg.name).uid(leg)


def _key_in(state: SourceState) -> _SourceKey:
    """Return the key of a source that has begun, as `_key_of` does."""
    return state.format, state.uid


def _is_of(state: SourceState, leg: SourceLeg) -> bool:
    """Return whether a state is that of a source of the plan."""
    return _key_in(state) == _key_of(leg) if state.entries else state.format == leg.name


def _may_be_of(state: SourceState, leg: SourceLeg) -> bool:
    """Return whether it may be, by what its line tells too."""
    if not state.entries or not _is_of(state, leg):
        return _is_of(state, leg)
    return source_of(leg.name).may_be_at(leg, _source_line(state))


def _changed_places(job: str, now: str, before: str, order: Iterable[str]) -> ConfigError:
    return ConfigError(
        f"Job {job!r}: its sources have changed places: {now} would go on where {before} is. Spark "
        "knows a source only by its place, so each would read what the other has read. No rows "
        "were written.",
        remedy=f"give the sources their old order in the program: {', '.join(order)}.",
    )


def _named(leg: SourceLeg) -> str:
    name, uid = _key_of(leg)
    return _called(name, uid) if uid else source_of(name).named(leg)


def _called(name: str, uid: str) -> str:
    return f"source {uid!r} of {name}" if uid else name


def _source_state(leg: SourceLeg, line: str | None) -> SourceState:
    if line is None:
        return SourceState(leg.name, "", Redistribution.UNION, ())
    source = source_of(leg.name)
    entries = tuple(source.entries(line))
    return SourceState(leg.name, source.uid_in(line), source.redistribution, entries)


def check_starting(
    job: str, legs: Iterable[SourceLeg], confirmed: Sequence[StartingOffsets]
) -> None:
    """Check that sources begin where an operator has confirmed it.

    Raises:
        ConfigError: they do not: records would be missing, or come twice.
    """
    begins = [begins_by_options(leg) for leg in legs]
    if confirmed and not {*begins} <= {*confirmed}:
        wanted = starting_text(confirmed)
        raise ConfigError(
            f"Job {job!r}: when its log was adopted, it was confirmed that it begins at {wanted}; "
            f"now it begins at {starting_text(begins)}. Records would be missing or duplicated. "
            "Nothing was written.",
            remedy=f"until the first checkpoint is made, set {wanted}.",
        )


def begins_by_options(leg: SourceLeg) -> StartingOffsets:
    """Return where a source begins by its own options."""
    source = source_of(leg.name)
    return StartingOffsets(source.uid(leg), source.starting_offsets(leg.options))


def starting_text(starting: Iterable[StartingOffsets]) -> str:
    """Return where sources begin, for people."""
    return " and ".join(map(_starting, starting))


def _starting(one: StartingOffsets) -> str:
    of = f" of the source with uid {one.uid}" if one.uid else ""
    return f"startingOffsets{of} {one.offsets or '(not set)'}"


def _surplus_sources(waiting: Mapping[_SourceKey, Sequence[Any]]) -> list[str]:
    """Return the name of each source that the state has and the plan does not."""
    return [
        f"source {uid!r} of {name}" if uid else f"a source of {name}"
        for (name, uid), left in waiting.items()
        for _ in left
    ]


def _source_line(state: SourceState) -> str:
    return source_of(state.format).start_line(state.uid, state.entries)


def _check_place(
    checkpoint: CompletedCheckpoint, surplus: Sequence[str], options: JobOptions
) -> None:
    """Refuse state that the job has no place for, or say that it is dropped.

    Raises:
        ConfigError: there is some, and the options do not allow that.
    """
    if not surplus:
        return
    if options.allow_non_restored_state:
        _log.warning(
            "job %s: the state of %s in checkpoint %d of lineage %s is dropped: "
            "the job has no place for it",
            *(checkpoint.job, ", ".join(surplus), checkpoint.checkpoint, checkpoint.lineage),
        )
        return
    raise ConfigError(
        f"Job {checkpoint.job!r}: checkpoint {checkpoint.checkpoint} of lineage "
        f"{checkpoint.lineage} has state that the job has no place for: {', '.join(surplus)}. "
        "No rows were written.",
        remedy="add the source or function again, under its old name, or set "
        "`restore.allow_non_restored_state=true` to drop its state.",
    )

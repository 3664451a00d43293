"""Files of large operator states: `state/<lineage>-<n>-<attempt>/<k>` in the job's folder.

They are durable before the body that names them, with their length and SHA-256, and the body is
before the decision. So a decided checkpoint has all of its files, and what no decision names is an
orphan.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count

from twophase.errors import CheckpointMissingError, CorruptRecordError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import digest
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.function_state import FunctionState, StateFile
from twophase.state.files import codec
from twophase.state.files.storage import CrashPoints, Storage, warn_left

_log = logging.getLogger("twophase")
_KIND = "STATE"
_REMEDY = (
    "restore this file from a backup of the job's folder, or set "
    "`restore.allow_non_restored_state=true` to begin without the state."
)
_CRASH_POINTS = CrashPoints("O01", "O02", "O03", "O04")


def write_states(
    storage: Storage, checkpoint: CompletedCheckpoint, threshold: int
) -> CompletedCheckpoint:
    """Write the files of a checkpoint that is about to be decided.

    Args:
        storage: the job's folder.
        checkpoint: with the data of all of its states.
        threshold: in bytes; larger states get a file.

    Returns:
        The checkpoint as its body names the states.

    Raises:
        OSError, AlreadyExistsError, UnclearOutcomeError: a file may be incomplete; decline
            the attempt.
    """
    names = map(str, count())

    def placed(state: FunctionState) -> FunctionState:
        if state.data is None:
            raise AssertionError(f"state {state.name!r} was not read from its file")
        if len(state.data) <= threshold:
            return state
        file = _write(storage, checkpoint, next(names), state.data)
        return replace(state, data=None, file=file)

    written = replace(
        checkpoint,
        function_states={
            uid: tuple(map(placed, states)) for uid, states in checkpoint.function_states.items()
        },
    )
    if written.state_files:
        failpoint("O05")
    return written


def _write(storage: Storage, checkpoint: CompletedCheckpoint, name: str, data: bytes) -> StateFile:
    content = codec.encode_bytes(_KIND, data)
    storage.create(f"{checkpoint.state_folder}/{name}", content, _CRASH_POINTS)
    return StateFile(name, len(content), digest(content))


def read_states(
    storage: Storage, checkpoint: CompletedCheckpoint, *, may_drop: bool = False
) -> CompletedCheckpoint:
    """Return a checkpoint with the data of all of its states.

    Args:
        storage: the folder that the body was read from.
        checkpoint: as its body has it.
        may_drop: whether a state whose file is gone or damaged is left out, with a warning.

    Raises:
        CheckpointMissingError: a file is gone.
        CorruptRecordError: a file is not the one that the body names.
        NewerFormatError: a newer version of twophase has written it.
    """
    found: dict[str, tuple[FunctionState, ...]] = {}
    for uid, states in checkpoint.function_states.items():
        kept = []
        for state in states:
            try:
                kept.append(_read(storage, checkpoint, uid, state))
            except (CheckpointMissingError, CorruptRecordError) as error:
                if not may_drop:
                    raise
                _log.warning("job %s begins without a state: %s", checkpoint.job, error.what)
        found[uid] = tuple(kept)
    return replace(checkpoint, function_states=found)


def delete_state_files(storage: Storage, folder: str) -> None:
    """Delete the state files of one attempt at a checkpoint.

    Files that a newer version of twophase has written stay, and the folder with them. So does what
    cannot be deleted, with a warning.

    Args:
        storage: the job's folder.
        folder: as in `CompletedCheckpoint.state_folder`; it need not exist.
    """
    try:
        names = storage.names(folder)
    except (OSError, CorruptRecordError) as error:  # not a folder, say
        warn_left(folder, error)
        return
    left = False
    for name in names:
        if storage.is_newer(f"{folder}/{name}"):
            left = True
        else:
            left |= not storage.delete_unneeded(f"{folder}/{name}")
            failpoint("O06")
    if not left:
        storage.delete_unneeded(folder)


def _read(
    storage: Storage, checkpoint: CompletedCheckpoint, uid: str, state: FunctionState
) -> FunctionState:
    if state.file is None:
        return state
    path = f"{checkpoint.state_folder}/{state.file.name}"
    whose = f"state {state.name!r} of function {uid!r} in checkpoint {checkpoint.checkpoint}"
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise CheckpointMissingError(
            f"The file {path} with {whose} is missing.", remedy=_REMEDY
        ) from None
    if (len(data), digest(data)) != (state.file.length, state.file.sha256):
        raise CorruptRecordError(
            f"The file {path} with {whose} is not the one that was decided: it has "
            f"{len(data)} bytes, and its length or SHA-256 differs from the checkpoint's body.",
            remedy=_REMEDY,
        )
    return replace(state, data=codec.decode_bytes(_KIND, data, path), file=None)

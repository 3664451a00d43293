"""The tree of errors: as drawn, carried whole through pickle and through Spark's text, and
helpful to who reads it.
"""

from __future__ import annotations

import copy
import pickle
import re
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twophase import errors, seal
from twophase.errors import (
    BadRecordError,
    CheckpointExpiredError,
    ConfigError,
    DeclinedError,
    FencedError,
    FenceLostError,
    InDoubtError,
    LostCommittableError,
    OffsetOutOfRangeError,
    RejectedRowsError,
    StopJobError,
    TwoPhaseError,
    from_text,
)
from twophase.failure_reason import CheckpointFailureReason


def family(kind: type[TwoPhaseError]) -> list[type[TwoPhaseError]]:
    members = [kind, *(member for child in kind.__subclasses__() for member in family(child))]
    return [member for member in members if member.__module__ == errors.__name__]


pytestmark = pytest.mark.usefixtures("worker")

ALL = family(TwoPhaseError)
WORDS = st.text("abc déf/1.2'\"", min_size=1).map(lambda text: text.strip() or "x")


def drawn() -> dict[str, str]:
    """Each class in the drawing, with the class it hangs from."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([| `]*(?:--)? ?)(\w+Error)\b", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else ""
    return parents


def test_the_tree_is_as_drawn() -> None:
    assert drawn() == {
        kind.__name__: "" if kind is TwoPhaseError else kind.__bases__[0].__name__ for kind in ALL
    }


def test_every_class_says_in_one_line_what_it_means() -> None:
    assert all((kind.__doc__ or "").strip() for kind in ALL)


def test_one_root_is_enough_to_catch_them_all() -> None:
    assert all(issubclass(value, TwoPhaseError) for value in vars(errors).values() if value in ALL)
    assert TwoPhaseError.__base__ is Exception


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_the_same_after_pickling_and_copying(kind: type[TwoPhaseError]) -> None:
    error = kind("what happened.", remedy="do this.")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (again.what, again.remedy, str(again)) == (error.what, error.remedy, str(error))


def test_a_message_says_what_happened_whether_data_is_lost_and_what_to_do_next() -> None:
    assert str(FencedError("Job 'orders': out.", remedy="leave it stopped.")) == (
        "Job 'orders': out. No data is lost: the newer driver continues the job. "
        "Next: leave it stopped."
    )
    assert str(DeclinedError("No.")) == "No. No data is lost: nothing of this attempt is visible."
    assert str(ConfigError("No.", remedy="yes.")) == "No. Next: yes."
    assert str(ConfigError("No.")) == "No."


def test_only_what_a_restart_may_mend_is_restartable() -> None:
    assert {kind.__name__ for kind in ALL if kind.restartable} == {
        "TargetUnreachableError",
        "DeclinedError",
        "SourceUnavailableError",
        "CheckpointExpiredError",
        "FenceLostError",
        "InDoubtError",
        "ReplayLostError",
    }


def test_a_fenced_driver_has_an_exit_code_of_its_own() -> None:
    assert FencedError.exit_code not in {kind.exit_code for kind in ALL if kind is not FencedError}
    assert {kind.exit_code for kind in family(StopJobError)} == {3, 4}
    assert all(kind.exit_code != 0 for kind in ALL)


def test_a_loss_is_never_said_to_be_harmless() -> None:
    assert LostCommittableError.data_lost == ""
    assert OffsetOutOfRangeError.data_lost == ""
    assert FenceLostError.data_lost == ""


# -- what Spark carries out of a worker as text ----------------------------------------------------


def traceback_of(error: BaseException) -> str:
    try:
        raise error
    except type(error):
        return traceback.format_exc()


def by_spark(text: str) -> str:
    """What Spark makes of a worker's traceback."""
    return (
        "Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, most recent "
        "failure: Lost task 0.0 in stage 2.0 (TID 2) (host executor driver): "
        f"org.apache.spark.api.python.PythonException: {text}\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException("
        "PythonRunner.scala:581)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n\nDriver stacktrace:\n"
    )


@pytest.mark.parametrize("kind", ALL)
@given(what=WORDS, remedy=WORDS | st.just(""))
def test_an_error_is_found_again_in_its_own_traceback(
    kind: type[TwoPhaseError], what: str, remedy: str
) -> None:
    found = from_text(traceback_of(kind(what, remedy=remedy)))
    assert type(found) is kind
    assert (found.what, found.remedy) == (what, remedy)


def test_the_error_is_found_in_what_spark_says_of_a_failed_task() -> None:
    error = RejectedRowsError("Table `shop`.`orders` refuses row 7.", remedy="correct the rows.")
    found = from_text(by_spark(traceback_of(error)))
    assert type(found) is RejectedRowsError
    assert (found.what, found.remedy) == (
        "Table `shop`.`orders` refuses row 7.",
        "correct the rows.",
    )


def test_a_message_that_looks_like_the_remedy_stays_a_message() -> None:
    found = from_text(
        traceback_of(DeclinedError("The value is ' Next: leave it.'", remedy="look."))
    )
    assert found is not None
    assert (found.what, found.remedy) == ("The value is ' Next: leave it.'", "look.")


def test_a_traceback_on_one_line_or_without_its_head_is_enough() -> None:
    """Spark can be told to hide tracebacks, and loggers join lines."""
    error = BadRecordError("offset 7.")
    for text in (
        "".join(traceback.format_exception_only(error)),
        " ".join(traceback_of(error).split()),
    ):
        assert type(from_text(f"[X] Caused by: {text} at java.lang.Thread.run")) is BadRecordError


def test_of_several_errors_the_last_is_meant() -> None:
    try:
        try:
            raise FencedError("first.")
        except FencedError as error:
            raise DeclinedError("second.") from error
    except DeclinedError:
        text = traceback.format_exc()
    found = from_text(text)
    assert type(found) is DeclinedError
    assert found.what == "second."


def test_an_error_of_a_sink_of_somebody_else_is_what_it_inherits_from() -> None:
    found = from_text(
        traceback_of(type("TheirsError", (RejectedRowsError,), {"__module__": "theirs"})("no."))
    )
    assert isinstance(found, RejectedRowsError)


def test_a_message_over_several_lines_becomes_one_line_and_is_kept_whole() -> None:
    found = from_text(traceback_of(InDoubtError("first line\nsecond line")))
    assert type(found) is InDoubtError
    assert found.what == "first line second line"


def test_a_driver_seals_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seal.VARIABLE)
    assert "twophase-error" not in traceback_of(DeclinedError("no."))


CAST = (
    '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "INT" because it '
    "is malformed. Correct the"
    " value as per the syntax, or change its target type. SQLSTATE: 22018"
)


@settings(max_examples=400)
@given(
    kind=st.sampled_from(ALL),
    before=st.text(),
    after=st.text(),
    place=st.sampled_from(
        [CAST, "ValueError: {}", "KeyError: '{}'", "Caused by: {}", "{}", "a\n{}\nb", "x {}"]
    ),
    form=st.sampled_from(
        ["{}", "{}: hello", "Caused by: {}: hello", "{}: hello Next: stop.", "x {}: hello"]
    ),
    traced=st.booleans(),
)
def test_a_value_that_names_an_error_is_not_that_error(
    kind: type[TwoPhaseError], before: str, after: str, place: str, form: str, traced: bool
) -> None:
    name = form.format(f"twophase.errors.{kind.__name__}")
    if traced:
        name = (
            'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    raise error\n'
            f"{name}\n"
        )
    value = before + name + after
    assert from_text(place.replace("{}", value)) is None
    assert from_text(by_spark(place.replace("{}", value))) is None


def test_the_seal_of_another_application_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row may be the log of another job, sealed errors and all."""
    monkeypatch.setenv(seal.VARIABLE, "another key")
    theirs = traceback_of(FencedError("theirs."))
    monkeypatch.delenv(seal.VARIABLE)
    assert "twophase-error/1 " in theirs
    assert from_text(theirs) is None


@given(st.integers(0, 400), st.sampled_from("abc012"))
def test_a_sealed_line_that_was_changed_is_none(at: int, character: str) -> None:
    line = seal.seal({"kinds": ["twophase.errors.FencedError"], "what": "w", "remedy": ""})
    assert line is not None
    changed = line[: at % len(line)] + character + line[at % len(line) + 1 :]
    assert changed == line or from_text(changed) is None


def test_a_worker_of_the_same_application_keeps_its_key() -> None:
    environment: dict[str, str] = {}
    seal.share_key(environment)
    first = dict(environment)
    seal.share_key(environment)
    assert environment == first


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    assert from_text(text) is None


def test_a_long_text_is_searched_in_bounded_time() -> None:
    assert (
        from_text(
            "\tat org.apache.spark (Python.scala:1) " * 20_000
            + "\n"
            + "twophase-error/1 " * 100_000
        )
        is None
    )


def test_a_declined_error_keeps_its_reason_when_it_is_pickled_and_on_its_way_out_of_a_worker() -> (
    None
):
    for error in (
        DeclinedError("no.", reason=CheckpointFailureReason.TASK_CHECKPOINT_FAILURE),
        CheckpointExpiredError("late."),
        RejectedRowsError("row 7."),
    ):
        assert pickle.loads(pickle.dumps(error)).reason is error.reason
        found = from_text(traceback_of(error))
        assert isinstance(found, type(error))
        assert found.reason is error.reason

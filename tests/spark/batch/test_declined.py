"""What the message of a declined attempt says of an error that Spark passed on as text."""

from __future__ import annotations

import pytest

from twophase.spark.batch.spark_errors import declined

ABORTED = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times"
FULL = "Caused by: java.io.IOException: No space left on device"
WRITING = "Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed"
PYTHON = [
    "An exception was thrown from the Python worker:",
    "Traceback (most recent call last):",
    '  File "job.py", line 9, in price',
    "    raise ValueError(text) from error",
]
FRAME = "\tat org.apache.spark.scheduler.Task.run(Task.scala:147)"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([ABORTED], ABORTED, id="one line"),
        pytest.param([ABORTED, FRAME, FULL, FRAME], f"{FULL} | {ABORTED}", id="one cause"),
        pytest.param(
            [ABORTED, FRAME, "Driver stacktrace:", FRAME, WRITING, FRAME, FULL, FRAME],
            f"{FULL} | {ABORTED} | Driver stacktrace: | {WRITING}",
            id="the last cause of several",
        ),
        pytest.param(
            [*PYTHON, "ValueError: no price", "for 7"],
            f"ValueError: no price | {PYTHON[0]} | for 7",
            id="a Python worker's",
        ),
        pytest.param(
            [
                *PYTHON,
                "KeyError: 7",
                "The above exception was the direct cause of ...",
                *PYTHON[1:],
                "ValueError: no price",
            ],
            f"ValueError: no price | {PYTHON[0]} | KeyError: 7 | "
            "The above exception was the direct cause of ...",
            id="the last of a chain of Python's",
        ),
        pytest.param(
            [
                ABORTED,
                FRAME,
                f"Caused by: PythonException: {PYTHON[1]}",
                *PYTHON[2:],
                "ValueError: no price",
                FRAME,
            ],
            f"Caused by: PythonException: {PYTHON[1]} | ValueError: no price | {ABORTED}",
            id="Python's below Java's",
        ),
    ],
)
def test_the_root_cause_comes_first(lines: list[str], expected: str) -> None:
    error = declined(RuntimeError("\n".join(lines)), "Checkpoint 3 of sink 'facts'")
    assert error.what == f"Checkpoint 3 of sink 'facts' failed: RuntimeError: {expected!r}."

"""The JSON Schema of a job file takes what `twophase check` takes, and finds typing errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.cli.jobfile.test_checked_job import GOOD, MISTAKES
from tests.cli.jobfile.test_job_file import BAD, MINIMAL
from twophase.cli.jobfile.job_file import _File

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA: dict[str, Any] = json.loads((DOCS / "job.schema.json").read_text())
PAGES = sorted([*DOCS.rglob("*.md"), DOCS.parent / "README.md"])
JOBS = [
    (path.name, text)
    for path in PAGES
    for text in re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    if re.search(r"^name: .*^sinks:", text, re.MULTILINE | re.DOTALL)
]
# Values that only a program can judge.
_OF_VALUES = ("a b", "f/g", "1 week", "'no'", "'now'", "'late'", "10 secnds", "spark.conf: the key")


def mistakes(job: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(job)]


def test_it_is_a_schema_of_the_keys_that_are_read() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == {*_File.keys()}


@pytest.mark.parametrize("job", [GOOD, MINIMAL], ids=["kafka to files", "minimal"])
def test_a_sound_file_fits(job: dict[str, Any]) -> None:
    assert mistakes(job) == []


@pytest.mark.parametrize(("page", "text"), JOBS, ids=[page for page, _ in JOBS])
def test_the_job_files_of_the_pages_fit(page: str, text: str) -> None:
    assert mistakes(yaml.safe_load(text)) == [], page


@pytest.mark.parametrize("mistake", [one for one in MISTAKES if one != "a name"])
def test_a_typing_error_is_found(mistake: str) -> None:
    change, _ = MISTAKES[mistake]
    assert mistakes({**GOOD, **change})


@pytest.mark.parametrize(("change", "what"), [(change, what) for change, what, _ in BAD])
def test_a_file_that_the_command_refuses_does_not_fit(change: dict[str, Any], what: str) -> None:
    if not any(value in what for value in _OF_VALUES) and "checkpointLocation" not in what:
        merged = {key: value for key, value in {**MINIMAL, **change}.items() if value is not None}
        assert mistakes(merged), what

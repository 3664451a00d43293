"""A remedy can be pasted whole, in a program as on the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from harness.own_sinks import sink_options
from harness.remedies import in_product
from twophase.cli.main import main
from twophase.errors import ConfigError
from twophase.options.job_options import JobOptions
from twophase.options.parsing import Options
from twophase.sources.kafka.options import KafkaOptions
from twophase.wording import of_command, worded

CASES = [
    ("set `restore.sink_ahead=rewind`.", 'set .option("restore.sink_ahead", "rewind").',
     "set `--sink-ahead rewind`."),
    ("`restore.path=/sp/a b`", '.option("restore.path", "/sp/a b")', "`--restore '/sp/a b'`"),
    ("`restore.path=/sp/ann's`", '.option("restore.path", "/sp/ann\'s")',
     "`--restore " + shlex.quote("/sp/ann's") + "`"),
    ("`state.allow_changed_plan=true`", '.option("state.allow_changed_plan", True)',
     "`state.allow_changed_plan: true`"),
    ('`startingOffsets={"t": {"0": 5}}`',
     '.option("startingOffsets", \'{"t": {"0": 5}}\')',
     "`startingOffsets: '{\"t\": {\"0\": 5}}'`"),
    ("`create=true`", "create=True", "`create: true`"),
    ("`load=auto`", 'load="auto"', "`load: auto`"),
    ("`spark.task.maxFailures=4`", 'spark.conf.set("spark.task.maxFailures", 4)',
     "`spark: {conf: {spark.task.maxFailures: 4}}`"),
    ("twophase repair rewrite JOB.yaml --checkpoint 4",) * 2
    + ("twophase repair rewrite orders.yaml --checkpoint-location '/a b' --checkpoint 4",),
    ("twophase repair abandon-rewind JOB.yaml --checkpoint-location FOLDER",) * 2
    + ("twophase repair abandon-rewind orders.yaml --checkpoint-location FOLDER",),
    ("`twophase checkpoints FOLDER` lists them; a `column` = 5",) * 3,
]  # fmt: skip


@pytest.mark.parametrize(("remedy", "program", "command"), CASES)
def test_a_remedy_is_in_the_words_of_who_asked(remedy: str, program: str, command: str) -> None:
    assert worded(remedy) == program
    with of_command() as words:
        words.job_file, words.checkpoint_location = "orders.yaml", "/a b"
        assert worded(remedy) == command
        assert str(ConfigError("No.", remedy=remedy)) == f"No. Next: {command}"
    assert str(ConfigError("No.", remedy=remedy)) == f"No. Next: {program}"
    for pasted in re.findall(r"`([^`]*: [^`]*)`", command):
        assert isinstance(yaml.safe_load(pasted), dict)


def test_a_command_names_the_file_that_it_was_given(tmp_path: Path) -> None:
    path, folder = tmp_path / "my job.yaml", tmp_path / "job"
    (folder / "log").mkdir(parents=True)
    (folder / "log" / "0000000001").write_text("damaged")
    job = "name: orders\nsource: {format: rate}\nsinks: {a: {type: file, options: {path: /x}}}\n"
    path.write_text(f"{job}options: {{checkpointLocation: {tmp_path / 'other'}}}\n")
    given = [str(path), str(tmp_path / "sp"), "--checkpoint-location", str(folder)]
    found = CliRunner().invoke(main, ["savepoint", "create", *given])
    named = f"twophase repair adopt-from-target '{path}' --checkpoint-location {folder}"
    assert named in found.stderr
    assert worded("twophase run JOB.yaml") == "twophase run JOB.yaml", "not of the next command"


def keys_of(*groups: type[Options]) -> set[str]:
    return set().union(*(group.keys() for group in groups))


SINK_KEYS = keys_of(*sink_options().values())
JOB_KEYS = keys_of(JobOptions, KafkaOptions)


def bare_settings(text: str) -> list[str]:
    """What a remedy tells to set, and does not name as a setting that can be pasted."""
    rest = re.sub(r"`[^`]*`", "", text)
    keys = "|".join(sorted(map(re.escape, JOB_KEYS | SINK_KEYS), key=len, reverse=True))
    return re.findall(
        rf"\b(?:set|unset|use) (?:{keys})\b(?! of every| {{}} back)|\b(?:{keys})=\S", rest
    )


def test_each_remedy_names_what_to_set_so_that_it_can_be_pasted() -> None:
    bare = {
        (str(module), text): found
        for module, found_in in in_product().items()
        for text in found_in.texts
        if (found := bare_settings(text))
    }
    assert bare == {}


def test_each_setting_in_a_remedy_is_one() -> None:
    known = JOB_KEYS | SINK_KEYS | {"uid", "{}"}
    named = {
        key: module
        for module, found_in in in_product().items()
        for text in found_in.texts
        for key in re.findall(r"`([A-Za-z{][\w.{}]*)=", text)
    }
    assert {key: named[key] for key in named if key not in known and "{}" not in key} == {}
    assert len(named) > 8


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("set restore.allow_non_restored_state to begin.", True),
        ("start with restore.sink_ahead=rewind.", True),
        ("set `restore.sink_ahead=rewind`.", False),
        ("create it, or set create.", True),
        ("set it to true.", False),
    ],
)
def test_the_rule_finds_what_it_is_for(text: str, bare: bool) -> None:
    assert bool(bare_settings(text)) is bare

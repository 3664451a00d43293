"""A job file is checked whole before Spark starts; an error names the file, the
key and what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from twophase.cli.jobfile.job_file import JobFile, load_job_file
from twophase.errors import ConfigError

MINIMAL: dict[str, Any] = {
    "name": "orders",
    "source": {
        "format": "json",
        "schema": "id long",
        "options": {"path": "in", "maxFilesPerTrigger": 1, "x": True},
    },
    "sinks": {"facts": {"type": "memory"}},
    "options": {"checkpointLocation": "/chk/orders"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def load(path: Path, change: dict[str, Any] | str | None = None, **arguments: Any) -> JobFile:
    text = change if isinstance(change, str) else yaml.safe_dump({**MINIMAL, **(change or {})})
    path.write_text(text)
    return load_job_file(path, arguments.pop("overrides", {}), **arguments)


def test_options_of_a_source_become_texts(path: Path) -> None:
    job = load(path)
    assert job.sources["source"].options == {"path": "in", "maxFilesPerTrigger": "1", "x": "true"}
    assert (job.name, job.sql, job.trigger) == ("orders", None, {})


SCALARS = [
    "007", "0123", "1_000", "1e3", "1.10", "1.0", ".5", "-0", "+1", "0x1F", "0b11", "1:30", "010",
    "1:30:00.5", ".inf", ".nan", "1.0e+3", "2026-01-01", "2026-01-01 10:00:00",
    "12345678901234567890", "on", "Off", "yes", "NO", "y", "true", "True", "FALSE",
    "'null'", "latest", "a b",
]  # fmt: skip


@pytest.mark.parametrize("form", ["source", "sources", "spark", "merged", "in braces"])
def test_a_text_is_what_was_written(path: Path, form: str) -> None:
    given = {f"k{number}": text for number, text in enumerate(SCALARS)}
    lines = "".join(f"\n      {key}: {text}" for key, text in given.items())
    braces = ", ".join(f"{key}: {text}" for key, text in given.items())
    sections = {
        "source": f"source:\n  format: rate\n  options:{lines}",
        "sources": f"sql: select 1\nsources:\n a:\n  format: rate\n  options:{lines}",
        "spark": f"source: {{format: rate}}\nspark:\n  conf:{lines}",
        "merged": f"source:\n  format: rate\n  options:\n    <<:{lines}\n    more: 1_0",
        "in braces": f"source: {{format: rate, options: {{{braces}}}}}",
    }
    rest = yaml.safe_dump({key: MINIMAL[key] for key in MINIMAL if key != "source"})
    job = load(path, rest + sections[form])
    found = job.spark.conf if form == "spark" else next(iter(job.sources.values())).options
    switched = {"on": "true", "Off": "false", "yes": "true", "NO": "false"} | {
        "True": "true",
        "FALSE": "false",
    }
    words = switched if form == "spark" else {}
    assert found == {
        **{key: words.get(text, text.strip("'")) for key, text in given.items()},
        **({"more": "1_0"} if form == "merged" else {}),
    }


def test_an_alias_of_a_source_s_options_leaves_those_of_a_sink_as_they_are(path: Path) -> None:
    text = yaml.safe_dump({key: MINIMAL[key] for key in MINIMAL if key not in ("source", "sinks")})
    text += (
        "source: {format: rate, options: &both {rows: 10, flag: true}}\n"
        "sinks: {facts: {type: a, options: *both}}"
    )
    job = load(path, text)
    assert job.sources["source"].options == {"rows": "10", "flag": "true"}
    assert job.sinks["facts"].options == {"rows": 10, "flag": True}


def test_a_tag_is_refused_in_the_options_of_a_source_too(path: Path) -> None:
    text = yaml.safe_dump({key: MINIMAL[key] for key in MINIMAL if key != "source"})
    with pytest.raises(ConfigError, match="is not valid YAML in line"):
        load(path, text + "source: {format: rate, options: {a: !!python/name:os.system }}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("-5", -5), ("0", 0), ("true", True), ("off", False), ("0.5", 0.5),
        ("null", None),
        ("007", "007"), ("010", "010"), ("1_000", "1_000"), ("1:30", "1:30"), ("0x1F", "0x1F"),
        ("2026-01-01", "2026-01-01"), ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("[010, 2026-01-01]", ["010", "2026-01-01"]),
    ],
)  # fmt: skip
def test_a_sink_gets_plain_numbers_and_what_else_was_written(
    path: Path, text: str, value: object
) -> None:
    rest = yaml.safe_dump({key: MINIMAL[key] for key in MINIMAL if key != "sinks"})
    job = load(path, rest + f"sinks: {{facts: {{type: a, options: {{it: {text}}}}}}}")
    assert job.sinks["facts"].options == {"it": value}


@pytest.mark.parametrize("text", ["7", "1.10", "on", "true"])
def test_what_is_no_text_for_a_text_option_is_to_be_quoted(path: Path, text: str) -> None:
    for line in (f"name: {text}", f"name: orders\nsql: {text}"):
        rest = {key: MINIMAL[key] for key in MINIMAL if key not in ("name", "sql")}
        with pytest.raises(ConfigError, match=r"(: quote it|put the word in quotes)\."):
            load(path, yaml.safe_dump(rest) + line)
        load(path, yaml.safe_dump(rest) + line.replace(text, f"'{text}'"))


def test_options_of_a_sink_stay_as_they_are(path: Path) -> None:
    job = load(
        path, {"sinks": {"hive": {"type": "hive", "options": {"partition_by": ["dt"], "rows": 5}}}}
    )
    assert job.sinks["hive"].options == {"partition_by": ["dt"], "rows": 5}


def test_several_sources_are_named_by_their_views(path: Path) -> None:
    text = yaml.safe_dump({key: value for key, value in MINIMAL.items() if key != "source"})
    job = load(path, text + "sources: {a: {format: rate}, b: {format: rate}}\nsql: select 1")
    assert list(job.sources) == ["a", "b"]


def test_the_command_line_overrides_options_and_trigger(path: Path) -> None:
    overrides = {"checkpointLocation": "/other", "restore.path": "/chk/orders/chk/x-1-1.1"}
    job = load(
        path, {"trigger": {"processingTime": "10 seconds"}}, overrides=overrides, available_now=True
    )
    assert job.options == overrides
    assert job.trigger == {"availableNow": True}


def test_a_trigger_takes_the_units_of_every_duration(path: Path) -> None:
    assert load(path, {"trigger": {"processingTime": "1.5 min"}}).trigger == {
        "processingTime": "90000 milliseconds"
    }
    assert load(path, {"trigger": {"availableNow": True}}).trigger == {"availableNow": True}


@pytest.mark.parametrize("value", [True, "true", "True", "yes", "on", 1, "1"])
@pytest.mark.parametrize("key", ["availableNow", "once"])
def test_a_trigger_without_a_time_takes_what_every_switch_takes(
    path: Path, key: str, value: object
) -> None:
    assert load(path, {"trigger": {key: value}}).trigger == {key: True}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"sink": {}}, "unknown option 'sink'; did you mean 'sinks'", "job.yaml"),
    ({"name": "a b"}, "job name 'a b' is not allowed", "1 to 64 letters"),
    ({"name": 5}, "option 'name' is 5", "job.yaml"),
    ({"sinks": {}}, "sinks is empty", "at least one"),
    ({"sinks": ["mysql"]}, "sinks is a list, not a mapping", "KEY: VALUE"),
    ({"sinks": {"f/g": {"type": "mysql"}}}, "sink name 'f/g'", "letters"),
    (
        {"sinks": {"facts": {"typ": "mysql"}}},
        "sinks.facts: unknown option 'typ'; did you mean 'type'",
        "job.yaml",
    ),
    (
        {"sinks": {"facts": {"type": "mysql", "options": None}}},
        "sinks.facts.options is empty",
        "KEY: VALUE",
    ),
    (
        {"source": {"format": "json", "options": {"path": ["a"]}}},
        "source.options.path is a list",
        "a single value",
    ),
    ({"source": {"schema": "id long"}}, "source: option 'format' is required", "job.yaml"),
    (
        {"source": {"format": "rate", "watermark": {"column": "at"}}},
        "source.watermark: option 'delay' is required",
        "job.yaml",
    ),
    (
        {"source": {"format": "rate", "watermark": {"column": "at", "delay": "late"}}},
        "source.watermark: option 'delay' is 'late': give a number",
        "job.yaml",
    ),
    (
        {"source": {"format": "rate", "watermark": "at"}},
        "source.watermark is a str, not a mapping",
        "KEY: VALUE",
    ),
    ({"source": None}, "either source or sources, not neither", "sources"),
    ({"sources": {"a": {"format": "rate"}}}, "either source or sources, not both", "sources"),
    ({"source": None, "sources": {"a": {"format": "rate"}}}, "sources needs sql", "`sql:`"),
    (
        {"source": None, "sql": "select 1", "sources": {"a b": {"format": "rate"}}},
        "'a b' is not a valid view name",
        "letters",
    ),
    ({"options": {}}, "options: option 'checkpointLocation' is required", "job.yaml"),
    (
        {"options": {"checkpointLocation": "/c", "checkpoint.timeout": "1 week"}},
        "'1 week': give a number",
        "job.yaml",
    ),
    (
        {"trigger": {"processingTime": "1 s", "availableNow": True}},
        "exactly one trigger",
        "availableNow",
    ),
    ({"trigger": {}}, "exactly one trigger", "availableNow"),
    ({"trigger": {"availableNow": "no"}}, "availableNow is 'no'; only true is allowed", "true"),
    ({"trigger": {"once": "now"}}, "once is 'now'; only true is allowed", "true"),
    (
        {"trigger": {"processingTime": "10 secnds"}},
        "trigger: processingTime is '10 secnds'",
        "10 seconds",
    ),
    ({"trigger": {"continuous": "1 second"}}, "trigger: continuous is not", "processingTime"),
    ({"spark": {"conf": {"spark.x": None}}}, "spark.conf.spark.x is empty", "a single value"),
    ({"spark": {"conf": {1: "a"}}}, "spark.conf: the key 1 is an int", "quote it"),
]


@pytest.mark.parametrize(("change", "what", "remedy"), BAD, ids=[what for _, what, _ in BAD])
def test_an_error_names_the_file_the_key_and_what_to_do(
    path: Path, change: dict[str, Any], what: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(path, change)
    assert caught.value.what.startswith("job.yaml: ")
    assert what in caught.value.what
    assert remedy in caught.value.remedy


OTHER_THAN_SOURCE = {"source": None, "sql": "select 1"}
FOLLOWED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    (
        {"sinks": ["a"]},
        "write KEY: VALUE lines, indented below it.",
        {"sinks": {"a": {"type": "a"}}},
    ),
    (
        {"source": {"format": "json", "options": {"path": ["a"]}}},
        "give a single value; quote it if in doubt.",
        {"source": {"format": "json", "options": {"path": "a"}}},
    ),
    (
        {"spark": {"conf": {"spark.x": None}}},
        "give a single value; quote it if in doubt.",
        {"spark": {"conf": {"spark.x": ""}}},
    ),
    ({"spark": {"conf": {1: "a"}}}, "quote it: '1'.", {"spark": {"conf": {"1": "a"}}}),
    (
        {**OTHER_THAN_SOURCE, "sources": {"a b": {"format": "rate"}}},
        "use letters, digits and '_', and begin with a letter or '_'.",
        {**OTHER_THAN_SOURCE, "sources": {"_a1": {"format": "rate"}}},
    ),
    ({"sinks": {}}, "name at least one sink.", {"sinks": {"a": {"type": "a"}}}),
    (
        {"source": None},
        "write `source:` for a single source, or `sources:` with a name for each.",
        {"source": {"format": "rate"}},
    ),
    (
        {"source": None, "sources": {"a": {"format": "rate"}}},
        "add `sql:` with a query over these names.",
        {"source": None, "sources": {"a": {"format": "rate"}}, "sql": "SELECT * FROM a"},
    ),
]


@pytest.mark.parametrize(("change", "remedy", "followed"), FOLLOWED)
def test_a_remedy_that_is_followed_leads_on(
    path: Path, change: dict[str, Any], remedy: str, followed: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(path, change)
    assert caught.value.remedy == remedy
    load(path, followed)


KEYS = {
    "no": "a bool", "on": "a bool", "Yes": "a bool", "FALSE": "a bool", "1": "an int",
    "1.10": "a float", "1e3": "", "~": "empty", "null": "empty", ".inf": "a float",
}  # fmt: skip


@pytest.mark.parametrize(("word", "kind"), KEYS.items())
@pytest.mark.parametrize("section", ["", "options", "sinks", "spark.conf"])
def test_a_key_that_yaml_reads_as_no_text_is_to_be_quoted_as_it_is_written(
    path: Path, word: str, kind: str, section: str
) -> None:
    lines, depth = [], 0
    for depth, name in enumerate(filter(None, section.split(".")), 1):
        lines.append(f"{'  ' * (depth - 1)}{name}:")
    lines.append(f"{'  ' * depth}{word}: 1")
    text = "\n".join(lines)
    with pytest.raises((ConfigError, ExceptionGroup)) as caught:
        load(path, text)
    errors = getattr(caught.value, "exceptions", [caught.value])
    found = [error for error in errors if f"the key {word} is " in error.what]
    assert [error.remedy for error in found] == [f"quote it: '{word}'."] * bool(kind)
    assert all(f"is {kind}." in error.what for error in found)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"name: a\nx: \0\n", "it has the character U+0000, which YAML does not allow, in line 2"),
        (b"name: \x7f\n", "it has the character U+007F, which YAML does not allow, in line 1"),
        (b"name: a\n\nx: \xff\n", "it is not UTF-8 text, in line 3"),
        (b"\xff\xfen\0:\0\0\0", "it has the character U+0000, which YAML does not allow."),
    ],
)
def test_a_character_that_is_not_allowed_is_named(path: Path, data: bytes, why: str) -> None:
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_job_file(path, {})
    assert why in caught.value.what


@pytest.mark.parametrize("names", [("A", "a"), ("Orders", "orders"), ("Ä", "ä")])
def test_sources_whose_names_differ_only_in_case_are_refused(
    path: Path, names: tuple[str, str]
) -> None:
    change = {**OTHER_THAN_SOURCE, "sources": {name: {"format": "rate"} for name in names}}
    with pytest.raises(ConfigError, match=f"'{names[0]}' and '{names[1]}' differ only in case"):
        load(path, change)
    change["sources"] = {names[0]: {"format": "rate"}, f"{names[1]}2": {"format": "rate"}}
    load(path, change)


def test_two_answers_to_when_are_refused(path: Path) -> None:
    options = {"checkpointLocation": "/c", "checkpoint.interval": "5 s"}
    trigger = {"processingTime": "1 s"}
    found = r"both trigger and options\.checkpoint\.interval"
    with pytest.raises(ConfigError, match=found) as caught:
        load(path, {"options": options, "trigger": trigger})
    assert caught.value.remedy == "keep one of the two."
    load(path, {"options": options})
    load(path, {"trigger": trigger})


def test_a_value_that_may_be_a_secret_is_not_repeated(path: Path) -> None:
    secret = "mysql://app:canary-7@db/shop"
    texts = [
        yaml.safe_dump({**MINIMAL, "sinks": {"facts": {"type": "mysql", "options": secret}}}),
        yaml.safe_dump({**MINIMAL, "sinks": [{"password": secret}]}),
        yaml.safe_dump({**MINIMAL, "source": {"format": "x", "options": [secret]}}),
        f'name: orders\noptions: {{password: "{secret}',
        f"name: !!python/object/apply:os.system ['{secret}']",
    ]
    for text in texts:
        with pytest.raises(ConfigError) as caught:
            load(path, text)
        assert "canary-7" not in str(caught.value)


def test_a_key_given_twice_is_refused_with_its_place(path: Path) -> None:
    twice = f"name: a\nname: b\n{yaml.safe_dump({**MINIMAL, 'name': 'c'})}".replace("name: c\n", "")
    with pytest.raises(
        ConfigError, match=r"line 2, column 1: the key 'name' is given twice"
    ) as caught:
        load(path, twice)
    assert caught.value.remedy == "correct it there."
    assert load(path, twice.replace("name: a\n", "")).name == "b"


def test_merged_keys_may_be_overridden(path: Path) -> None:
    text = yaml.safe_dump({key: value for key, value in MINIMAL.items() if key != "sinks"})
    job = load(
        path,
        text
        + (
            "sinks:\n  a: &a {type: x, options: &o {k: 1, l: 2}}\n"
            "  b: {<<: *a, options: {<<: *o, k: 3}}\n"
        ),
    )
    assert job.sinks["b"].type == "x"
    assert job.sinks["b"].options == {"k": 3, "l": 2}


@pytest.mark.parametrize(
    "content",
    [b"", b"- a\n", b"\xff\xfe\x00", b"[" * 5000, b"a: !!python/name:os.system\n", b"\x00"],
)
def test_other_files_are_refused_by_name(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"job\.yaml"):
        load_job_file(path, {})


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ("{a: ", "}")])
def test_a_file_that_is_too_deep_to_parse_is_simplified(path: Path, left: str, right: str) -> None:
    rest = yaml.safe_dump({key: MINIMAL[key] for key in MINIMAL if key != "sinks"})

    def sinks(depth: int) -> str:
        return f"{rest}sinks: {{facts: {{type: a, options: {{x: {left * depth}{right * depth}}}}}}}"

    with pytest.raises(ConfigError, match=r"Cannot parse .*job\.yaml: RecursionError") as caught:
        load(path, sinks(5_000))
    assert caught.value.remedy == "simplify it."
    load(path, sinks(5))


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read .*job\.yaml: No such file") as caught:
        load_job_file(path, {})
    assert caught.value.remedy == "name a file that exists."
    load(path)


def test_a_huge_file_is_not_parsed(path: Path) -> None:
    huge = path.with_name("input.json")
    huge.write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigError, match="larger than") as caught:
        load_job_file(huge, {})
    assert caught.value.remedy == "name a job file."
    load(path)

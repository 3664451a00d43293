"""YAML 1.1 reads a bare off, no, on or yes as a boolean: it is the word where an option has it, and
refused with what to do where it has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import EnumType
from typing import Any, get_args

import pytest
import yaml

from harness.own_sinks import sink_options
from twophase.cli.jobfile import job_file
from twophase.errors import ConfigError
from twophase.options.job_options import JobOptions
from twophase.options.parsing import Options
from twophase.sinks.mysql.options import MySqlOptions, Tls
from twophase.sources.kafka.options import KafkaOptions

GROUPS: list[type[Options]] = [
    JobOptions,
    KafkaOptions,
    *sink_options().values(),
    *(kind for kind in vars(job_file).values() if isinstance(kind, type) and Options in kind.mro()),
]
WORDS = ("off", "no", "on", "yes", "true", "false", "Off", "NO")


def kinds_of(group: type[Options], name: str) -> tuple[object, ...]:
    annotation = group.model_fields[name].annotation
    return get_args(annotation) or (annotation,)


def members(kinds: tuple[object, ...]) -> set[str]:
    enums: list[Any] = [kind for kind in kinds if isinstance(kind, EnumType)]
    return {one.value for kind in enums for one in kind}


def cases() -> Iterator[tuple[type[Options], str, str]]:
    """Each option that takes text or one of some words, and no boolean."""
    for group in GROUPS:
        for name, field in group.model_fields.items():
            kinds = kinds_of(group, name)
            if bool not in kinds and (str in kinds or members(kinds)):
                yield group, name, field.alias or name


def refused(group: type[Options], key: str, value: object) -> str:
    """What is said about the option; others are missing."""
    try:
        group.parse({key: value}, "here")
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("group", "name", "key"), list(cases()))
def test_a_bare_word_is_taken_as_written_or_refused_with_the_way_on(group, name, key, word):
    read = yaml.safe_load(f"k: {word}")["k"]
    assert isinstance(read, bool)
    said = refused(group, key, read)
    if word.lower() in members(kinds_of(group, name)):
        assert f"{key!r} is {read}" not in said
    elif f"{key!r} is {read}" in said:
        assert f"{word.lower()}" in said.partition("YAML reads a bare")[2]
        assert "put the word in quotes" in said


def test_the_words_of_a_jobs_options_are_known():
    """Another word that YAML reads as a boolean would need a look at it."""
    known = {
        (key, word)
        for group, name, key in cases()
        for word in members(kinds_of(group, name))
        if isinstance(yaml.safe_load(word), bool)
    }
    assert known == {("chaining", "off"), ("tls", "off")}


@pytest.mark.parametrize("word", ["off", "'off'", "Off", "OFF", "no", "false"])
def test_tls_off_in_a_job_file_is_tls_off(word):
    options = {"url": "mysql://app@db.example/shop", "table": "t", **yaml.safe_load(f"tls: {word}")}
    assert MySqlOptions.parse(options, "sink 'facts'").tls is Tls.OFF


def test_tls_on_is_refused_with_the_words_that_there_are():
    with pytest.raises(ConfigError) as caught:
        MySqlOptions.parse({"url": "mysql://a@b/c", "table": "t", "tls": True}, "sink 'facts'")
    assert "'tls' is True" in str(caught.value)
    assert "'verify_identity', 'verify_ca', 'insecure' or 'off'" in str(caught.value)
    assert "YAML reads a bare on, yes, true as True: put the word in quotes." in str(caught.value)

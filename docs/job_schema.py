"""The JSON Schema of a job file, for editors, from the models that check it.

It knows names and kinds of values; what only a program can check, such as a duration or two options
that do not go together, is left to `twophase check`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from typing import Any, get_origin

from option_tables import bare_type

_FLAG = ["boolean", "string", "integer"]
_NUMBER = ["number", "string"]
_TEXT = ["string", "number"]
_SCALAR = ["string", "number", "boolean"]
_KINDS: Mapping[type, Any] = {
    bool: _FLAG,
    int: _NUMBER,
    float: _NUMBER,
    str: _TEXT,
    tuple: ["array", "string"],
}
_SHOWN = {"text": _TEXT, "names": ["array", "string"]}
_KAFKA = "twophase-kafka"
_SECTIONS = {
    "name": "the job's name, which identifies it in the sinks: keep it",
    "sql": "a query over the sources by name; `source` if there is one",
}


def schema() -> str:
    """Return the schema as text."""
    found = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A job of twophase",
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "sinks", "options"],
        "oneOf": [
            {"required": ["source"], "not": {"required": ["sources"]}},
            {"required": ["sources", "sql"], "not": {"required": ["source"]}},
        ],
        "properties": {
            **{key: {"type": "string", "description": text} for key, text in _SECTIONS.items()},
            "spark": _section("SparkSection", conf=_values()),
            "source": _source(),
            "sources": {"type": "object", "additionalProperties": _source()},
            "sinks": {"type": "object", "minProperties": 1, "additionalProperties": _sink()},
            "options": _options(_model("twophase.options.job_options.JobOptions"), _flink_keys()),
            "trigger": _trigger(),
        },
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _source() -> dict[str, Any]:
    names = import_module("twophase.kafka_client.other_names").ALIASES
    ours = _options(_model("twophase.sources.kafka.options.KafkaOptions"), names)
    return {
        **_section("SourceSection", options=_values(), watermark=_section("WatermarkSection")),
        **_if("format", {_KAFKA: ours}),
    }


def _sink() -> dict[str, Any]:
    kinds = import_module("harness.own_sinks").sink_options()
    options = {name: _options(kind, ()) for name, kind in kinds.items()}
    return {**_section("SinkSection", options={"type": "object"}), **_if("type", options)}


def _if(key: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a section, where one of its keys has a known value."""
    return {
        "allOf": [
            {
                "if": {"properties": {key: {"const": value}}, "required": [key]},
                "then": {"properties": {"options": found}},
            }
            for value, found in options.items()
        ]
    }


def _section(name: str, **inner: Any) -> dict[str, Any]:
    """A mapping with the keys of a section of the file."""
    model = getattr(import_module("twophase.cli.jobfile.job_file"), name)
    return {**_object(model), "properties": {**_properties(model), **inner}}


def _model(name: str) -> Any:
    module, _, group = name.rpartition(".")
    return getattr(import_module(module), group)


def _options(model: Any, other: Any) -> dict[str, Any]:
    """A mapping with the keys of a group of options, and other names for some of them."""
    return {**_object(model), "properties": {**_properties(model), **{key: {} for key in other}}}


def _object(model: Any) -> dict[str, Any]:
    needed = [
        field.alias or key for key, field in model.model_fields.items() if field.is_required()
    ]
    found = {"type": "object", "additionalProperties": False}
    # another name, or the command line, may give what a job requires
    return found if needed in ([], ["checkpointLocation"]) else {**found, "required": needed}


def _properties(model: Any) -> dict[str, Any]:
    return {field.alias or key: _property(field) for key, field in model.model_fields.items()}


def _property(field: Any) -> dict[str, Any]:
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", field.description or "")
    described = {"description": text} if text else {}
    if shown := (field.json_schema_extra or {}).get("type"):
        values = re.findall(r"`([^`]+)`", shown)
        return {**described, **({"enum": values} if values else {"type": _SHOWN[shown]})}
    kind, _ = bare_type(field.annotation, list(field.metadata))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {**described, "enum": [member.value for member in kind]}
    types = _KINDS.get(get_origin(kind) or kind)
    return described if types is None else {**described, "type": types}


def _flink_keys() -> list[str]:
    return [key.name for key in import_module("twophase.options.other_keys").KEYS]


def _trigger() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            "processingTime": {"type": _NUMBER},
            "availableNow": {"type": _FLAG},
            "once": {"type": _FLAG},
        },
    }


def _values() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": _SCALAR}}

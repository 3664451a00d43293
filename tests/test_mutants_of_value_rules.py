"""Rules of values and of options, each with the test that finds it missing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.rule_mutants import Mutant
from tests.cli.jobfile import test_checked_job as files
from tests.cli.jobfile.test_checked_job import _no_spark
from tests.sinks.common import test_hive_files as hive
from tests.sinks.mysql.rows import test_json_documents as documents
from tests.sinks.mysql.rows import test_labels as labels
from tests.sinks.mysql.rows import test_numbers as numbers
from tests.sources.kafka import test_bad_records as bad
from tests.sources.kafka import test_json as records
from tests.sources.kafka import test_options as options
from twophase.cli.jobfile import checked_job
from twophase.kafka_client import other_names
from twophase.sinks.common.staging import hive_files
from twophase.sinks.mysql.rows import encoders, json_documents, types
from twophase.sources.kafka import json_parser, json_records, json_types

__all__ = ["_no_spark"]

Test = Callable[[Any], object]


def at(test: Callable[..., object], *given: Any) -> Test:
    """A test of a case, which needs no folder."""
    return lambda _: test(*given)


def stands_first(kind: str) -> Test:
    return at(bad.test_a_record_gives_its_row_or_none_wherever_it_stands, kind, "first")


def number_of(declared: str) -> Test:
    case = next(case for case in numbers.EXACT if case[0].column_type == declared)
    test = numbers.test_the_last_whole_number_of_a_column_is_written_and_the_next_is_refused
    return at(test, *case[:3])


def of_spark(name: str, value: str, ours: dict[str, str]) -> Test:
    return at(options.test_a_name_of_spark_s_source_sets_our_option, name, value, ours)


NOT_RAISED = "DID NOT RAISE"
JSON = [
    Mutant(
        "a field that is given twice is bad where the record is rewritten",
        json_records.RecordCheck.judge,
        "return None if repeats and self._repeats(text) else rewritten",
        "return rewritten",
        at(bad.test_a_field_that_is_given_twice_is_noticed_however_it_is_written, b"a/b", b"{}"),
        NOT_RAISED,
    ),
    Mutant(
        "a field that is given twice is one however it is written",
        json_records.RecordCheck._may_repeat,
        "return _BACKSLASH in text and self._escape(text) is not None",
        "return False",
        at(
            bad.test_a_field_that_is_given_twice_is_noticed_however_it_is_written,
            b"a\\u002fb",
            b"{}",
        ),
        NOT_RAISED,
    ),
    Mutant(
        "a value is one object",
        json_parser.JsonParser._read,
        "if table.num_rows != rows:",
        "if False:",
        at(records.test_a_bad_record_is_named_wherever_it_stands, b'{"a":1}{"a":2}'),
        NOT_RAISED,
    ),
    Mutant(
        "a value ends with its object",
        json_records.is_framed,
        'ends.endswith(b"}")',
        "True",
        at(
            records.test_records_that_add_up_to_the_right_number_of_rows_are_still_distinguished,
            (b'{"a":1} {"zz":', b'{"a":2}}'),
        ),
        NOT_RAISED,
    ),
    Mutant(
        "a decimal keeps its digits",
        json_types._convert_decimal,
        "array.cast(target)",
        "array.cast(target, safe=False)",
        stands_first("decimal digits"),
        "0.12",
    ),
    Mutant(
        "a number fits into a FLOAT",
        json_types._overflows,
        "pc.and_not(pc.is_inf(cast), pc.is_inf(array))",
        "pc.and_not(pc.is_inf(cast), pc.is_inf(cast))",
        stands_first("FLOAT too large"),
        "assert",
    ),
    Mutant(
        "a STRING is the raw text of what is no text",
        json_records._render_string,
        "msgspec.json.encode(decoded)",
        'msgspec.json.encode(decoded.replace(" ", ""))',
        at(
            bad.test_a_string_is_its_text_and_every_other_value_is_its_raw_text,
            "[1, null]",
            "[1, null]",
        ),
        "assert",
    ),
    Mutant(
        "a tombstone is another fault than a bad record",
        json_parser.JsonParser._framed,
        "faults[number] = TOMBSTONE",
        "faults[number] = VAGUE",
        at(bad.test_tombstones_may_be_dropped_alone_and_are_counted_apart),
        "does not fit",
    ),
]
HIVE = [
    Mutant(
        "Hive finds parquet's timestamps as INT96",
        hive_files.write_parquet,
        "use_deprecated_int96_timestamps=not local",
        "use_deprecated_int96_timestamps=False",
        at(hive.test_a_parquet_file_has_the_timestamps_and_the_maker_that_hive_goes_by),
        "INT96",
    ),
    Mutant(
        "Hive takes them for moments of parquet-mr's",
        hive_files.write_parquet,
        "_of_parquet_mr(bytes(data[footer:-8]))",
        "bytes(data[footer:-8])",
        at(hive.test_a_parquet_file_has_the_timestamps_and_the_maker_that_hive_goes_by),
        "parquet-mr",
    ),
    Mutant(
        "an old day keeps its name in the Julian calendar",
        hive_files._julian,
        "year // 4 - 32083",
        "year // 4 - year // 100 + year // 400 - 32045",
        at(hive.test_a_day_keeps_its_name_in_the_julian_calendar),
        "assert",
    ),
    Mutant(
        "a day that the Julian calendar lacks is refused",
        hive_files._rebased,
        "if missing.any():",
        "if False:",
        at(
            hive.test_what_hive_would_read_as_another_day_is_refused,
            hive_files.write_orc,
            pa.array([date(1582, 10, 5)]),
            "1582-10-05",
        ),
        NOT_RAISED,
    ),
    Mutant(
        "a timestamp of ORC is one of UTC",
        hive_files.write_orc,
        'local = encoded.column(number).cast(pa.timestamp("us"))',
        "local = encoded.column(number)",
        at(hive.test_an_orc_file_has_times_of_utc_under_names_in_small_letters),
        "assert",
    ),
]
MYSQL = [
    Mutant(
        "a label of an ENUM is compared letter for letter",
        encoders._enum,
        "numbers.get, why",
        "lambda text: numbers.get(text.lower()), why",
        at(labels.test_what_a_server_would_take_for_a_label_is_refused, "PAID"),
        "assert False",
    ),
    Mutant(
        "so is one of a SET",
        encoders._set_number,
        "labels.get(label, 0)",
        "labels.get(label.lower(), 0)",
        at(labels.test_what_a_server_would_take_for_a_set_of_labels_is_refused, "NEW"),
        "assert False",
    ),
    Mutant(
        "the labels of a SET have one order",
        encoders._set_number,
        "bits[0] and all(one < two for one, two in pairwise(bits))",
        "all(bits)",
        at(labels.test_what_a_server_would_take_for_a_set_of_labels_is_refused, "paid,new"),
        "assert False",
    ),
    Mutant(
        "a YEAR has its own bounds",
        types._kept,
        "return _YEARS",
        "return 1900, 2156",
        number_of("year"),
        NOT_RAISED,
    ),
    Mutant(
        "a BIT has as many digits as it says",
        types._kept,
        "2 ** (column.precision or 1) - 1",
        "2 ** (column.precision or 1)",
        number_of("bit(7)"),
        NOT_RAISED,
    ),
    Mutant(
        "an UNSIGNED number has an end",
        types._kept,
        "(0, 2 * half - 1)",
        "(0, 2 * half)",
        number_of("bigint unsigned"),
        NOT_RAISED,
    ),
    Mutant(
        "an UNSIGNED number is not negative",
        types._kept,
        "return (0, high) if column.unsigned else (low, high)",
        "return -1, high",
        number_of("tinyint unsigned"),
        "keeps -1 to 255",
    ),
    Mutant(
        "a JSON document has each key once",
        json_documents._once,
        "if len(found) < len(pairs):",
        "if False:",
        at(
            documents.test_a_document_that_would_read_back_as_another_is_refused,
            '{"a":1,"a":2}',
            "key 'a'",
        ),
        NOT_RAISED,
    ),
    Mutant(
        "a number of a JSON document is stored as it is",
        json_documents._is_same,
        "value_of(number) == value_of(answer)",
        "float(number) == float(answer)",
        at(
            documents.test_a_number_is_stored_exactly_or_not,
            "18446744073709551617",
            "1.8446744073709552e19",
            False,
        ),
        "assert True is False",
    ),
]
OPTIONS = [
    Mutant(
        "the options of a source are checked before Spark starts",
        checked_job._check_source,
        "source.check_options(SourceLeg(section.format, section.options))",
        "pass",
        lambda folder: files.test_each_mistake_alone_is_one_error(
            folder, "an option of the source"
        ),
        "assert",
    ),
    Mutant(
        "a source without columns is told so before Spark starts",
        checked_job._check_source,
        "if section.fields is None and source.needs_schema(section.options):",
        "if False:",
        files.test_a_source_that_needs_a_schema_says_so_before_spark_starts,
        "assert",
    ),
    Mutant(
        "a name of Spark's sets our option",
        other_names._renamed,
        "key = ALIASES.get(names[name], names[name])",
        "key = names[name]",
        of_spark("maxOffsetsPerTrigger", "7", {"maxRecordsPerTrigger": "7"}),
        "maxOffsetsPerTrigger",
    ),
    Mutant(
        "two names of one option do not go together",
        other_names._renamed,
        "if key in found:",
        "if False:",
        of_spark("minPartitions", "7", {"minReadTasks": "7"}),
        NOT_RAISED,
    ),
    Mutant(
        "a time of Spark's means a time here",
        other_names._renamed,
        'f"timestamp:{value}" if names[name] == "startingTimestamp" else value',
        "value",
        of_spark("startingTimestamp", "1", {"startingOffsets": "timestamp:1"}),
        "startingTimestamp|startingOffsets",
    ),
    Mutant(
        "a name of Java's client needs no kafka.",
        other_names._known_as,
        "known.get(_PREFIX + name.lower())",
        "None",
        at(
            options.test_a_wrong_value_is_named_as_the_user_wrote_it,
            "kafka.security.protocol",
            "security.protocol",
        ),
        "security.protocol",
    ),
    Mutant(
        "a name has no case",
        other_names._known_as,
        "known.get(name.lower()) or",
        "known.get(name) or",
        at(
            options.test_a_wrong_value_is_named_as_the_user_wrote_it,
            "maxRecordsPerTrigger",
            "MAXOFFSETSPERTRIGGER",
        ),
        "MAXOFFSETSPERTRIGGER",
    ),
]


@pytest.mark.parametrize("mutant", [*JSON, *HIVE, *MYSQL, *OPTIONS], ids=str)
def test_a_rule_that_is_missing_is_found(mutant: Mutant, tmp_path: Path) -> None:
    mutant.is_found(tmp_path)

"""README.md and docs/ say what is true: their code parses, their options exist, their
links lead somewhere.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twophase import errors
from twophase.cli.jobfile.job_file import load_job_file
from twophase.errors import TwoPhaseError
from twophase.options.job_options import JobOptions
from twophase.sinks.mysql.options import MySqlOptions
from twophase.sources.kafka.options import KafkaOptions

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part.startswith(".") or part in ("build", "site") for part in path.relative_to(ROOT).parts
    )
)
TESTS = ("tests", "integration", "verification")
PYTHON = README.partition("```python\n")[2].partition("```")[0]
OF_SPARK_4_1 = (ROOT / "docs" / "kafka.md").read_text().partition("### With PySpark 4.1")[2]
PYTHON_OF_SPARK_4_1, YAML_OF_SPARK_4_1 = (
    OF_SPARK_4_1.partition(f"```{language}\n")[2].partition("```")[0]
    for language in ("python", "yaml")
)
YAML = (ROOT / "docs" / "tutorial.md").read_text().partition("```yaml\n")[2].partition("```")[0]
# The addresses that the job file of the tutorial has a word for: the program takes them
# from its environment.
ENVIRONMENT = {
    "TWOPHASE_KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
    "TWOPHASE_MYSQL_URL": "mysql://app@db",
}


def calls(name: str) -> list[ast.Call]:
    """The calls of a function or method in the quick start."""
    nodes = [node for node in ast.walk(ast.parse(PYTHON)) if isinstance(node, ast.Call)]
    return [
        node
        for node in nodes
        if name in (getattr(node.func, "attr", ""), getattr(node.func, "id", ""))
    ]


def value(node: ast.expr) -> Any:
    """A constant of the quick start, or what it takes from its environment."""
    return eval(
        compile(ast.Expression(node), "README.md", "eval"),
        {"os": SimpleNamespace(environ=ENVIRONMENT)},
    )


def keywords(call: ast.Call) -> dict[str, Any]:
    return {str(keyword.arg): value(keyword.value) for keyword in call.keywords}


def options_of_the_quick_start() -> dict[str, Any]:
    return {value(call.args[0]): value(call.args[1]) for call in calls("option")}


def test_the_quick_start_is_short_and_compiles() -> None:
    assert len(PYTHON.splitlines()) <= 25
    compile(PYTHON, "README.md", "exec")


def test_every_option_of_the_quick_start_exists() -> None:
    options = options_of_the_quick_start()
    # not a dict
    job = {key: value for key, value in options.items() if key in JobOptions.keys()}  # noqa: SIM118
    assert job.keys() == {"checkpointLocation"}
    JobOptions.parse(job, "README")
    KafkaOptions.parse({key: value for key, value in options.items() if key not in job}, "README")
    (sink,) = calls("MySqlSink")
    MySqlOptions.parse(keywords(sink), "README")


def test_the_program_for_spark_4_1_is_the_quick_start_with_another_source() -> None:
    compile(PYTHON_OF_SPARK_4_1, "docs/kafka.md", "exec")
    ours, spark_s = (
        program.partition("sink = MySqlSink(") for program in (PYTHON, PYTHON_OF_SPARK_4_1)
    )
    assert ours[2] == spark_s[2] != ""
    imports, option = re.compile(r"^(?:from|import) .+", re.MULTILINE), re.compile(r"\.option\(.+")
    assert {*imports.findall(spark_s[0])} - {*imports.findall(ours[0])} == {
        "from pyspark.sql.functions import col, from_json"
    }
    assert {*option.findall(spark_s[0])} ^ {*option.findall(ours[0])} == {
        '.option("value.format", "json")',
        '.option("startingOffsets", "earliest")',
    }


def test_the_job_file_is_valid_and_says_the_same_as_the_python(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(YAML)
    job = load_job_file(path, {})
    (sink,) = calls("MySqlSink")
    (schema,) = calls("schema")
    assert job.sinks["facts"].options == keywords(sink)
    source = next(iter(job.sources.values()))
    assert source.fields == ast.literal_eval(schema.args[0])
    options = options_of_the_quick_start()
    assert {**source.options, **job.options} == options


def test_the_job_file_for_spark_4_1_is_that_of_the_tutorial_with_another_source(
    tmp_path: Path,
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(YAML)
    ours = load_job_file(path, {})
    path.write_text(YAML_OF_SPARK_4_1)
    spark_s = load_job_file(path, {})
    for part in ("name", "sinks", "options", "trigger"):
        assert getattr(ours, part) == getattr(spark_s, part)
    [source], [other] = ours.sources.values(), spark_s.sources.values()
    assert other.format == "kafka"
    assert {*other.options.items()} ^ {*source.options.items()} == {
        ("value.format", "json"),
        ("startingOffsets", "earliest"),
    }
    assert f'"{spark_s.spark.conf["spark.jars.packages"]}"' in PYTHON_OF_SPARK_4_1


READS_BY_OURS = re.compile(
    r'^ *format: twophase-kafka|readStream\.format\("twophase-kafka', re.MULTILINE
)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if READS_BY_OURS.search(page.read_text())],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_each_page_that_reads_by_twophase_kafka_leads_to_what_to_do_with_spark_4_1(
    page: Path,
) -> None:
    assert {
        (page.parent / name).resolve() if name else page
        for name, _, anchor in (target.partition("#") for target in targets(page))
        if anchor == "with-pyspark-41"
    } == {ROOT / "docs" / "kafka.md"}


def targets(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]


def anchor_of(head: str) -> str:
    return re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {*map(anchor_of, re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in targets(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if len(page.read_text().split()) > 3_000],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_long_page_lists_its_sections_above_the_second_one(page: Path) -> None:
    text = page.read_text()
    heads = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    beginning = text.partition(f"\n## {heads[1]}\n")[0]
    assert not [head for head in heads[1:] if f"](#{anchor_of(head)})" not in beginning]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_the_code_that_is_named_exists(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for name in re.findall(
        r"`((?:benchmarks|demo|docs|examples|harness|integration|sinks|tests|"
        r"twophase|verification)/[\w./]*)`",
        text,
    ):
        assert (ROOT / name).exists(), name


def named_tests(page: Path) -> list[tuple[str, str]]:
    """File and function of each `file.py::test` on a page; `::test` alone is in the
    file named before it.
    """
    found: list[tuple[str, str]] = []
    for file, name in re.findall(r"`([\w./]*)::(test_\w+)`", page.read_text()):
        found.append((file or found[-1][0], name))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_exists(page: Path) -> None:
    for file, name in named_tests(page):
        assert re.search(rf"^ *def {name}\(", (ROOT / file).read_text(), flags=re.MULTILINE), (
            f"{file}::{name}"
        )
    files = {path.name for folder in TESTS for path in (ROOT / folder).rglob("*.py")}
    for name in re.findall(r"`(test_\w+\.py)`", page.read_text()):
        assert name in files, name


def conditions(text: str) -> dict[str, str]:
    """The rows of tables of conditions and hazards, by their first cell."""
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith(("| -- |", "|  |", "| condition |"))
    ]
    return {row.split(" | ")[0]: row for row in rows}


def test_every_hazard_and_every_condition_of_loss_names_its_test() -> None:
    rows = [path.read_text() for path in (ROOT / "docs" / "loss.md", ROOT / "docs" / "hazards.md")]
    found = conditions("\n".join(rows))
    assert len(found) > 90
    assert not [row for row in found.values() if "::test_" not in row]


def section(page: str, head: str) -> str:
    return page.partition(f"\n## {head}\n")[2].partition("\n## ")[0]


def test_the_conditions_of_loss_in_the_readme_are_those_of_the_whole_list() -> None:
    """Each is a row of docs/loss.md, with the same error and with a test."""
    short = section(README, "Loss is never silent")
    loss = (ROOT / "docs" / "loss.md").read_text()
    detected, undetected = (
        conditions(section(loss, head)) for head in ("Detected", "Not detected")
    )
    errors_of = {
        condition: row.split(" | ")[1].removesuffix(" |")
        for condition, row in conditions(short).items()
    }
    listed = [f"| {one}" for one in re.findall(r"^- (.+)$", short, flags=re.MULTILINE)]
    assert len(errors_of) > 5
    assert len(listed) > 2
    assert len(detected) + len(undetected) > 45
    assert not {*listed} - {*undetected}
    assert (
        errors_of.items()
        <= {condition: row.split(" | ")[1] for condition, row in detected.items()}.items()
    )


def test_each_guarantee_of_the_readme_names_the_promises_that_prove_it() -> None:
    """By their names on the page that has their tests, or the page of losses."""
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in section(README, "Guarantees").splitlines()
        if line.startswith("|")
    ][2:]
    page = (ROOT / "docs" / "reliability.md").read_text()
    promises = {row.removeprefix("| ") for row in conditions(section(page, "Promises"))}
    assert len(rows) > 6
    for guarantee, _, proven in rows:
        links = re.findall(r"\[([^]]+)\]\(([^)]+)\)", proven)
        assert links, guarantee
        for name, target in links:
            assert target == "docs/loss.md" or (
                target == "docs/reliability.md#promises" and name in promises
            ), f"{guarantee}: {name}"


def test_the_readme_names_no_test() -> None:
    assert not re.findall(r"\btest_\w+", README)


def test_the_last_screen_of_the_demo_in_the_readme_is_that_of_its_page() -> None:
    blocks = re.findall(r"```\n(.*?)```", section(README, "See it work"), flags=re.DOTALL)
    assert len(blocks) == 1
    assert "lost                0          0          0" in blocks[0]
    assert blocks[0] in (ROOT / "docs" / "demo.md").read_text()


def test_every_make_target_that_is_named_exists() -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), flags=re.MULTILINE)
    }
    assert named <= made


def kinds(root: type[TwoPhaseError]) -> list[type[TwoPhaseError]]:
    return [
        root,
        *(
            leaf
            for child in root.__subclasses__()
            if child.__module__ == errors.__name__
            for leaf in kinds(child)
        ),
    ]


# Only their children are raised.
ABSTRACT = {"TwoPhaseError", "SourceLossError"}


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds(TwoPhaseError) if kind.__name__ not in ABSTRACT]
)
def test_operations_knows_every_error_with_its_exit_code(kind: type[TwoPhaseError]) -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    restarts = "restarts, " if kind.restartable else ""
    assert f"| `{kind.__name__}` ({restarts}{kind.exit_code}) |" in page


def test_every_decision_is_in_the_list_once_under_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^\| \[(\d{4})\]\((\1-[\w.-]+\.md)\) \| (.+) \|$",
        (folder / "README.md").read_text(),
        flags=re.MULTILINE,
    )
    titles = [
        (path.name[:4], path.name, path.read_text().partition("\n")[0].removeprefix("# ")[6:])
        for path in sorted(folder.glob("0*.md"))
    ]
    assert sorted(listed) == titles

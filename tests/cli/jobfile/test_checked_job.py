"""A job file is checked whole, in one run, before Spark starts."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.cli.test_docs import rows
from twophase.cli import run as run_module
from twophase.cli.main import main

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1
GOOD: dict[str, Any] = {
    "name": "orders",
    "source": {
        "format": "twophase-kafka",
        "schema": "id long",
        "options": {
            "kafka.bootstrap.servers": "broker:9092",
            "subscribe": "orders",
            "value.format": "json",
            "maxOffsetsPerTrigger": 1000,
        },
    },
    "sinks": {"facts": {"type": "file", "options": {"path": "/tmp/facts"}}},
    "options": {"checkpointLocation": "/tmp/chk-of-no-job"},
    "trigger": {"processingTime": "10 s"},
}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"sink": {}}, "job.yaml: unknown option 'sink'; did you mean 'sinks'?"),
    "a name": ({"name": "or ders"}, "job.yaml: The job name 'or ders' is not allowed"),
    "an option of the job": (
        {"options": {**GOOD["options"], "checkpoint.timeuot": "1 s"}},
        "job.yaml: options: unknown option 'checkpoint.timeuot'; did you mean",
    ),
    "the trigger": (
        {"trigger": {"processingTim": "10 s"}},
        "job.yaml: trigger: there is no trigger 'processingTim'.",
    ),
    "an option of the source": (
        {"source": {**GOOD["source"], "options": {"subscribe": "orders"}}},
        "source: source twophase-kafka: option 'kafka.bootstrap.servers' is required.",
    ),
    "an option of a sink": (
        {"sinks": {**GOOD["sinks"], "lake": {"type": "file", "options": {"pth": "/tmp/lake"}}}},
        "job.yaml: sinks.lake: FileSink",
    ),
    "Spark": ({"spark": {"mastre": "local"}}, "job.yaml: spark: unknown option 'mastre'"),
}


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(run_module, "_run_job", start)


def command(path: Path, *words: str, job: dict[str, Any]) -> Result:
    (path / "job.yaml").write_text(yaml.safe_dump(job))
    return CliRunner().invoke(main, [*words, str(path / "job.yaml")])


@pytest.mark.parametrize("words", [("check",), ("run",), ("run", "--available-now")])
def test_all_mistakes_are_reported_at_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    job = GOOD.copy()
    for change, _ in MISTAKES.values():
        job.update(change)
    result = command(tmp_path, *words, job=job)
    assert result.exit_code == 2
    for _, text in MISTAKES.values():
        assert text in result.stderr
    assert result.stderr.count("Error: ") == result.stderr.count("Next: ") == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_alone_is_one_error(tmp_path: Path, mistake: str) -> None:
    change, text = MISTAKES[mistake]
    result = command(tmp_path, "check", job={**GOOD, **change})
    assert (result.exit_code, result.stderr.count("Error: ")) == (2, 1)
    assert text in result.stderr
    assert command(tmp_path, "check", job=GOOD).exit_code == 0


def test_a_mistake_without_a_remedy_of_its_own_is_corrected_by_the_page_of_all_keys(
    tmp_path: Path,
) -> None:
    query = "select * from source"
    result = command(tmp_path, "check", job={**GOOD, "query": query})
    assert "Next: correct job.yaml; docs/cli.md lists every key." in result.stderr
    listed = rows("cli.md", "key")
    assert "query" not in listed
    [key] = [
        key for key, [what] in listed.items() if what.startswith("a query over the view `source`")
    ]
    assert command(tmp_path, "check", job={**GOOD, key: query}).exit_code == 0


def test_a_sound_file_has_none(tmp_path: Path) -> None:
    result = command(tmp_path, "check", job=GOOD)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("job.yaml: job orders, source to facts: no mistake found.")


def test_a_mistyped_source_has_a_hint(tmp_path: Path) -> None:
    source = {**GOOD["source"], "format": "twophase-kafak"}
    result = command(tmp_path, "check", job={**GOOD, "source": source})
    assert "there is no source 'twophase-kafak'; did you mean 'twophase-kafka'?" in result.stderr


def test_a_source_that_needs_a_schema_says_so_before_spark_starts(tmp_path: Path) -> None:
    source = {name: value for name, value in GOOD["source"].items() if name != "schema"}
    result = command(tmp_path, "run", job={**GOOD, "source": source})
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "has no columns of its own with these options" in said
    _, _, given = said.partition("Next: give them: `")
    source |= yaml.safe_load(given.partition("`")[0])
    assert source["schema"] == "id long, amount double"
    result = command(tmp_path, "check", job={**GOOD, "source": source})
    assert result.exit_code == 0, result.stderr


def test_the_folder_of_a_query_is_refused_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "chk" / "offsets").mkdir(parents=True)
    options = {"checkpointLocation": str(tmp_path / "chk")}
    result = command(tmp_path, "run", job={**GOOD, "options": options})
    assert (result.exit_code, "is Spark's folder of a query" in result.stderr) == (2, True)


FOLDERS: dict[str, tuple[dict[str, str], str]] = {
    "the job's is a file": ({"chk": "{here}/file"}, "/file' is a file, not a folder"),
    "the job's is in a file": ({"chk": "{here}/file/chk"}, "/file is not a folder"),
    "the job's is a link": ({"chk": "{here}/link"}, "/link' is a link, not a folder"),
    "the job's is a broken link": ({"chk": "{here}/broken"}, "/broken' is a link, not a folder"),
    "the job's is in a broken link": ({"chk": "{here}/broken/chk"}, "/broken is not a folder"),
    "the job's has a tilde": ({"chk": "~/chk"}, "nothing is expanded in a job file"),
    "the job's has a variable": ({"chk": "/data/$USER/chk"}, "nothing is expanded in a job file"),
    "the job's has braces": ({"chk": "/data/${HOME}"}, "nothing is expanded in a job file"),
    "the job's is elsewhere": ({"chk": "s3://a/b"}, "'s3' is not supported"),
    "the job's is on another machine": ({"chk": "file://nas/b"}, "is on another machine, 'nas'"),
    "the job's is read-only": ({"chk": "/proc/sys/chk"}, "/proc/sys cannot be written"),
    "a sink's is a file": ({"a": "{here}/file"}, "/file' is a file, not a folder"),
    "a sink's is in a file": ({"a": "file:{here}/file/a"}, "/file is not a folder"),
    "a sink's is a broken link": ({"a": "{here}/broken"}, "/broken' is a link, not a folder"),
    "a sink's has a tilde": ({"a": "~/a"}, "nothing is expanded in a job file"),
    "a sink's has a variable": ({"a": "file:///$DATA/a"}, "nothing is expanded in a job file"),
    "a sink's is relative": ({"a": "tables/a"}, "path 'tables/a' is not absolute"),
    "a sink's is relative in a URL": ({"a": "file:a"}, "path 'file:a' is not absolute"),
    "a sink's is on another machine": ({"a": "file://nas/b"}, "is on another machine, 'nas'"),
    "the job's is in a sink's": ({"a": "{here}/t", "chk": "{here}/t/chk"}, "is inside sinks.a."),
    "a sink's is in the job's": (
        {"a": "file://{here}/c/a", "chk": "file:{here}/c"},
        "is inside options.checkpointLocation",
    ),
    "by way of a link": ({"a": "{here}/link/a", "b": "{here}/real"}, "is inside sinks.b.options"),
    "by way of dots": ({"a": "{here}/x/../real/a", "b": "{here}/real"}, "is inside sinks.b.option"),
    "a sink's is the job's": (
        {"a": "{here}/c", "chk": "{here}/c"},
        "is the same folder as options.checkpointLocation",
    ),
    "two sinks of one kind": ({"a": "{here}/t", "b": "{here}/t"}, "is the same folder as"),
    "a sink's in another's": (
        {"a": "{here}/t", "b": "{here}/t/u"},
        "is inside sinks.a.options.path",
    ),
}


def job_with_folders(folder: Path, given: dict[str, str]) -> dict[str, Any]:
    (folder / "file").touch()
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    (folder / "broken").symlink_to(folder / "nowhere")
    return job_in_folders(folder, given)


def job_in_folders(folder: Path, given: dict[str, str]) -> dict[str, Any]:
    named = {"a": "{here}/a", "b": "{here}/b", "chk": "{here}/chk"} | given
    found = {key: text.replace("{here}", str(folder)) for key, text in named.items()}
    sinks = {name: {"type": "file", "options": {"path": found[name]}} for name in ("a", "b")}
    return {**GOOD, "sinks": sinks, "options": {"checkpointLocation": found["chk"]}}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_has_its_answer_before_spark_starts(tmp_path: Path, case: str) -> None:
    given, text = FOLDERS[case]
    job = job_with_folders(tmp_path, given) | {"name": "or ders"}
    result = command(tmp_path, "run", job=job)
    said = " ".join(result.stderr.split())
    assert (result.exit_code, said.count("Error: ")) == (2, 2), said
    assert text in said
    assert "The job name 'or ders' is not allowed" in said
    assert not (tmp_path / "chk").exists()


FOLLOWED: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "a file": ({"chk": "{here}/file"}, "name a folder.", {"chk": "{here}/real"}),
    "a link": ({"chk": "{here}/link"}, "name a folder.", {"chk": "{here}/real"}),
    "in a file": ({"chk": "{here}/file/c"}, "name another folder.", {"chk": "{here}/c"}),
    "a tilde": ({"chk": "~/chk"}, "write the whole path.", {"chk": "{here}/chk"}),
    "relative": (
        {"a": "tables/a"},
        "write the whole path: {here}/tables/a",
        {"a": "{here}/tables/a"},
    ),
    "inside": (
        {"a": "{here}/t", "b": "{here}/t/u"},
        "give each a folder of its own, beside the other.",
        {"a": "{here}/t", "b": "{here}/u"},
    ),
}


@pytest.mark.parametrize("case", FOLLOWED)
def test_what_is_told_of_a_folder_leads_to_the_start_of_spark(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given, remedy, followed = FOLLOWED[case]
    refused = command(tmp_path, "run", job=job_with_folders(tmp_path, given))
    said = "".join(refused.stderr.split())
    assert said.endswith(f"Next: {remedy}".replace("{here}", str(tmp_path)).replace(" ", ""))
    assert "Spark was started" not in refused.stderr
    result = command(tmp_path, "run", job=job_in_folders(tmp_path, followed))
    assert "Spark was started" in result.stderr


def test_a_folder_that_the_account_may_not_write_is_taken_once_it_may(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump(job_in_folders(tmp_path, {"chk": "{here}/closed/chk"}))
    )
    assert f"Next: give the account of the job the right to write in {closed}." in loaded(tmp_path)
    closed.chmod(0o755)
    assert loaded(tmp_path) == ""


def loaded(folder: Path) -> str:
    """The error of a job file that is loaded where root may not write everywhere."""
    code = (
        "import sys; from pathlib import Path; from twophase.cli.jobfile.checked_job import "
        "load_job; load_job(Path(sys.argv[1]), {})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "job.yaml")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=without_override,
    )
    assert bool(done.returncode) is bool(done.stderr)
    return done.stderr


def without_override() -> None:
    """Drop root's right to write what its rights forbid (capabilities(7), CAP_DAC_OVERRIDE)."""
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


SOUND: dict[str, dict[str, str]] = {
    "URLs": {"a": "file:{here}/a", "b": "file:///{here}/b", "chk": "file://localhost{here}/c"},
    "the job's folder has missing ones above it": {"chk": "{here}/x/y/chk"},
    "the job's folder is relative to the working folder": {"chk": "build/chk"},
    "a sink's folder is a link": {"a": "{here}/link"},
    "names that only begin alike": {"a": "{here}/t", "b": "{here}/tt", "chk": "{here}/t-chk"},
    "folders that may be written where the job runs": {"a": "/proc/sys/t", "chk": "/proc/sys/chk"},
}


def test_the_path_of_somebody_else_s_sink_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()
    sink = {
        "type": "twophase.testing.sqlite_sink:SqliteSink",
        "options": {"path": str(tmp_path / "shop.db"), "table": "orders"},
    }
    result = command(tmp_path, "check", job={**GOOD, "sinks": {"facts": sink}})
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_folder_is_taken(tmp_path: Path, case: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    result = command(tmp_path, "check", job=job_with_folders(tmp_path, SOUND[case]))
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.sasl.mechanism": "GSSAPI"}, "read through Spark's own source, format: kafka"),
        ({"kafka.sasl.mechanism": "AWS_MSK_IAM"}, "read through Spark's own source, format: kafka"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "set kafka.security.protocol to SASL_SSL"),
    ],
)
def test_how_the_source_authenticates_is_checked_before_spark_starts(
    tmp_path: Path, options: dict[str, str], text: str
) -> None:
    source = {**GOOD["source"], "options": {**GOOD["source"]["options"], **options}}
    result = command(tmp_path, "run", job={**GOOD, "source": source})
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())


def test_a_job_that_only_java_s_client_can_run_is_told_how_and_follows(tmp_path: Path) -> None:
    options = {
        "kafka.bootstrap.servers": "broker:9098",
        "subscribe": "orders",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": (
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        ),
    }
    result = command(
        tmp_path, "run", job={**GOOD, "source": {"format": "twophase-kafka", "options": options}}
    )
    assert (result.exit_code, result.stderr.count("Next: ")) == (2, 1)
    assert "read through Spark's own source, format: kafka, with" in " ".join(result.stderr.split())
    source = {"format": "kafka", "options": options}
    result = command(tmp_path, "check", job={**GOOD, "source": source})
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kafka.sasl.password.env", "NO_SUCH_VARIABLE"),
        ("kafka.sasl.password.file", "/nowhere/password"),
        ("kafka.ssl.ca.location", "/nowhere/ca.pem"),
    ],
)
def test_a_secret_is_looked_for_by_run_before_spark_starts_and_not_by_check(
    tmp_path: Path, key: str, value: str
) -> None:
    (tmp_path / "password").write_text("canary")
    options = {
        **GOOD["source"]["options"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "app",
        **({} if "password" in key else {"kafka.sasl.password.file": str(tmp_path / "password")}),
        key: value,
    }
    job = {**GOOD, "source": {**GOOD["source"], "options": options}}
    assert command(tmp_path, "check", job=job).exit_code == 0
    result = command(tmp_path, "run", job=job)
    assert result.exit_code == 2
    assert f"option '{key}' names" in " ".join(result.stderr.split())
    assert value in result.stderr

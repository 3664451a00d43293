"""Each rule of the catalogs behind a server has a test that finds it missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import MetastorePlace, RestPlace
from harness.rest_gateway import Gateway, gateway
from harness.rule_mutants import Mutant
from integration.catalogs import place_of
from integration.iceberg import test_hive_catalog as hive
from integration.iceberg import test_rest_catalog as rest
from integration.iceberg.test_catalogs import CASES, fenced_while_others_append
from tests.sinks.iceberg.given import MISSING, Given, Test
from tests.sinks.iceberg.others import FIELDS
from twophase.sinks.iceberg import fence
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.hive_catalog import ComparingClient, MetastoreCatalog
from twophase.sinks.iceberg.rest_catalog import RestServerCatalog

pytestmark = [pytest.mark.part("files"), pytest.mark.server, pytest.mark.thin(3)]


def by_gateway(test: Callable[[IcebergHarness, Gateway], object]) -> Test:
    """A test of a sink behind a gateway."""

    def run(given: Given) -> None:
        assert isinstance(given.place, RestPlace)
        with gateway(given.place.uri) as before:
            given.place.more["catalog_uri"] = before.uri
            test(given.harness(), before)

    return run


def of_metastore(test: Callable[..., object], *names: str) -> Test:
    def run(given: Given) -> None:
        assert isinstance(given.place, MetastorePlace)
        given.patch.setattr(fence, "_TRIES", 2)  # each waits for a lock
        harness = IcebergHarness(given.place, FIELDS)
        with harness.catalog()._client as connection:  # type: ignore[attr-defined]
            found = {"connection": connection, "monkeypatch": given.patch}
            test(harness, *(found[name] for name in names))

    return run


REST = [
    Mutant(
        "a fence requires the branch",
        RestServerCatalog.as_read,
        "            AssertRefSnapshotId(ref=branch, snapshot_id=head and head.snapshot_id),\n",
        "",
        lambda given: fenced_while_others_append(given, version=1),
        r"\[\] == \[100\]",
    ),
    Mutant(
        "a commit requires the partition spec",
        RestServerCatalog.as_read,
        "            AssertDefaultSpecId(default_spec_id=was.default_spec_id),\n",
        "",
        CASES["others replace the spec"],
        MISSING,
    ),
    Mutant(
        "a fence changes the branch",
        RestServerCatalog.new_property,
        "updates = [*made.updates, SetPropertiesUpdate(updates={key: value})]",
        "updates = [SetPropertiesUpdate(updates={key: value})]",
        CASES["an abort in flight"],
        "Committed",
    ),
    Mutant(
        "a commit that arrives twice keeps its files",
        Catalog._has,
        "return change.snapshot in",
        "return change.snapshot in () and change.snapshot in",
        by_gateway(rest.test_a_commit_that_arrives_twice_keeps_its_files),
        "No such file|does not exist|FileNotFound",
    ),
    Mutant(
        "a catalog that does not compare is refused",
        RestServerCatalog.check,
        "        raise PreflightError(",
        "        return\n        raise PreflightError(",
        by_gateway(rest.test_a_catalog_that_does_not_compare_is_refused),
        MISSING,
    ),
]
HIVE = [
    Mutant(
        "a commit that the metastore repeats keeps its files",
        Catalog._has,
        "return change.snapshot in",
        "return change.snapshot in () and change.snapshot in",
        of_metastore(hive.test_a_commit_that_the_metastore_repeats_keeps_its_files, "monkeypatch"),
        "No such file|does not exist|FileNotFound",
    ),
    Mutant(
        "the metastore compares what a commit replaces",
        ComparingClient.alter_table_with_environment_context,
        "self.alter_if(dbname, tbl_name, new_tbl, was, environment_context.properties)",
        "Client.alter_table_with_environment_context("
        "self, dbname, tbl_name, new_tbl, environment_context)",
        of_metastore(
            hive.test_a_commit_that_is_held_up_until_its_lock_has_ended_takes_nothing_from_others,
            "monkeypatch",
        ),
        r"\[0\] == \[0, 100\]",
    ),
    Mutant(
        "a fence releases the locks of its job and sink",
        MetastoreCatalog.release,
        "if lock.agentInfo == _agent(owner):",
        "if False:",
        of_metastore(
            hive.test_the_next_fence_releases_the_lock_of_a_dead_driver_and_no_other, "connection"
        ),
        "could not be raised|twophase contract/facts",
    ),
    Mutant(
        "a fence releases no other locks",
        MetastoreCatalog.release,
        "if lock.agentInfo == _agent(owner):",
        "if True:",
        of_metastore(
            hive.test_the_next_fence_releases_the_lock_of_a_dead_driver_and_no_other, "connection"
        ),
        "another application",
    ),
]


@pytest.mark.parametrize(("kind", "mutant"), [("rest", one) for one in REST], ids=str)
def test_a_rule_of_rest_catalogs_that_is_broken_is_found(
    kind: str, mutant: Mutant, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.is_found(Given(tmp_path, patch, place_of(kind, request, tmp_path)))


@pytest.mark.parametrize(("kind", "mutant"), [("hive", one) for one in HIVE], ids=str)
def test_a_rule_of_metastores_that_is_broken_is_found(
    kind: str, mutant: Mutant, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.is_found(Given(tmp_path, patch, place_of(kind, request, tmp_path)))

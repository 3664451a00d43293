"""`examples/pipeline` as it is, but for where its servers and its storage are."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from harness import workload
from harness.nemesis import ROOT
from harness.spark_features import needs
from integration.pipelines.scenario import PipelineRun
from integration.plugin.scenario import TIMEOUT_S
from integration.without_spark.targets import SqlTarget
from twophase.spark_versions import LIMITED_READS
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [pytest.mark.part("plugin"), pytest.mark.proof, needs(LIMITED_READS)]


def test_the_example_writes_every_order_and_a_second_run_only_what_is_new(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = shutil.copytree(ROOT / "examples" / "pipeline", tmp_path / "pipeline")
    topic, spec = f"example-{tmp_path.name}", project / "spark-pipeline.yaml"
    definitions = (project / "orders.py").read_text()
    assert '"subscribe": "orders"' in definitions
    (project / "orders.py").write_text(
        definitions.replace('"subscribe": "orders"', f'"subscribe": "{topic}"')
    )
    with closing(SqlTarget(mysql, tmp_path)) as table:
        given = yaml.safe_load(spec.read_text())
        given["storage"] = (tmp_path / "storage").as_uri()
        given["configuration"]["orders.kafka"] = kafka.bootstrap_servers
        given["configuration"]["orders.mysql"] = mysql.url(table.database)
        spec.write_text(yaml.safe_dump(given))
        monkeypatch.setenv("SHOP_PASSWORD", mysql.password)
        workload.create_topic(kafka.bootstrap_servers, topic)
        for run in (1, 2):
            workload.produce(kafka.bootstrap_servers, topic, 100 * (run - 1), 100)
            arguments = {"arguments": ["run", "--spec", str(spec)], "conf": {}}
            ended = PipelineRun(arguments, tmp_path / "runs").wait(TIMEOUT_S)
            assert ended.code == 0, ended.output
            found = table.sql("SELECT id, customer, amount FROM orders ORDER BY id")
            wanted = [tuple(order.values()) for order in workload.orders(0, 100 * run)]
            assert [tuple(row) for row in found] == wanted

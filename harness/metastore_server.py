"""A metastore as a service of its own, over Thrift: the one that comes with pyspark's jars, on
an embedded Derby.
"""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from twophase.spark.startup.java import SHORT_LIVED, java, pyspark_jars
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.process import Launch, run_tool
from twophase.testing.services.program import Program
from twophase.testing.services.service import Service

_STARTUP_TIMEOUT_S = 180.0


class MetastoreProgram(Program):
    """Hive's metastore; ready when its port is open.

    Args:
        warehouse: where tables are made.
    """

    name = "Metastore"

    def __init__(self, warehouse: Path) -> None:
        super().__init__()
        self._warehouse = warehouse

    @override
    def prepare(self, data: Path) -> None:
        data.mkdir()
        database = f"jdbc:derby:;databaseName={data / 'db'};create=true"
        _create_locks(database, data / "locks.sql")
        settings = {
            "javax.jdo.option.ConnectionURL": database,
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": str(self._warehouse),
            "hive.async.log.enabled": "false",  # pyspark's jars lack what it needs
            "datanucleus.connectionPoolingType": "DBCP",  # the default is not among them
        }
        rows = "".join(
            f"<property><name>{key}</name><value>{text}</value></property>"
            for key, text in settings.items()
        )
        (data / "hive-site.xml").write_text(f"<configuration>{rows}</configuration>")

    @override
    def launch(self, data: Path) -> Launch:
        classes = f"{data}:{pyspark_jars()}/*"
        server = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        # Derby syncs nothing: what it has written outlives a SIGKILL, and no test cuts the power.
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dderby.system.durability=test"]
        return Launch([java(), *options, "-cp", classes, server, "-p", str(self.port)])

    @override
    def probe(self) -> None:
        """The open port is all that is asked for: the first client waits for the rest."""


def _create_locks(database: str, script: Path) -> None:
    """Create the tables of locks in a new database."""
    statements = Path(__file__).with_name("metastore_locks.sql").read_text()
    script.write_text(f"connect '{database}' user 'APP' password 'mine';\n{statements}exit;\n")
    derby = ":".join(map(str, sorted(Path(pyspark_jars()).glob("derby*.jar"))))
    command = [java(), *SHORT_LIVED, "-cp", derby, "org.apache.derby.tools.ij", str(script)]
    run_tool(Launch(command), "the tables of locks could not be created")


class MetastoreService(Service):
    """A metastore.

    Args:
        warehouse: where tables are made.
    """

    def __init__(self, warehouse: Path) -> None:
        self._program = MetastoreProgram(warehouse)
        super().__init__(
            LocalServer(self._program, detached=False, startup_timeout_s=_STARTUP_TIMEOUT_S)
        )

    @property
    def port(self) -> int:
        """Its port on the loopback interface."""
        return self._program.port

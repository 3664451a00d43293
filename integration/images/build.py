"""Builds the images: the servers of the cache of `twophase.testing.services`, with libraries and
Java of this machine.

`kafka.sh`, `mysql.sh` and `mariadb.sh` are their entry points: each takes the same variables and
arguments as that of the public image. The engine imports the files as one layer, which is several
times as fast as a Dockerfile that copies them.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException
from testcontainers.core.docker_client import DockerClient

from integration.images.root_folder import LIBRARIES, RootFolder
from twophase.errors import ServiceError
from twophase.spark.startup.java import java
from twophase.spark.startup.progress import show_progress
from twophase.testing.containers.engine import REMEDY, engine_problem
from twophase.testing.containers.kafka import IMAGE_VARIABLE as KAFKA_IMAGE_VARIABLE
from twophase.testing.containers.sql import MARIADB_IMAGE_VARIABLE, MYSQL_IMAGE_VARIABLE
from twophase.testing.services.kafka_install import kafka_jars, kafka_template
from twophase.testing.services.mariadb import mariadb, mariadb_template
from twophase.testing.services.mysql import mysql_environment, mysql_home, mysql_template
from twophase.testing.services.pins import KAFKA_VERSION, MARIADB_SERIES, MYSQL_VERSION

_HERE = Path(__file__).parent
_CHANGES = [
    "ENV PATH=/bin",
    f"ENV LD_LIBRARY_PATH=/{LIBRARIES}",
    'ENTRYPOINT ["/bin/sh", "/entrypoint.sh"]',
]
_NOT_OF_A_RUNTIME = (
    "jmods",
    "include",
    "man",
    "docs",
    "demo",
    "legal",
    "src.zip",
    "classlist",
    "ct.sym",
)


@dataclass(frozen=True)
class LocalImage:
    """An image that can be built here.

    Attributes:
        name: of its entry point script.
        tag: as the engine knows it.
        variable: the environment variable that makes tests use it.
        fill: puts the server into the root folder.
    """

    name: str
    tag: str
    variable: str
    fill: Callable[[RootFolder], None]

    def build(self) -> None:
        """Gather its files and have the engine build it.

        Raises:
            ServiceError: there is no engine, or it refuses.
        """
        problem = engine_problem()
        if problem is not None:
            raise ServiceError(problem, remedy=REMEDY)
        with (
            show_progress(f"Building {self.tag}"),
            tempfile.TemporaryDirectory(prefix="twophase-image-") as scratch,
        ):
            root = RootFolder(Path(scratch) / "root")
            root.add(_HERE / f"{self.name}.sh", "entrypoint.sh")
            self.fill(root)
            archive = Path(scratch) / "root.tar"
            with tarfile.open(archive, "w") as files:
                files.add(Path(scratch) / "root", arcname=".")
            self._import(archive)

    def _import(self, archive: Path) -> None:
        engine = DockerClient().client
        repository, _, tag = self.tag.partition(":")
        try:
            with archive.open("rb") as files:
                engine.api.import_image_from_data(
                    files, repository=repository, tag=tag, changes=_CHANGES
                )
            engine.images.get(self.tag)  # an import that fails on its way is answered with success
        except DockerException as error:
            raise ServiceError(f"The image {self.tag} could not be built: {error}") from error


def _fill_kafka(root: RootFolder) -> None:
    home = Path(java()).resolve().parent.parent
    root.add(home, "opt/java", ignore=_NOT_OF_A_RUNTIME)
    root.add_libraries(home / "bin" / "java")
    for library in home.rglob("*.so"):
        root.add_libraries(library)
    root.add(kafka_jars(), "opt/kafka")
    root.add(kafka_template(), "opt/formatted")


def _fill_mysql(root: RootFolder) -> None:
    root.add_program(mysql_home() / "bin" / "mysqld", "opt/mysql/bin/mysqld", mysql_environment())
    root.add(mysql_home() / "share", "opt/mysql/share")
    # The server makes a new auto.cnf: two servers from one template must not have one uuid.
    root.add(mysql_template(), "var/lib/mysql", ignore=("auto.cnf",))


def _fill_mariadb(root: RootFolder) -> None:
    server = mariadb()
    root.add_program(server.program, "opt/mariadb/bin/mariadbd", server.environment)
    root.add(server.share, "opt/mariadb/share")
    root.add(mariadb_template(server), "var/lib/mysql")


IMAGES = {
    image.name: image
    for image in (
        LocalImage("kafka", f"twophase/kafka:{KAFKA_VERSION}", KAFKA_IMAGE_VARIABLE, _fill_kafka),
        LocalImage("mysql", f"twophase/mysql:{MYSQL_VERSION}", MYSQL_IMAGE_VARIABLE, _fill_mysql),
        LocalImage(
            "mariadb", f"twophase/mariadb:{MARIADB_SERIES}", MARIADB_IMAGE_VARIABLE, _fill_mariadb
        ),
    )
}

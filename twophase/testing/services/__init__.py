"""Real Kafka, MySQL and MariaDB servers as local processes, for tests, demos and benchmarks."""

from twophase.testing.services.errors import ServiceNotOwnedError
from twophase.testing.services.kafka import KafkaService
from twophase.testing.services.mariadb import MariaDbService
from twophase.testing.services.mysql import MySqlService
from twophase.testing.services.service import Service
from twophase.testing.services.sql import SqlService

__all__ = [
    "KafkaService",
    "MariaDbService",
    "MySqlService",
    "Service",
    "ServiceNotOwnedError",
    "SqlService",
]

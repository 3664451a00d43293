"""The Docker engine: checks that it answers, and finds the address of its containers."""

from __future__ import annotations

from twophase.testing.services.ports import LOOPBACK

try:
    from docker.errors import DockerException
    from testcontainers.core.docker_client import DockerClient
except ImportError as error:
    raise ImportError(
        f"twophase.testing.containers needs testcontainers: {error}. "
        "Next: pip install 'twophase[testing]'"
    ) from error

REMEDY = (
    "start one (Debian: `apt-get install -y docker.io`, then `dockerd` as root), "
    "or name yours in DOCKER_HOST; twophase.testing.services needs none."
)
_LOCAL_HOSTS = ("localhost", LOOPBACK, "::1")


def engine_problem() -> str | None:
    """Return why no container can be started here; None if the Docker engine answers."""
    try:
        DockerClient().client.ping()
    except DockerException as error:
        return f"No Docker engine answers: {error}"
    return None


def host_of_containers() -> str:
    """Return the address at which the ports of containers can be reached."""
    host = DockerClient().host()
    return LOOPBACK if host in _LOCAL_HOSTS else host

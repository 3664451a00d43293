"""A server in a container.

1. start: pick a free port, pull the image if it is absent, start the container,
   ask until it answers.
2. kill, restart: any number of times, on the same data and port. An engine would choose a new
   port at each start.
3. stop: remove the container and its volumes; keep a copy of its log if the server failed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.containers.engine import REMEDY, engine_problem, host_of_containers
from twophase.testing.containers.program import Address, ContainerProgram
from twophase.testing.services.ports import LOOPBACK, free_ports
from twophase.testing.services.server import StartedServer

_PROBE_INTERVAL_S = 0.1
_STOP_TIMEOUT_S = 15
_BIND_TRIES = 4
_BIND_FAILURES = ("port is already allocated", "address already in use")
_ALL_INTERFACES = ""


class ContainerServer(StartedServer[ContainerProgram]):
    """Runs one program in a container.

    Args:
        program: the kind of server.
        startup_timeout_s: how long a start may take until the first answer, once
            the image is present.
    """

    def __init__(self, program: ContainerProgram, *, startup_timeout_s: float) -> None:
        super().__init__(program, startup_timeout_s)
        self._container: DockerContainer | None = None

    @override
    def stop(self) -> None:
        if self._folder is None:
            return
        if self._container is not None:
            with self._named_errors("removed"):
                self._container.stop()
            self._container = None
        if not self._failed:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    @override
    def kill(self) -> None:
        with self._named_errors("killed"):
            self._docker.kill()
            self._docker.wait(timeout=_STOP_TIMEOUT_S)

    @override
    def restart(self) -> None:
        with self._named_errors("started again"):
            self._docker.reload()
            if self._docker.status == "paused":
                self._docker.unpause()  # a frozen server would not see SIGTERM
            self._docker.stop(timeout=_STOP_TIMEOUT_S)
            self._docker.start()
        self._wait_until_ready()

    @override
    def suspend(self) -> None:
        with self._named_errors("frozen"):
            self._docker.pause()

    @override
    def resume(self) -> None:
        with self._named_errors("let go on"):
            self._docker.unpause()

    @property
    @override
    def pid(self) -> int:
        """Process id of the server on the engine's machine; 0 if it does not run."""
        self._docker.reload()
        return int(self._docker.attrs["State"]["Pid"])

    @property
    @override
    def log(self) -> Path:
        """A fresh copy of everything that the server has printed."""
        file = super().log
        file.write_bytes(self._docker.logs())
        return file

    @property
    def _docker(self) -> Any:
        """The container in the Docker SDK, which has no types."""
        if self._container is None:
            raise self._program.not_started()
        return self._container.get_wrapped_container()

    @override
    def _start(self) -> None:
        """Try several ports, as another process may take one before the engine binds it."""
        problem = engine_problem()
        if problem is not None:
            raise ServiceError(problem, remedy=REMEDY)
        host = host_of_containers()
        for attempt in range(1, _BIND_TRIES + 1):
            [port] = free_ports(1)
            self._program.address = Address(host, port)
            self._container = self._new_container()
            try:
                self._container.start()
            except DockerException as error:
                self._container.stop()
                self._container = None
                if attempt == _BIND_TRIES or not any(text in str(error) for text in _BIND_FAILURES):
                    raise self._not_created(error) from error
            else:
                self._wait_until_ready()
                return

    def _new_container(self) -> DockerContainer:
        program = self._program
        container = (
            DockerContainer(program.image)
            .with_envs(**program.environment())
            .with_command(program.command())
        )
        # Only this machine may reach a local engine's container: the servers have no encryption,
        # Kafka no password.
        interface = LOOPBACK if program.address.host == LOOPBACK else _ALL_INTERFACES
        ports = cast("dict[str, Any]", container.ports)  # `with_bind_ports` knows no interface
        ports[f"{program.inside_port}/tcp"] = (interface, program.address.port)
        return container

    @override
    def _exit_code(self) -> int | None:
        time.sleep(_PROBE_INTERVAL_S)
        self._docker.reload()
        if self._docker.status in ("exited", "dead"):
            return int(self._docker.attrs["State"]["ExitCode"])
        return None

    def _not_created(self, error: Exception) -> ServiceError:
        program = self._program
        return ServiceError(
            f"No container of the image {program.image} could be started: {error}",
            remedy=f"pull or build that image, or name another one in {program.image_variable}; "
            "where the image testcontainers/ryuk cannot be pulled, set "
            "TESTCONTAINERS_RYUK_DISABLED=true.",
        )

    @contextmanager
    def _named_errors(self, done: str) -> Iterator[None]:
        """Turn the engine's errors into our own, with the name of the server."""
        try:
            yield
        except DockerException as error:
            raise ServiceError(
                f"{self._program.name}'s container could not be {done}: {error}",
                remedy="look into `docker ps -a`.",
            ) from error

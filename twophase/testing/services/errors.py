"""The only error of the local services that callers may want to distinguish."""

from __future__ import annotations

from twophase.errors import ServiceError


class ServiceNotOwnedError(ServiceError):
    """The server is the user's, by an environment variable: it is never stopped or killed."""

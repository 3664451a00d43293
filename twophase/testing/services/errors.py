"""The only error of the local services that callers may want to distinguish."""

from __future__ import annotations

from twophase.errors import ServiceError


class ServiceNotOwnedError(ServiceError):
    """The server belongs to the user (an environment variable names it): it is never
    stopped or killed.
    """

"""The one error of the local services that a caller may want to tell from the rest."""

from __future__ import annotations

from twophase.errors import ServiceError


class ServiceNotOwnedError(ServiceError):
    """The server belongs to the user (an environment variable names it): it is never stopped or killed."""

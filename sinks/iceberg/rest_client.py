"""pyiceberg's client of a REST catalog, with a deadline for each request, a token that may be
replaced in its file, and the difference between a table that is gone and a catalog that is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, LegacyOAuth2AuthManager
from pyiceberg.catalog.rest.response import ErrorResponse
from pyiceberg.exceptions import NoSuchTableError, RESTError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from requests import HTTPError, PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from twophase.errors import ConfigError
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.iceberg.options import IcebergOptions

_CONNECT_S, _READ_S = 10.0, 60.0


def reply_of(error: Exception) -> Response | None:
    """Return the reply that an error of pyiceberg's is of; None if it is of none."""
    cause = error.__cause__
    return cause.response if isinstance(cause, HTTPError) else None


def _is_icebergs(text: str) -> bool:
    """Return whether a reply without success may be a catalog's."""
    with suppress(ValidationError):
        return not text or bool(ErrorResponse.model_validate_json(text))
    return False


class CurrentToken(AuthManager):
    """The token of the options, read again for each request.

    Args:
        options: of the sink.
    """

    def __init__(self, options: IcebergOptions) -> None:
        self._options = options
        self._token = options.token()

    def auth_header(self) -> str:
        """See `AuthManager`."""
        with suppress(ConfigError):  # while it is being replaced: the last one
            self._token = self._options.token() or self._token
        return f"Bearer {self._token}"


class TokenError(RESTError):
    """No token was got for a credential.

    Args:
        url: where from.
        reason: what happened.
    """

    def __init__(self, url: str, reason: Exception) -> None:
        super().__init__(f"no token from {url}: {brief(reason)}")
        self.url = url
        self.reason = reason


class ObtainedToken(LegacyOAuth2AuthManager):
    """The token that a credential has got.

    Args:
        secrets: gets each token, which no message may show.
        url: where they come from.
        given: see `LegacyOAuth2AuthManager`.
    """

    def __init__(self, secrets: set[str], url: str, **given: Any) -> None:
        self._secrets = secrets
        self._from = url
        super().__init__(auth_url=url, **given)

    def _fetch_access_token(self, credential: str) -> str:
        try:
            found = super()._fetch_access_token(credential)
        except (RequestException, RESTError, NotImplementedError, ValidationError) as error:
            raise TokenError(self._from, error) from None
        self._secrets.add(found)
        return found


class RestClient(RestCatalog):
    """pyiceberg's client, with a deadline for each request: a server that hangs would hold the
    driver for ever. A reply that comes too late is a lost one.

    Args:
        name: of the catalog.
        secrets: gets the tokens that it is given.
        properties: see `RestCatalog`.
    """

    def __init__(self, name: str, secrets: set[str], **properties: Any) -> None:
        self._secrets = secrets
        super().__init__(name, **properties)

    def load_table(self, identifier: str | Identifier) -> Table:
        """See `RestCatalog`. What is not in Iceberg's words is of something before the catalog,
        which knows nothing of the table.
        """
        try:
            found: Table = super().load_table(identifier)
        except NoSuchTableError as error:
            reply = reply_of(error)
            if reply is not None and not _is_icebergs(reply.text):
                raise RESTError(str(error)) from error.__cause__
            raise
        return found

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        credential = self.properties["credential"]
        more = self._extract_optional_oauth_params()
        return ObtainedToken(
            self._secrets,
            self.auth_url,
            session=session,
            credential=credential,
            optional_oauth_params=more,
        )

    def _config_headers(self, session: Session) -> None:
        """See `RestCatalog`, which calls it first of all: the first token has a deadline too."""
        super()._config_headers(session)
        adapter = _Deadline(self.properties.get("ssl", {}).get("cabundle"))
        for scheme in ("https://", "http://"):
            session.mount(scheme, adapter)


class _Deadline(HTTPAdapter):
    """Sends each request once, and waits for its reply up to a deadline.

    Args:
        authorities: a file of those to trust; None for requests' own, or what REQUESTS_CA_BUNDLE
            names. That variable would go before the session's setting.
    """

    def __init__(self, authorities: str | None) -> None:
        super().__init__()
        self._authorities = authorities

    def send(self, request: PreparedRequest, **options: Any) -> Response:  # type: ignore[override]
        options["timeout"] = (_CONNECT_S, _READ_S)
        if self._authorities is not None:
            options["verify"] = self._authorities
        return super().send(request, **options)

    def close(self) -> None:
        """Close the connections, which urllib3 would leave to the garbage collector: an error that
        quotes a reply keeps its pool alive.
        """
        pools = self.poolmanager.pools
        for key in pools.keys():  # noqa: SIM118 it refuses to be iterated
            pools[key].close()
        super().close()

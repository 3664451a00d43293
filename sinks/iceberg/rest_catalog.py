"""A catalog behind Iceberg's REST protocol. The server checks what a commit requires.

It knows no requirement of properties, which our fence and proofs are. So whatever changes one adds
a snapshot to the branch, in the same step: rows, a rewind, and for a fence an empty one. Whoever
has read the branch before is refused by the requirement that every server has: that a branch has
the snapshot as which it was read. A server that does not compare it is refused at the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from pydantic import ValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    ValidatableTableRequirement,
)
from requests import RequestException
from requests.exceptions import SSLError

from twophase.errors import (
    ConfigError,
    PreflightError,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.branch import head_of, set_back
from twophase.sinks.iceberg.catalog import Catalog, Change
from twophase.sinks.iceberg.options import IcebergOptions
from twophase.sinks.iceberg.rest_client import CurrentToken, RestClient, TokenError, reply_of
from twophase.sinks.iceberg.synced_io import NAME

_LOGIN = (UnauthorizedError, AuthorizationExpiredError, OAuthError)
_REFUSED = (BadRequestError, ForbiddenError, NoSuchTableError, *_LOGIN)
"""What a server says of a request of which it has done nothing."""
_NOBODY = 1
"""The id of a snapshot that no branch has: ids are random numbers of 63 bits."""
_UNUSED = "twophase-probe"
_DOWN = "does not answer as it should"
_BUSY = (408, 429)
_BAD_REQUEST = 400
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
"""A table whose names are in the path of a URL as they are."""


class RestServerCatalog(Catalog):
    """A REST catalog.

    Args:
        options: of the sink.
    """

    failures: ClassVar = (
        RequestException,
        RESTError,
        NoSuchTableError,
        NotImplementedError,
        ValidationError,
    )

    def __init__(self, options: IcebergOptions) -> None:
        self._options = options
        self._is_open = self._has_answered = False
        self._secrets = _parts(options.token(), options.credential())
        try:
            client = RestClient(options.catalog, self._secrets, **self._properties())
        except (*self.failures, OSError) as error:
            raise self._explain(error) from None
        super().__init__(options, client)
        self._has_answered = True

    def check(self, loaded: Table, branch: str) -> None:
        """See `Catalog.check`: asks for a change that no server may make."""
        wrong = AssertRefSnapshotId(ref=branch, snapshot_id=_NOBODY)
        update = RemovePropertiesUpdate(removals=[_UNUSED])
        try:
            self._client.commit_table(loaded, (wrong,), (update,))
        except CommitFailedException:
            return
        except self.failures as error:
            raise self._explain(error) from None
        raise PreflightError(
            f"The catalog {self._options.catalog_uri} takes a commit although branch {branch} has "
            "not the snapshot that the commit requires: of two drivers both would commit.",
            remedy="use a server that checks assert-ref-snapshot-id for this branch, or keep the "
            "table in another kind of catalog.",
        )

    def release(self, owner: Owner) -> None:
        """See `Catalog.release`: no server keeps a lock for a client."""

    def as_read(
        self,
        loaded: Table,
        branch: str,
        keys: Iterable[str],  # noqa: ARG002
    ) -> Sequence[ValidatableTableRequirement]:
        """See `Catalog.as_read`: each change of a property has added a snapshot to the branch. A
        partition spec that was removed is not the default one any more, and no server can be asked
        for others.
        """
        was, head = loaded.metadata, head_of(loaded.metadata, branch)
        return [
            AssertTableUUID(uuid=was.table_uuid),
            AssertRefSnapshotId(ref=branch, snapshot_id=head and head.snapshot_id),
            AssertDefaultSpecId(default_spec_id=was.default_spec_id),
        ]

    def without_ref(self, branch: str) -> ValidatableTableRequirement:
        """See `Catalog.without_ref`."""
        return AssertRefSnapshotId(ref=branch, snapshot_id=None)

    def new_property(
        self, loaded: Table, branch: str, key: str, value: str, summary: Mapping[str, str]
    ) -> Change:
        """See `Catalog.new_property`: the change is an empty snapshot too.

        Raises:
            TargetChangedError: the branch is gone.
        """
        if branch != MAIN_BRANCH and head_of(loaded.metadata, branch) is None:
            raise TargetChangedError(
                f"The table {'.'.join(loaded.name())} has no branch {branch!r} any more: somebody "
                "has dropped it.",
                remedy=f"{set_back(branch)}, then start the job again.",
            )
        made = private_api.append(loaded, [], loaded.spec().spec_id, summary, branch)
        requirements = [*self.as_read(loaded, branch, [key])]
        updates = [*made.updates, SetPropertiesUpdate(updates={key: value})]
        return Change(loaded, requirements, updates, made.discard, made.snapshot)

    def _unclear(self, error: Exception) -> Exception:
        """See `Catalog._unclear`: a client error (4xx) has changed nothing."""
        is_refused = isinstance(error, _REFUSED) or 400 <= _status(error) < 500
        return (CommitFailedException if is_refused else OSError)(self._shown(error))

    def _explain(self, error: Exception) -> TwoPhaseError:
        """See `Catalog._explain`."""
        what, remedy = self._meaning(error)
        is_refusal = not self._is_open and what != _DOWN
        kind = PreflightError if is_refusal else TargetUnreachableError
        where = f"The catalog {self._options.catalog_uri}"
        if isinstance(error, TokenError):
            where = f"{error.url}, where the driver gets tokens for {self._options.catalog_uri},"
            error = error.reason
        return kind(f"{where} {what}: {self._shown(error)}.", remedy=remedy)

    def _meaning(self, error: Exception) -> tuple[str, str]:
        """Return what an error says of the catalog, and what to do."""
        table = self._options.table
        is_of_name = self._has_answered and not self._is_open and not _PLAIN.fullmatch(table)
        if not is_of_name or _status(error) != _BAD_REQUEST:
            return _meaning(error)
        remedy = (
            "name the table otherwise: in the path of a URL every server takes ASCII letters, "
            "digits, _ and -, and some refuse others, such as % and a backslash."
        )
        return f"does not take the name {table!r}", remedy

    def _cause(self, error: Exception) -> Exception | None:  # noqa: ARG002
        """See `Catalog`: none, as servers repeat secrets in their errors."""
        return None

    def _shown(self, error: Exception) -> str:
        """Return an error in one line, without secrets that a server repeats in it."""
        text = brief(error)
        with suppress(ConfigError):
            self._secrets.update(_parts(self._options.token()))
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "<redacted>")
        return text

    def _properties(self) -> dict[str, Any]:
        options = self._options
        found: dict[str, Any] = {
            "uri": options.catalog_uri,
            "py-io-impl": NAME,
            "warehouse": options.warehouse,
            "prefix": options.prefix,
            "scope": options.scope,
            **{f"header.{name}": value for name, value in options.header_items()},
        }
        if options.tls_ca is not None:
            found["ssl"] = {"cabundle": options.tls_ca}
        if options.token():
            manager = f"{CurrentToken.__module__}.{CurrentToken.__name__}"
            found["auth"] = {"type": "custom", "impl": manager, "custom": {"options": options}}
        elif credential := options.credential():
            base = options.catalog_uri.rstrip("/")
            found["credential"] = credential
            found["oauth2-server-uri"] = options.oauth2_server_uri or f"{base}/v1/oauth/tokens"
        else:
            found["auth"] = {"type": "noop"}
        return {key: value for key, value in found.items() if value is not None}


def _meaning(error: Exception) -> tuple[str, str]:
    """Return what an error says of the catalog, and what to do."""
    if isinstance(error, TokenError):
        return _meaning_of_tokens(error.reason)
    if isinstance(error, _LOGIN):
        remedy = (
            "correct the token or the credential that token_env, token_file, credential_env or "
            "credential_file names, or oauth2_server_uri and scope."
        )
        return "refuses the login", remedy
    if isinstance(error, ForbiddenError):
        remedy = (
            "grant the account the right to read, create and change the table, or correct "
            "warehouse, prefix and headers."
        )
        return "forbids it", remedy
    if isinstance(error, OSError) and not isinstance(error, RequestException):
        remedy = "correct tls_ca: a file in PEM that the driver may read."
        return "cannot be called", remedy
    if isinstance(error, SSLError):
        remedy = (
            "name the authority that signed it in tls_ca, and in catalog_uri the host as in the "
            "certificate."
        )
        return "has no certificate that is trusted here", remedy
    if _is_down(error):
        remedy = "check that the server runs, and read its log."
        return _DOWN, remedy
    remedy = "correct catalog_uri, the address without /v1, and warehouse, prefix and headers."
    return "does not speak Iceberg's REST protocol there", remedy


def _meaning_of_tokens(error: Exception) -> tuple[str, str]:
    """Return the same of the server that the driver gets tokens from."""
    if isinstance(error, (*_LOGIN, SSLError)):
        return _meaning(error)
    if _is_down(error):
        remedy = "check that this server runs, or correct oauth2_server_uri."
        return _DOWN, remedy
    remedy = "correct oauth2_server_uri: the address to which a client sends id and secret."
    return "gives no token", remedy


def _is_down(error: Exception) -> bool:
    """Return whether a server does not answer, or not now."""
    status = _status(error)
    return isinstance(error, RequestException) or status >= 500 or status in _BUSY


def _parts(*secrets: str) -> set[str]:
    """Return secrets and, of a client's id and secret, the secret."""
    found = {part for secret in secrets for part in (secret, secret.partition(":")[2])}
    return found - {""}


def _status(error: Exception) -> int:
    """Return the status of the reply that an error is of; 0 if it is of none."""
    found = reply_of(error)
    return 0 if found is None else found.status_code

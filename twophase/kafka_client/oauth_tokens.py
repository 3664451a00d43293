"""Bearer tokens for SASL OAUTHBEARER, from a token endpoint by client credentials (RFC 6749, 4.4).

Every process fetches its own and keeps it for all of its connections. It is replaced when three
quarters of its life are over, before either client asks for one again, and when a broker refuses
it. Until it expires, an endpoint that does not answer stops nothing, and is asked only every few
seconds: each time may last as long as a request may take.

The secret is read each time: it may be changed while a job runs. It goes to this endpoint alone,
over TLS or within this machine, and no redirect is followed. Neither the secret nor a token nor the
body of an answer is ever in an error.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from twophase.errors import SourceUnavailableError, TwoPhaseError
from twophase.kafka_client.access import AccessError
from twophase.kafka_client.credentials import sasl_password
from twophase.kafka_client.options import ConnectionOptions, SaslMechanism

_FRESH = 0.75
"""The part of its life after which a token is replaced. librdkafka asks at 0.8 of it, kafka-python
between 0.85 and 0.95.
"""
_AGAIN_S = 10.0
_MAX_BYTES = 1024 * 1024
_CODE = re.compile(r"[a-z_]{1,40}")
_REFUSED = (400, 401, 403)

_log = logging.getLogger(__name__)
_tokens: dict[ConnectionOptions, Tokens] = {}
_tokens_lock = threading.Lock()


@dataclass(frozen=True)
class Token:
    """A token, and when it is to be replaced and expires: seconds since 1970."""

    text: str
    replace_at_s: float
    expires_at_s: float


class Tokens:
    """The token of one account in this process, for all threads.

    Args:
        options: of the source, with the endpoint.
        clock: seconds since 1970.
    """

    def __init__(self, options: ConnectionOptions, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._clock = clock
        self._token: Token | None = None
        self._refused_at_s = -_AGAIN_S
        self._lock = threading.Lock()

    def token(self) -> Token:
        """Return a token that has not expired.

        Raises:
            AccessError: the endpoint refuses the account, or its answer is not one of OAuth.
            SourceUnavailableError: the endpoint does not answer.
            ConfigError: the secret cannot be read.
        """
        with self._lock:
            held, now = self._token, self._clock()
            if held is not None and now < held.replace_at_s:
                return held
            try:
                self._token = self._fetched(now)
            except TwoPhaseError as error:
                if held is None or now >= held.expires_at_s:
                    raise
                _log.warning("The token of a Kafka client is not replaced yet: %s", error)
                again_at_s = min(self._clock() + _AGAIN_S, held.expires_at_s)
                self._token = replace(held, replace_at_s=again_at_s)
            return self._token

    def refused(self) -> None:
        """Forget the token, as a broker has refused it; but not one after the other."""
        with self._lock:
            now = self._clock()
            if now - self._refused_at_s >= _AGAIN_S:
                self._token, self._refused_at_s = None, now

    def _fetched(self, now: float) -> Token:
        answer = self._answer()
        try:
            text, life_s = str(answer["access_token"]), float(answer["expires_in"])
        except (KeyError, TypeError, ValueError):
            raise AccessError(
                f"{self._options.whose}: the answer of {self._url} has no access_token, or no "
                "expires_in.",
                remedy="check kafka.sasl.oauthbearer.token.endpoint.url: it has to be the token "
                "endpoint of an OAuth server that grants client_credentials.",
            ) from None
        return Token(text, now + _FRESH * life_s, now + life_s)

    def _answer(self) -> Any:
        wanted = {"grant_type": "client_credentials"}
        if self._options.oauth_scope is not None:
            wanted["scope"] = self._options.oauth_scope
        account = f"{self._options.sasl_username}:{sasl_password(self._options)}"
        headers = {
            "Authorization": f"Basic {base64.b64encode(account.encode()).decode()}",
            "Accept": "application/json",
        }
        request = Request(self._url, urlencode(wanted).encode(), headers)  # noqa: S310 checked url
        # urllib would send a plain http request, account included, to the proxy of the environment
        proxies = [ProxyHandler({})] if request.type == "http" else []
        opener = build_opener(_NoRedirect, *proxies)
        try:
            with opener.open(request, timeout=self._options.request_timeout_s) as response:
                return json.loads(response.read(_MAX_BYTES))
        except HTTPError as error:
            if error.code in _REFUSED or error.code // 100 == 3:
                raise AccessError(
                    f"{self._options.whose}: {self._url} refuses a token for client "
                    f"{self._options.sasl_username!r}: {error.code}{_reason(error)}.",
                    remedy="check the client's id (kafka.sasl.username), its secret, the scope and "
                    "the URL, which must not redirect.",
                ) from None
            raise self._unavailable(f"status {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise self._unavailable(f"{type(error).__name__}: {error}") from None

    def _unavailable(self, why: str) -> SourceUnavailableError:
        return SourceUnavailableError(
            f"{self._options.whose}: {self._url} gave no token: {why}.",
            remedy="check that the OAuth server runs and can be reached from the driver and every "
            "executor. Python trusts the system's certificate authorities, or those in "
            "SSL_CERT_FILE.",
        )

    @property
    def _url(self) -> str:
        return str(self._options.oauth_url)


def granted_tokens(options: ConnectionOptions) -> Tokens | None:
    """Return the tokens of this process, of which there is one; None if the options need none.

    Raises:
        TwoPhaseError: as `Tokens.token`.
    """
    if (tokens := _tokens_of(options)) is not None:
        tokens.token()
    return tokens


def token_refused(options: ConnectionOptions) -> bool:
    """Note that a broker has refused a client; return whether to try again with another token."""
    if (tokens := _tokens_of(options)) is None:
        return False
    tokens.refused()
    return True


def _tokens_of(options: ConnectionOptions) -> Tokens | None:
    if options.sasl_mechanism is not SaslMechanism.OAUTHBEARER:
        return None
    with _tokens_lock:
        return _tokens.setdefault(options, Tokens(options))


def _reason(error: HTTPError) -> str:
    """Return the code of OAuth in an answer, such as invalid_client; nothing else of it."""
    try:
        code = json.loads(error.read(_MAX_BYTES))["error"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ""
    return f", {code}" if isinstance(code, str) and _CODE.fullmatch(code) else ""


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would take the account to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer is an error."""

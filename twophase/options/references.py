"""What options name by reference: a secret in a variable of the environment or in a file, the
authorities to trust in a file. All of it on the driver.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from twophase.errors import ConfigError, PreflightError, TwoPhaseError
from twophase.internals.redaction import shown_file, shown_variable


def secret_of(kind: str, variable: str | None, file: str | None) -> str:
    """Return the secret that the options `<kind>_env` or `<kind>_file` name.

    Args:
        kind: what it is, such as `password`.
        variable: the one option; at most one of them is given.
        file: the other.

    Returns:
        It; empty if neither is given.

    Raises:
        ConfigError: the variable is not set, or the file cannot be read.
    """
    if variable is not None:
        if (found := os.environ.get(variable)) is not None:
            return found
        raise ConfigError(
            f"The environment variable {shown_variable(variable)}, named by {kind}_env, is not "
            "set.",
            remedy="set it where the driver runs.",
        )
    if not file:
        return ""
    try:
        return read_secret(Path(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The file {shown_file(file)}, named by {kind}_file, cannot be read: "
            f"{type(error).__name__}.",
            remedy=f"give a file with the {kind} that the driver may read.",
        ) from None


def read_secret(file: Path) -> str:
    """Return the secret in a file, without the end of its line."""
    return file.read_text(encoding="utf-8").rstrip("\r\n")


def authorities_in(file: str, refused: type[TwoPhaseError] = PreflightError) -> str:
    """Return the certificates in the file that the option `tls_ca` names.

    Args:
        file: its path.
        refused: the error if it has none, or cannot be read.

    Raises:
        TwoPhaseError: see `refused`.
    """
    try:
        return read_certificates(Path(file))
    except (OSError, ValueError) as error:
        raise refused(
            f"The file {file!r}, named by tls_ca, holds no certificates that can be read: {error}.",
            remedy="give a file in PEM, with the certificate of the authority that signed the "
            "server's, that the driver may read.",
        ) from None


def read_certificates(file: Path) -> str:
    """Return the certificates in a file in PEM, whose comments may be in any encoding.

    Raises:
        OSError: it cannot be read, or a certificate is damaged or cut.
        ValueError: it is empty.
    """
    text = file.read_bytes().decode("ascii", "ignore")
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    return text

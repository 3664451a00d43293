"""Sealed lines, which only a job's own processes can write, and data cannot imitate.

An error leaves a Python worker as text, inside messages that hold row values. A value can be any
text, including `twophase.errors.FencedError: hello` or a whole traceback. So a worker seals its
errors with a key that the driver sets in the worker's environment, and the driver
trusts only the seal.

    twophase-error/1 <HMAC-SHA256 of the payload, hex> <payload: JSON in base64>

Spark logs what it carries, and a job may read that log. The payload therefore has the tags of the
Spark job that the task belongs to, and of its own jobs the driver takes only what has their tag: a
line from an earlier one is a value.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

VARIABLE = "TWOPHASE_SEAL_KEY"
_MARK = "twophase-error/1"
_TAGS = "spark.job.tags"
_SEALED = re.compile(rf"{_MARK} ([0-9a-f]{{64}}) ([A-Za-z0-9_=-]+)")

_keys: set[str] = set()


def share_key(environment: MutableMapping[str, str]) -> None:
    """Add a key to this environment, unless it has one, and accept seals made with it from now on.

    Args:
        environment: of the Python workers of one Spark application, `SparkContext.environment`.
    """
    _keys.add(environment.setdefault(VARIABLE, secrets.token_hex(32)))


def seal(value: Mapping[str, Any]) -> str | None:
    """Return the sealed line for `value`; None in a process without a key, such as a driver."""
    key = os.environ.get(VARIABLE)
    if not key:
        return None
    text = json.dumps({**value, "tags": _job_tags()})
    payload = base64.urlsafe_b64encode(text.encode()).decode()
    return f"{_MARK} {_sign(key, payload)} {payload}"


def last_sealed(text: str, tag: str | None) -> dict[str, Any] | None:
    """Return the value of the last sealed line in `text`; None if there is none to trust.

    Args:
        text: any text.
        tag: of the Spark job whose task has sealed it; None takes that of any process.
    """
    keys = _keys | {os.environ.get(VARIABLE, "")} - {""}
    for signature, payload in reversed(_SEALED.findall(text)):
        if any(hmac.compare_digest(signature, _sign(key, payload)) for key in keys):
            value = dict(json.loads(base64.urlsafe_b64decode(payload)))
            if tag is None or tag in value["tags"]:
                return value
    return None


def _job_tags() -> list[str]:
    """Return the tags of the Spark job whose task this process runs; none outside a task."""
    module = sys.modules.get("pyspark.taskcontext")  # imported by every worker, before its task
    context = module.TaskContext.get() if module is not None else None
    return (context.getLocalProperty(_TAGS) or "").split(",") if context is not None else []


def _sign(key: str, payload: str) -> str:
    return hmac.new(key.encode(), payload.encode(), hashlib.sha256).hexdigest()

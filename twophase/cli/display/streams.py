"""Standard output and standard error of a command: what cannot be written there ends nothing.

A full disk, a terminal that has gone or a closed file must neither end a job that runs nor replace
the code that the command exits with: by it a supervisor decides whether to start the job again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class LossyStream:
    """A text stream that drops what cannot be written. A reader that has gone is still an error.

    Args:
        stream: what it writes to.

    Attributes:
        failure: of the first write that failed; None if all is written.
    """

    def __init__(self, stream: TextIO) -> None:
        self.failure: Exception | None = None
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; in place of a character that the encoding does not have, its escape."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise
        except UnicodeEncodeError as error:
            known = text.encode(error.encoding, "backslashreplace")
            return self.write(known.decode(error.encoding))
        except (OSError, ValueError) as error:  # the latter of a closed file
            self.failure = self.failure or error
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, if it can be written."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            self.failure = self.failure or error

    def end(self) -> None:
        """Drop what is still buffered and cannot be written: Python would exit with another code
        for it.
        """
        self.flush()
        if self.failure is not None:
            with suppress(OSError, ValueError):
                send_nowhere(self._stream)


def send_nowhere(stream: Any) -> None:
    """Drop what is written to a file from here on, also what Python still buffers for it."""
    number = stream.fileno()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


@contextmanager
def lossy_streams() -> Iterator[None]:
    """Let what cannot be printed inside the context get lost."""
    before = sys.stdout, sys.stderr
    streams = [stream and LossyStream(stream) for stream in before]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in filter(None, streams):
            with suppress(BrokenPipeError):
                stream.end()


def expect_printed() -> None:
    """Fail if something on standard output got lost: for a command that does nothing but print.

    Raises:
        Exception: with which the first write failed.
    """
    failure = getattr(sys.stdout, "failure", None)
    if failure is not None:
        raise failure

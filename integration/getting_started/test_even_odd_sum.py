"""The example of the two sums runs: exact with the protocol, a micro-batch
counted twice without it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900
NUMBERS = 600
# Of each partition: three micro-batches share them, and a kill hits the second.
KILLED = range(201, 401)

_SUMS = re.compile(r"^(in Kafka|with twophase|without) +([\d,]+) +([\d,]+) ", re.MULTILINE)


def both_partitions(numbers: range) -> tuple[int, int]:
    """The even and the odd sum."""
    return 2 * sum(n for n in numbers if n % 2 == 0), 2 * sum(n for n in numbers if n % 2 == 1)


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_the_sums_are_exact_with_the_protocol_and_too_large_without_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.even_odd_sum", "--numbers", str(NUMBERS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    found = {
        run: tuple(int(text.replace(",", "")) for text in sums)
        for run, *sums in _SUMS.findall(done.stdout)
    }
    even, odd = both_partitions(range(1, NUMBERS + 1))
    even_again, odd_again = both_partitions(KILLED)
    assert found == {
        "in Kafka": (even, odd),
        "with twophase": (even, odd),
        "without": (even + even_again, odd + odd_again),
    }

"""`python -m verification.model`: check the small worlds and the large ones, and say
how large they were.

Ends with 1 if a claim does not hold or fewer than `AT_LEAST` states were visited.
"""

from __future__ import annotations

import resource
import sys
import time

from verification.model.configurations import LARGE, SMALL
from verification.model.explore import explore
from verification.model.mutants import described
from verification.model.protocol import specification

AT_LEAST = 1_400_000


def main() -> int:
    """Check everything; returns the exit code."""
    states, failed = 0, False
    for world in (*SMALL, *LARGE):
        began_s = time.process_time()
        found = explore(specification(world))
        took_s = time.process_time() - began_s
        states += found.states
        _say(
            f"{world.name:34} {found.states:9,} states, depth {found.depth:3}, "
            f"{took_s:6.1f} s CPU: {world.about}"
        )
        if found.violation is not None:
            failed = True
            _say(described(found.violation))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    _say(f"{states:,} states, {time.process_time():.0f} s CPU, at most {memory_mb} MB")
    return 1 if failed or states < AT_LEAST else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

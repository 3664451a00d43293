"""`python -m verification.simulation`: run seeds, say what they reached, and how to
replay what failed.
"""

from __future__ import annotations

import argparse
import os
import sys

import click

from verification.simulation.options import Options
from verification.simulation.runner import run_all
from verification.simulation.supervisor import run
from verification.simulation.worlds import WORLDS, in_world


def main() -> int:
    """Returns the exit code: 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m verification.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone, and show what happened in it")
    parser.add_argument(
        "--processes",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="run so many side by side",
    )
    parser.add_argument(
        "--digest", action="store_true", help="only print what stands for everything that happened"
    )
    parser.add_argument(
        "--world", choices=WORLDS, default="", help="what befalls the folder or the targets"
    )
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _replay(arguments.seed, arguments.world)
    summary = run_all(
        range(arguments.first, arguments.first + arguments.seeds),
        arguments.processes,
        arguments.world,
    )
    if arguments.digest:
        click.echo(summary.digest)
        return 0
    for failure in summary.failures:
        click.echo(failure + "\n")
    click.echo(
        f"{summary.seeds} seeds, {summary.steps} steps, {summary.cpu_s:.0f} s of CPU; "
        f"{len(summary.failures)} failed, {summary.limits} met a known limit"
    )
    click.echo(
        "crash points: "
        + ", ".join(f"{point} {count}" for point, count in sorted(summary.points.items()))
    )
    return 1 if summary.failures else 0


def _replay(seed: int, world: str) -> int:
    outcome = run(in_world(seed, world) if world else Options.of(seed))
    for who, what in outcome.trace:
        click.echo(f"{who:16} {what}")
    click.echo(
        f"\n{outcome.options}\n\nseed {seed}: {outcome.violation or 'everything holds'} "
        f"({outcome.steps} steps)"
    )
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())

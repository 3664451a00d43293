"""The script `twophase`, also as `python -m twophase.cli`. From its first line on a job that starts
can be stopped; to import the command takes longer than that.
"""

import sys

from twophase.cli.first_signals import STOPPABLE, keep_signals


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == [STOPPABLE]:
        keep_signals()
    from twophase.cli.main import main as run  # takes hundreds of milliseconds

    run(prog_name="twophase")


if __name__ == "__main__":
    main()

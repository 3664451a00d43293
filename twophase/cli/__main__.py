"""`python -m twophase.cli`: the command without its script."""

from twophase.cli.main import main

if __name__ == "__main__":
    main(prog_name="twophase")

"""`python -m integration.images [kafka mysql mariadb]`: build images, and print the variables that
make tests use them.

export $(python -m integration.images)
"""

from __future__ import annotations

import click

from integration.images.build import IMAGES
from twophase.errors import TwoPhaseError


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(sorted(IMAGES)))
def main(names: tuple[str, ...]) -> None:
    """Entry point."""
    for name in names or IMAGES:
        image = IMAGES[name]
        try:
            image.build()
        except TwoPhaseError as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"{image.variable}={image.tag}")
    # The image of testcontainers' own cleaner cannot be pulled either.
    click.echo("TESTCONTAINERS_RYUK_DISABLED=true")


if __name__ == "__main__":
    main(prog_name="python -m integration.images")

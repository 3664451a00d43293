"""Pieces that wait beside the table of a lake are lost, and repaired: tests for each such sink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.damaged_pieces import DAMAGES
from harness.lake_harness import LakeHarness
from harness.loss_world import CASES, REPAIRS, LossWorld
from twophase.contract.committable import Committable
from twophase.sinks.common.lake.committer import name_of


class LostPiecesContract:
    """For a harness whose rows are ids."""

    @pytest.mark.parametrize("repair", REPAIRS)
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("damage", [damage for damage, _ in DAMAGES])
    def test_a_piece_is_lost_and_repaired(
        self,
        harness: LakeHarness[Any],
        tmp_path: Path,
        damage: Callable[[Path], None],
        case: str,
        repair: str,
    ) -> None:
        def lose(_: object, piece: Committable) -> None:
            [folder] = [path for path in harness.staged() if path.name == str(name_of(piece))]
            damage(folder)

        world = LossWorld(tmp_path, harness)
        world.loses(lose, case)
        world.repair(repair)
        world.goes_on(repair, case)
        assert not harness.staged()

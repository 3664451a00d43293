"""What benchmarks have recorded in docs/figures, as tables of a page and as drawings.

<!-- figures: NAME -->   the tables of docs/figures/NAME.json, its ratios and where it ran; its
                         drawings are docs/figures/NAME-light.svg and NAME-dark.svg

Ratios are bars beside the line of 1, where both would be equal, with a mark where a goal is; growth
is a curve. The same record always gives the same drawing. `overview` draws the speed of all records
against what others ship, for README.md.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FIGURES = Path(__file__).resolve().parent / "figures"
MARKER = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)
_ID = re.compile(r"\b[pm][0-9a-f]{10}\b")
_MARKUP = re.compile(r"\[/?bold\]")
_INK = {"light": "#24292f", "dark": "#e6edf3"}
_BAR = {"light": "#0969da", "dark": "#58a6ff"}
_FAINT = {"light": "#8c959f", "dark": "#6e7681"}
_WIDTH_IN, _BAR_IN, _FRAME_IN, _CURVE_IN = 7.2, 0.52, 0.75, 2.8

Record = Mapping[str, Any]


def records() -> dict[str, Record]:
    """Return what was recorded, by the names of the results."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FIGURES.glob("*.json"))}


def drawings() -> dict[str, str]:
    """Return the drawings of all records, by their names in docs/."""
    found = records()
    return {
        f"figures/{name}-{theme}.svg": draw(record, theme)
        for name, record in (found | {"overview": overview(found)}).items()
        if record["ratios"] or record["curves"]
        for theme in _INK
    }


def overview(found: Mapping[str, Record]) -> Record:
    """Return the ratios of rows a second to what others ship, under the titles of their records."""
    ratios = [
        {**ratio, "of": record["tables"][0]["title"].partition(":")[0], "goal": None}
        for record in found.values()
        for ratio in record["ratios"]
        if ratio["what"] == "rows/s" and not ratio["to"].startswith("twophase")
    ]
    return {"ratios": ratios, "curves": []}


def filled(text: str, page: str) -> str:
    """Return the text of a page, with what was recorded at its markers."""
    up = "../" * page.count("/")
    known = records()
    return MARKER.sub(
        lambda found: f"{found[1]}\n{_section(found[2], known[found[2]], up)}\n{found[3]}", text
    )


def draw(record: Record, theme: str) -> str:
    """Return a record as an SVG for a light or a dark page."""
    ratios, curves = record["ratios"], record["curves"]
    heights = [_FRAME_IN + _BAR_IN * len(ratios)] if ratios else []
    heights += [_CURVE_IN] * len(curves)
    settings = {
        "svg.hashsalt": "twophase",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "text.color": _INK[theme],
        "axes.labelcolor": _INK[theme],
        "axes.edgecolor": _FAINT[theme],
        "xtick.color": _INK[theme],
        "ytick.color": _INK[theme],
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(_WIDTH_IN, sum(heights)), layout="constrained")
        parts = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes in parts:
            axes.patch.set_alpha(0.0)
            axes.spines[["top", "right"]].set_visible(False)
        if ratios:
            _bars(parts[0], ratios, theme)
        for axes, curve in zip(parts[len(heights) - len(curves) :], curves, strict=True):
            _curve(axes, curve, theme)
        made = io.StringIO()
        figure.savefig(made, format="svg", transparent=True, metadata={"Date": None})
    return "".join(f"{line.rstrip()}\n" for line in _with_equal_ids(made.getvalue()).splitlines())


def _with_equal_ids(drawing: str) -> str:
    """Number the ids of an SVG: matplotlib makes them of coordinates, of which the solver of the
    layout gives the last digits by chance.
    """
    numbers: dict[str, str] = {}
    return _ID.sub(lambda found: numbers.setdefault(found[0], f"id{len(numbers)}"), drawing)


def _bars(axes: Axes, ratios: Sequence[Record], theme: str) -> None:
    places = [*range(len(ratios))]
    axes.barh(places, [one["value"] for one in ratios], height=0.55, color=_BAR[theme])
    axes.axvline(1, color=_FAINT[theme], linewidth=1)
    for place, one in zip(places, ratios, strict=True):
        text = f" {one['value']:.2f}"
        axes.text(one["value"], place, text, va="center", fontweight="bold")
        if one["goal"] is not None:
            axes.plot([one["goal"]], [place], marker="|", markersize=18, color=_INK[theme])
    axes.set_yticks(places, [f"{one['of']}\n/ {one['to']}" for one in ratios])
    axes.invert_yaxis()
    most = max(max(one["value"], one["goal"] or 0) for one in ratios)
    axes.set_xlim(0, 1.12 * max(most, 1))
    goals = "; | is the goal" if any(one["goal"] is not None for one in ratios) else ""
    axes.set_xlabel(", ".join(dict.fromkeys(one["what"] for one in ratios)) + f": ratio{goals}")


def _curve(axes: Axes, curve: Record, theme: str) -> None:
    along, of = zip(*curve["points"], strict=True)
    axes.plot(along, of, marker="o", color=_BAR[theme])
    axes.set_xscale("log")
    axes.set_ylim(0, 1.15 * max(of))
    axes.set_xlabel(curve["along"])
    axes.set_ylabel(curve["of"])


def _section(name: str, record: Record, up: str) -> str:
    """Return the drawing, the tables and the sentences of a record as Markdown."""
    parts = []
    if record["ratios"] or record["curves"]:
        at = f"{up}figures/{name}"
        parts.append(
            f'<picture><source media="(prefers-color-scheme: dark)" srcset="{at}-dark.svg">'
            f'<img alt="{name}" src="{at}-light.svg"></picture>\n'
        )
    parts += [_table(one) for one in record["tables"]]
    said = [*map(_ratio, record["ratios"]), *(_MARKUP.sub("**", one) for one in record["said"])]
    parts += [f"{line}\n" for line in said]
    others = record["others_cores"]
    beside = "" if others is None else f"; other processes kept {others:.2f} cores busy"
    parts.append(f"`{record['command']}`, {record['measured']}: {record['machine']}{beside}.\n")
    return "\n".join(parts)


def _table(one: Record) -> str:
    rows = [one["columns"], ["--"] * len(one["columns"]), *one["rows"]]
    lines = "".join(f"| {' | '.join(cell or ' ' for cell in row)} |\n" for row in rows)
    return f"{one['title']}:\n\n{lines}"


def _ratio(one: Record) -> str:
    said = f"{one['what']}, {one['of']} / {one['to']}: **{one['value']:.2f}**"
    if len(one["rounds"]) > 1:
        said += f" (by round {' '.join(f'{ratio:.2f}' for ratio in one['rounds'])})"
    if one["goal"] is None:
        return f"{said}."
    limit = "at most" if one["at_most"] else "at least"
    return f"{said}; the goal is {limit} {one['goal']:g}."

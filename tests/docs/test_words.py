"""Words that the glossary or the manuals of the field have a better one for. They stay out of
code, tests and pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = (
    *("twophase", "sinks", "docs", "tests", "integration", "verification"),
    *("harness", "benchmarks", "demo", "examples"),
)
# A blank stands for any white space, or for the underscore of a name. Written so that
# none matches itself.
BETTER = {
    r"put(s|ting)? back": "restored, restored from a backup",
    r"(held|holds?|holding)( \w+)? against": "validated against, compared with",
    r"a[n]ew": "again",
    r"of our[s]": "our",
    r"what i[s] decided": "decided checkpoints",
    r"(there twic[e]|is there onc[e])": "exists twice, is duplicated",
    r"(another on[e]|other one[s]) than": "not the one that, differs from",
    r"\bla(y|ys|i[d])\b": "write, written",
    r"from a backup of befor[e]": "from a backup taken before",
    r"back that (it|he|they) ha[d]": "restore its former ...",
    r"(?<!ere[\s_])is n[o] (checkpoint|savepoint|fence|header|package|list|JSON)": "is not a ...",
    r"be told (from|apar[t])": "be distinguished from",
}


def texts() -> list[Path]:
    found = [
        path for tree in TREES for path in (ROOT / tree).rglob("*") if path.suffix in {".py", ".md"}
    ]
    return [*ROOT.glob("*.md"), *found]


@pytest.mark.parametrize("words", BETTER)
def test_a_word_with_a_better_one_is_nowhere(words: str) -> None:
    spaced = words.replace(" ", r"[\s_]+")
    pattern = re.compile(rf"(?<![a-zA-Z]){spaced}(?![a-zA-Z])", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}"
        for path in texts()
        for text in [path.read_text(encoding="utf-8")]
        for hit in pattern.finditer(text)
    ]
    assert not found, f"write instead: {BETTER[words]}\n" + "\n".join(found)

"""Durable bytes are JSON (invariant I9): nothing in the product can turn bytes into code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for package in ("twophase", "sinks") for path in (ROOT / package).rglob("*.py")
)

MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "jsonpickle",
    "joblib",
}
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("numpy", "load"),
    ("np", "load"),
    ("pandas", "read_pickle"),
    ("pd", "read_pickle"),
    ("torch", "load"),
}

ALLOWED = {
    "twophase/cli/jobfile/job_file.py": [
        "yaml.load"
    ],  # with a loader of its own, a SafeLoader that refuses repeated keys
    # Test suites: send a sink, and what creates its writers, through pickle as Spark does.
    "twophase/testing/contract/sink.py": ["pickle"],
    "twophase/testing/harness.py": ["pickle"],
}


def dangers(source: str) -> list[str]:
    """What in `source` could run code that was read as data. `__reduce__` only says how
    others pickle an object.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in MODULES:
                    found.append(module)
                found += [
                    alias.name
                    for alias in names
                    if (module, alias.name) in METHODS or alias.name in MODULES
                ]
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in METHODS:
                found.append(f"{owner}.{name}")
            case ast.Attribute(attr="read_pickle" | "to_pickle" as name):
                found.append(name)
            case ast.keyword(arg="allow_pickle"):
                found.append("allow_pickle")
            case _:
                continue
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_i9_no_module_can_turn_bytes_into_code(path: Path) -> None:
    assert dangers(path.read_text()) == ALLOWED.get(str(path.relative_to(ROOT)), [])


def test_the_only_yaml_loader_is_a_safe_one() -> None:
    source = (ROOT / "twophase/cli/jobfile/job_file.py").read_text()
    assert "class _Loader(yaml.SafeLoader)" in source
    assert source.count("yaml.load(") == source.count("Loader=_Loader)") == 1


def test_the_whole_product_is_searched() -> None:
    names = {str(path.relative_to(ROOT)) for path in SOURCES}
    assert {
        "twophase/state/files/codec.py",
        "twophase/spark/job/job.py",
        "sinks/mysql/sink.py",
    } <= names


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "from pyspark import cloudpickle",
        "import marshal, json",
        "import yaml\nyaml.load(text)",
        "from yaml import load",
        "import yaml\nf = yaml.unsafe_load",
        "eval(text)",
        "def f():\n    exec(text)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "frame.to_pickle(path)",
        "__import__(name)",
    ],
)
def test_the_search_finds_what_it_is_for(source: str) -> None:
    assert dangers(source)


@pytest.mark.parametrize(
    "source",
    [
        "import yaml\nyaml.safe_load(text)",
        "class A:\n    def __reduce__(self):\n        return A, ()",
        "json.load(f)",
    ],
)
def test_the_search_lets_safe_code_pass(source: str) -> None:
    assert dangers(source) == []

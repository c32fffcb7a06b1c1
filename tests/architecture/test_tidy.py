"""Rules of this code that no linter knows; each failure names the file and what to do."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = {"node": 500, "tui": 300, "tests": 700, "screenshots": 300}
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in MODULE_LINES_MAX
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
)
BANNED_WORDS = re.compile(r"\b(idx|mgr|utils|helpers?|manager|misc)\b")
PURE = ("node/model", "node/core", "node/wire", "tui/viewmodel")


def source(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_modules_stay_readable(path: Path) -> None:
    limit = MODULE_LINES_MAX[path.parts[0]]
    lines = source(path).count("\n")
    assert lines <= limit, f"{path} has {lines} lines, at most {limit}: is it still one thing?"


def test_functions_stay_short() -> None:
    long = [
        f"{path}:{node.lineno} {node.name} ({length} lines)"
        for path in SOURCES
        for node in functions(path)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, f"over {FUNCTION_LINES_MAX} lines: {long}"


def test_pure_layers_have_no_coroutines() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        if str(path).startswith(PURE)
        for node in functions(path)
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert not found, f"decide in pure code, act in services: {found}"


def test_names_are_those_of_the_glossary() -> None:
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path in SOURCES
        if path.parts[0] in ("node", "tui")
        for node in functions(path)
        if BANNED_WORDS.search(node.name.replace("_", " "))
    ]
    found += [str(path) for path in SOURCES if BANNED_WORDS.search(path.stem.replace("_", " "))]
    assert not found, f"say what it is: {found}"


def test_every_stream_between_tasks_has_a_named_bound() -> None:
    bare = re.compile(r"create_memory_object_stream(\[[^\]]*\])?\(\s*\)|math\.inf")
    found = [
        str(path)
        for path in SOURCES
        if path.parts[0] in ("node", "tui")
        and bare.search(source(path))
        and "create_memory_object_stream" in source(path)
    ]
    assert not found, f"give the stream a size: {found}"


def test_nothing_of_the_workshop_is_in_the_repository() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    marks = re.compile("index" + r"-url|find-" + r"links|\bT" + r"ODO\b|\bFIX" + r"ME\b")
    found = [
        name
        for name in tracked
        if name
        and (ROOT / name).is_file()
        and Path(name).suffix in (".py", ".md", ".toml", ".lock", ".tcss", "")
        and marks.search((ROOT / name).read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found, found


def loaded_modules(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(run.stdout.split())


def test_a_headless_node_loads_neither_screen_nor_engine() -> None:
    loaded = loaded_modules("import node.runtime, node.client")
    assert not loaded & {"textual", "rich", "typer", "mlx", "mlx_lm", "transformers", "numpy"}


def test_the_command_line_starts_light() -> None:
    loaded = loaded_modules("import tui.command_line")
    assert not loaded & {"textual", "mlx", "mlx_lm", "zeroconf", "cryptography", "uvicorn"}

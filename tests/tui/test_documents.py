"""Pages that are made of the code say what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent.parent.parent / "docs"


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_keys_and_commands_are_as_the_code_has_them() -> None:
    pages: dict[str, str] = maker().pages()
    stale = [
        name
        for name, content in pages.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != content
    ]
    assert stale == [], "run `make docs`"
    assert "exoctl node drain NODE" in pages["commands.md"]
    assert "| `n` | Place a model | `:place MODEL` |" in pages["keys.md"]

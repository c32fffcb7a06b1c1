"""The pure parts of the app load no framework, and its first frame loads no part that can wait."""

import json
import subprocess
import sys

PURE = (
    "tui.viewmodel.cluster",
    "tui.viewmodel.plans",
    "tui.viewmodel.leaving",
    "tui.viewmodel.topology_layout",
    "tui.actions.registry",
    "tui.bridge.store",
    "tui.bridge.conversation",
    "tui.bridge.frame_clock",
)
"""None of these may load textual or rich."""

LATER = (
    "rich.markdown",
    "pygments",
    "textual.widgets._text_area",
    "mlx",
    "mlx_lm",
)
"""What the first frame does without."""


def modules_after(statement: str) -> set[str]:
    probe = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stdout))


def test_pure_parts_load_no_framework() -> None:
    loaded = modules_after("\n".join(f"import {name}" for name in PURE))
    assert not {"textual", "rich", "typer"} & loaded


def test_the_first_frame_loads_neither_markdown_nor_editor_nor_models() -> None:
    loaded = modules_after("import tui.app, tui.views.overview")
    assert "textual" in loaded
    assert not [name for name in LATER if name in loaded]

"""The README's pictures show what the app draws now, and a recording comes to the same state."""

import importlib.util
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from node.core.apply import apply
from node.handle import Lagged
from node.model.errors import UsageError
from node.model.session import Rewind, SessionStarted
from node.model.state import Snapshot
from tests.fakes.cluster import three_node_cluster
from tests.fakes.handle import FakeHandle
from tests.fakes.history import history, trouble
from tui.bridge.recording import fold, line_of, read_recording

FOLDER = Path(__file__).parent.parent.parent / "screenshots"


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshots_make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_pictures_show_what_the_app_draws_now() -> None:
    drawn: dict[str, str] = await maker().draw_all()
    stale = [
        name
        for name, svg in drawn.items()
        if (FOLDER / f"{name}.svg").read_text(encoding="utf-8") != svg
    ]
    assert stale == [], "run `python screenshots/make.py`"
    assert all((FOLDER / f"{name}.png").exists() for name in drawn)


async def test_a_recording_folds_to_the_state_that_the_node_had(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    state, registers = three_node_cluster()
    handle = FakeHandle((state, registers))
    entries = trouble(state)
    items = [
        Snapshot(state=state),
        SessionStarted(session=state.session),
        *registers.values(),
        handle.view,
        *entries,
        Lagged(skipped=3),
    ]
    path.write_bytes(b"".join(line_of(item, float(place)) for place, item in enumerate(items)))
    wanted = state
    for entry in entries:
        wanted = apply(wanted, entry)
    run = fold(read_recording(path))
    assert run.state == wanted
    assert run.registers == registers
    assert run.entries == entries
    assert run.local == handle.view
    assert run.ended_at == len(items) - 1
    with path.open("ab") as file:
        file.write(line_of(Rewind(index=entries[1].index), 99.0))
    assert fold(read_recording(path)).entries == entries[:1]
    handle.close()


@pytest.mark.parametrize(
    "line",
    [b"not json\n", b'{"at": 1, "kind": "Comet", "item": {}}\n', b'{"at": 1}\n', b"[]\n"],
)
def test_a_broken_recording_names_the_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "broken.ndjson"
    first = history(three_node_cluster()[0])[0]
    path.write_bytes(line_of(first, 1.0) + line)
    with pytest.raises(UsageError, match="line 2"):
        list(read_recording(path))
    with pytest.raises(UsageError, match="No such file"):
        list(read_recording(tmp_path / "none.ndjson"))


def test_a_line_that_has_no_end_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.bridge.recording.LINE_BYTES_MAX", 64)
    path = tmp_path / "long.ndjson"
    path.write_bytes(msgspec.json.encode({"at": 1, "kind": "x" * 100, "item": {}}))
    with pytest.raises(UsageError, match="longer than 64"):
        list(read_recording(path))

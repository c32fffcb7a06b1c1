import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config import environment_for_child
from node.io.model_store.cards import CARD_NAME
from node.io.model_store.names import directory_in, parse_model_id
from node.io.model_store.store import ModelStore, ModelTools
from node.io.model_store.weight_files import check, stamps_of
from node.model.errors import BusyError, Failure, NotFoundError, UsageError
from node.model.ids import ModelId
from node.model.register import HeldModel
from tests.fakes.tiny_files import safetensors, write_model

FAKES = Path(__file__).parents[1] / "fakes"
TOOLS = ModelTools(
    inspect=(sys.executable, str(FAKES / "fake_inspector.py")),
    convert=(sys.executable, str(FAKES / "fake_converter.py"), "normal"),
)
INDEX = "model.safetensors.index.json"


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["smollm2-135m-instruct", "mlx-community/Qwen3-0.6B-4bit", "a", "0", "_x/y_z.1"]
)
def test_names_of_models_are_taken(text: str) -> None:
    assert parse_model_id(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../x",
        "a/..",
        "a/../b",
        "a..b",
        ".hidden",
        "a/.hidden",
        "a/b/c",
        "a//b",
        "a/",
        "/a",
        "a\0b",
        "a\n",
        "a b",
        "-rf",
        "~root",
        "c:\\x",
        "é",
        "x" * 97,
        "x/" + "y" * 97,
    ],
)
def test_other_texts_are_no_names(text: str) -> None:
    with pytest.raises(UsageError):
        parse_model_id(text)


@given(st.text(max_size=250) | st.text(alphabet="./\\ab\0-~", max_size=12))
def test_no_text_leads_out_of_the_directory(text: str) -> None:
    root = Path("/models")
    try:
        directory = directory_in(root, ModelId(text))
    except UsageError:
        return
    assert directory.is_relative_to(root)
    assert directory != root
    assert os.path.normpath(directory) == str(directory)
    assert len(directory.relative_to(root).parts) in (1, 2)


# -- files -----------------------------------------------------------------------------------------


def failure_of(directory: Path, root: Path | None = None) -> Failure | None:
    return check(directory, stamps_of(directory), root or directory.parent)


@pytest.mark.parametrize("files", [1, 3])
def test_a_whole_model_is_complete(tmp_path: Path, files: int) -> None:
    assert failure_of(write_model(tmp_path / "m", files=files)) is None


@pytest.mark.parametrize("name", ["model-00002.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    directory = write_model(tmp_path / "m", files=3)
    (directory / name).unlink()
    failure = failure_of(directory)
    assert failure is not None
    assert failure.code == "model_incomplete"
    assert name.split(".", maxsplit=1)[0] in failure.message


@given(st.data())
def test_a_file_of_any_other_length_is_not_complete(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = write_model(tmp_path_factory.mktemp("models") / "m")
    weights = directory / "model.safetensors"
    whole = weights.read_bytes()
    length = data.draw(st.integers(0, len(whole) + 20).filter(lambda size: size != len(whole)))
    weights.write_bytes((whole + bytes(20))[:length])
    failure = failure_of(directory)
    assert failure is not None
    assert failure.code == "model_incomplete"


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_no_content_of_weights_or_index_does_worse_than_a_failure(
    tmp_path_factory: pytest.TempPathFactory, weights: bytes, index: bytes
) -> None:
    directory = write_model(tmp_path_factory.mktemp("models") / "m", files=2)
    (directory / "model-00001.safetensors").write_bytes(weights)
    failure = failure_of(directory)
    assert failure is not None
    (directory / INDEX).write_bytes(index)
    assert failure_of(directory) is not None


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"5",
        b'{"a": 5}',
        b'{"a": {"data_offsets": []}}',
        b'{"a": {"data_offsets": [0, -5]}}',
        b'{"a": {"data_offsets": [0, 99999999999999999999]}}',
        b"[" * 10_000,
        b'{"a": ' + b"[" * 100_000,
        b'{"a": {"data_offsets": ' + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_header_of_nonsense_is_a_failure(tmp_path: Path, header: bytes) -> None:
    directory = write_model(tmp_path / "m")
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert failure_of(directory) is not None


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", ".x"])
def test_an_index_that_names_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    directory = write_model(tmp_path / "m", files=2)
    (directory / INDEX).write_text(json.dumps({"weight_map": {"x": name}}))
    failure = failure_of(directory)
    assert failure is not None
    assert failure.code == "model_incomplete"


def test_tensors_that_the_index_promises_must_be_there(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "m", files=2)
    (directory / "model-00001.safetensors").write_bytes(safetensors({"other": 5}))
    failure = failure_of(directory)
    assert failure is not None
    assert "lacks 3 tensors" in failure.message


def test_links_that_leave_the_directory_are_refused_and_those_within_are_not(
    tmp_path: Path,
) -> None:
    root = tmp_path / "models"
    inside = write_model(root / "inside")
    (inside / "model.safetensors").rename(root / "blob")
    (inside / "model.safetensors").symlink_to(root / "blob")
    assert failure_of(inside) is None
    outside = write_model(root / "outside")
    (outside / "tokenizer.json").rename(tmp_path / "tokenizer")
    (outside / "tokenizer.json").symlink_to(tmp_path / "tokenizer")
    failure = failure_of(outside)
    assert failure is not None
    assert failure.code == "model_outside"
    (outside / "tokenizer.json").unlink()
    (outside / "tokenizer.json").symlink_to(outside / "tokenizer.json")
    assert failure_of(outside) is not None


# -- store -----------------------------------------------------------------------------------------


class Scene:
    def __init__(self, tmp_path: Path, *roots: Path) -> None:
        self.root = tmp_path / "models"
        self.state = tmp_path / "state"
        self.runs = tmp_path / "runs"
        self.store = ModelStore((self.root, *roots), self.state, environment_for_child(), TOOLS)

    def write(self, name: str, root: Path | None = None, **config: object) -> Path:
        place = (root or self.root) / name
        return write_model(place, config={"runs": str(self.runs), **config})

    def inspections(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    async def look(self) -> dict[str, HeldModel]:
        await self.store.scan()
        while await self.store.describe_next():
            pass
        return {held.card.model: held for held in self.store.figures().held}


async def test_models_are_listed_by_name_with_their_cards(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert await scene.look() == {}
    scene.write("tiny")
    scene.write("owner/name")
    (scene.root / "tiny" / ".exoctl-source").write_text("hub:owner/tiny@abc\n")
    (scene.root / "no model").mkdir()
    write_model(scene.root / "bad name")
    write_model(scene.root / ".hidden")
    write_model(scene.root / "a" / "b" / "c")
    held = await scene.look()
    assert list(held) == ["owner/name", "tiny"]
    tiny = held["tiny"]
    assert (tiny.complete, tiny.failure, tiny.card.architecture) == (True, None, "llama")
    assert (tiny.card.source, held["owner/name"].card.source) == ("hub:owner/tiny@abc", "local")
    assert tiny.card.layer_count == 2
    files = [path for path in (scene.root / "tiny").iterdir() if not path.name.startswith(".")]
    assert tiny.bytes_on_disk == sum(path.stat().st_size for path in files)
    assert scene.store.directory_of(ModelId("owner/name")) == scene.root / "owner" / "name"


async def test_a_card_is_made_once_and_anew_when_a_file_changes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    directory = scene.write("tiny")
    await scene.look()
    await scene.look()
    assert scene.inspections() == 1
    again = Scene(tmp_path)
    assert (await again.look())["tiny"].complete
    assert scene.inspections() == 1
    os.utime(directory / "config.json", ns=(1, 1))
    assert (await again.look())["tiny"].complete
    assert scene.inspections() == 2
    (directory / CARD_NAME).write_bytes(b"\xff{")
    assert (await Scene(tmp_path).look())["tiny"].complete
    assert scene.inspections() == 3


async def test_cards_of_read_only_directories_are_kept_in_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    scene = Scene(tmp_path, shared)
    scene.write("tiny", root=shared)
    original: Callable[..., int] = Path.write_bytes

    def write_bytes(path: Path, content: bytes) -> int:
        if path.is_relative_to(shared):
            raise PermissionError(13, "read-only", str(path))
        return original(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    assert (await scene.look())["tiny"].complete
    assert not (shared / "tiny" / CARD_NAME).exists()
    assert (await Scene(tmp_path, shared).look())["tiny"].complete
    assert scene.inspections() == 1


async def test_the_first_directory_counts_where_two_hold_a_name(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    scene = Scene(tmp_path, shared)
    scene.write("tiny", root=shared)
    await scene.look()
    assert scene.store.directory_of(ModelId("tiny")) == shared / "tiny"
    scene.write("tiny")
    await scene.look()
    assert scene.store.directory_of(ModelId("tiny")) == scene.root / "tiny"


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("refuse", "model_unsupported", "no such architecture"),
        ("text", "model_unreadable", "an error in words"),
        ("crash", "model_unreadable", "exit code 7: the last words"),
        ("nonsense", "model_unreadable", "exit code 0"),
    ],
)
async def test_a_model_that_can_not_be_described_says_why(
    tmp_path: Path, fault: str, code: str, message: str
) -> None:
    scene = Scene(tmp_path)
    scene.write("tiny", fault=fault)
    held = (await scene.look())["tiny"]
    assert not held.complete
    assert held.failure is not None
    assert held.failure.code == code
    assert message in held.failure.message
    with pytest.raises(NotFoundError) as raised:
        scene.store.directory_of(ModelId("tiny"))
    assert raised.value.failure == held.failure
    await scene.look()
    assert scene.inspections() == 1


async def test_a_truncated_model_is_listed_with_what_it_lacks_and_heals(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    directory = scene.write("tiny")
    weights = directory / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    held = (await scene.look())["tiny"]
    assert not held.complete
    assert held.failure is not None
    assert f"{len(whole) - 1} bytes" in held.failure.message
    assert scene.inspections() == 0
    weights.write_bytes(whole)
    assert (await scene.look())["tiny"].complete


async def test_a_model_is_busy_until_it_was_looked_at(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("tiny")
    with pytest.raises(BusyError):
        scene.store.directory_of(ModelId("tiny"))
    await scene.store.scan()
    with pytest.raises(BusyError):
        scene.store.directory_of(ModelId("tiny"))
    assert not scene.store.figures().held[0].complete
    await scene.look()
    assert scene.store.directory_of(ModelId("tiny")) == scene.root / "tiny"
    for absent in ("other", "../tiny", "/etc"):
        with pytest.raises(NotFoundError):
            scene.store.directory_of(ModelId(absent))


async def test_a_linked_model_directory_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    real = scene.write("tiny", root=tmp_path / "elsewhere")
    scene.root.mkdir()
    (scene.root / "linked").symlink_to(real)
    (scene.root / "owner").symlink_to(real.parent)
    held = await scene.look()
    assert list(held) == ["linked"]
    failure = held["linked"].failure
    assert failure is not None
    assert failure.code == "model_outside"


async def test_a_removed_model_is_gone_at_the_next_look(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    directory = scene.write("tiny")
    await scene.look()
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    assert await scene.look() == {}

import contextlib
import errno
import json
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config import environment_for_child
from node.io.model_store import keeping
from node.io.model_store.cards import CARD_NAME
from node.io.model_store.keeping import STAGING, fresh_staging, sweep_staging
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


# -- what else may lie there -----------------------------------------------------------------------


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Takes away what a normal user lacks; these tests may run as one whom no mode stops."""
    closed: list[str] = []
    real_stat, real_scandir, real_listdir, real_open = os.stat, os.scandir, os.listdir, os.open

    def refuse(path: object) -> None:
        text = str(path)
        if any(text.startswith(f"{each}/") for each in closed):
            raise PermissionError(errno.EACCES, "Permission denied", text)

    def guard(real: Callable[..., object], name: str) -> None:
        def guarded(path: object = ".", *arguments: object, **options: object) -> object:
            refuse(f"{path}/" if name in ("scandir", "listdir") else path)
            return real(path, *arguments, **options)

        monkeypatch.setattr(os, name, guarded)

    guard(real_stat, "stat")
    guard(real_scandir, "scandir")
    guard(real_listdir, "listdir")
    guard(real_open, "open")
    return lambda path: closed.append(str(path))


async def test_a_directory_that_may_not_be_searched_hides_no_other(
    tmp_path: Path, locked: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    scene.write("tiny")
    scene.write("closed")
    scene.write("owner/tiny")
    (scene.root / "lost+found").mkdir()
    (scene.root / "to_secret").symlink_to(tmp_path / "secret" / "model")
    for place in (scene.root / "lost+found", scene.root / "closed", tmp_path / "secret"):
        locked(place)
    with caplog.at_level(logging.WARNING):
        held = await scene.look()
        await scene.look()
    assert [name for name in held if held[name].complete] == ["owner/tiny", "tiny"]
    failure = held["closed"].failure
    assert failure is not None
    assert (failure.code, "closed" in failure.message) == ("model_unreadable", True)
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if "lost+found" in line]) == 1


async def test_a_model_directory_that_may_not_be_read_is_told_and_empty(
    tmp_path: Path, locked: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    scene = Scene(tmp_path, other)
    scene.write("tiny", other)
    scene.write("hidden")
    locked(scene.root)
    with caplog.at_level(logging.WARNING):
        assert list(await scene.look()) == ["tiny"]
    assert str(scene.root) in caplog.text


needs_odd_names = pytest.mark.skipif(
    sys.platform == "darwin", reason="this system's disks refuse names that are not UTF-8"
)


def odd(directory: Path, name: bytes) -> Path:
    return directory / os.fsdecode(name)


@needs_odd_names
async def test_names_that_are_not_utf8_are_told_of_and_keep_no_model_away(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("tiny")
    odd(scene.write("annotated"), b"\xff.txt").touch()
    odd(scene.write("linked"), b"\xfe.txt").symlink_to("/etc/hostname")
    odd(scene.root, b"\xfd").mkdir()
    held = await scene.look()
    assert {name: held[name].complete for name in held} == {
        "annotated": True,
        "linked": False,
        "tiny": True,
    }
    assert b"udcfe.txt" in msgspec.msgpack.encode(scene.store.figures())


@needs_odd_names
async def test_models_below_a_path_that_is_not_utf8_say_so(tmp_path: Path) -> None:
    root = odd(tmp_path, b"\xff")
    scene = Scene(tmp_path, root)
    scene.write("tiny", root)
    failure = (await scene.look())["tiny"].failure
    assert failure is not None
    assert failure.code == "model_path_not_utf8"
    assert msgspec.msgpack.encode(scene.store.figures())
    for model in ("tiny", "none"):
        with pytest.raises(NotFoundError) as caught:
            scene.store.directory_of(ModelId(model))
        assert msgspec.msgpack.encode(caught.value.failure)


@pytest.mark.parametrize("name", [".exoctl-source", CARD_NAME, "config.json", "notes"])
async def test_a_pipe_in_a_model_is_never_waited_for(tmp_path: Path, name: str) -> None:
    scene = Scene(tmp_path)
    directory = scene.write("tiny")
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    with anyio.fail_after(20.0):
        held = await scene.look()
    assert [each.complete for each in held.values()] == [True] * (name != "config.json")


async def test_a_kept_card_of_nonsense_is_made_anew(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    directory = scene.write("tiny")
    (directory / CARD_NAME).write_bytes(b'{"x": ' + b"[" * 200_000)
    assert (await scene.look())["tiny"].complete


async def test_a_failure_of_a_model_is_never_long(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    directory = scene.write("tiny")
    (directory / INDEX).write_text(json.dumps({"weight_map": {"x": "y" * 1_000_000}}))
    failure = (await scene.look())["tiny"].failure
    assert failure is not None
    assert len(failure.message) <= 4000


_NAMES = st.sampled_from(
    [b"config.json", b"tokenizer.json", b"model.safetensors", INDEX.encode(), CARD_NAME.encode()]
) | st.binary(min_size=1, max_size=60).map(
    lambda name: name.replace(b"/", b"_").replace(b"\0", b"_")
).filter(lambda name: name not in (b".", b".."))
_KINDS = st.sampled_from(["file", "directory", "loop", "nowhere", "out", "pipe", "socket", "deep"])


def put(directory: bytes, name: bytes, kind: str) -> None:
    path = os.path.join(directory, name)  # noqa: PTH118 - Path takes no bytes
    if os.path.lexists(path):
        return
    match kind:
        case "file":
            Path(os.fsdecode(path)).write_bytes(name)
        case "directory" | "deep":
            Path(os.fsdecode(path)).mkdir()
            if kind == "deep":
                put(path, b"config.json", "file")
                put(path, name, "file")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
        case _:
            target = {"loop": name, "nowhere": b"no such place", "out": b"/etc"}[kind]
            os.symlink(target, path)  # noqa: PTH211 - Path takes no bytes


@given(entries=st.lists(st.tuples(st.booleans(), _NAMES, _KINDS), max_size=12))
def test_whatever_lies_there_a_look_ends_and_can_be_told(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[bool, bytes, str]]
) -> None:
    scene = Scene(tmp_path_factory.mktemp("m"))
    tiny = scene.write("tiny")
    for inside, name, kind in entries:
        with contextlib.suppress(OSError):  # no such name here, or too long for a socket
            put(os.fsencode(tiny if inside else scene.root), name, kind)
    anyio.run(scene.store.scan)
    assert "tiny" in [held.card.model for held in scene.store.figures().held]
    assert msgspec.msgpack.encode(scene.store.figures())


def test_imports_side_by_side_keep_apart_and_what_one_left_is_swept_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = fresh_staging(tmp_path), fresh_staging(tmp_path)
    assert first != second
    assert first.is_dir()
    left = tmp_path / f"{STAGING}-999999999-x"
    left.mkdir()
    sweep_staging(tmp_path)
    assert left.exists(), "it may be that of another machine"
    monkeypatch.setattr(keeping, "STAGING_SECONDS", -1.0)
    sweep_staging(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([first, second])

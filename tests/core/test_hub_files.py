from collections.abc import Mapping

import pytest

from node.core import hub_files
from node.core.download_queue import Trouble
from node.model.download import Listing, RemoteFile
from node.model.ids import ModelId

COMMIT = "a" * 40


def listing(*names: str, sizes: Mapping[str, int] = {}, commit: str = COMMIT) -> Listing:
    files = tuple(RemoteFile(path=name, size=sizes.get(name, 10), hash="b" * 64) for name in names)
    return Listing(repo=ModelId("acme/m"), revision="main", commit=commit, files=files)


def names(files: "list[RemoteFile] | Trouble") -> list[str]:
    assert isinstance(files, list)
    return [file.path for file in files]


def code(trouble: Trouble | list[RemoteFile] | None) -> str:
    assert isinstance(trouble, Trouble)
    return trouble.failure.code


GOOD = ("config.json", "model.safetensors", "tokenizer.json")


def test_a_model_of_one_file_needs_no_index() -> None:
    assert hub_files.problem_of(listing(*GOOD)) is None
    assert names(hub_files.first_files(listing(*GOOD))) == ["config.json", "tokenizer.json"]
    assert names(hub_files.weight_files(listing(*GOOD), None)) == ["model.safetensors"]


def test_the_index_decides_which_weights_are_needed() -> None:
    found = listing(*GOOD, "model-1.safetensors", "model-2.safetensors", "vision.safetensors")
    chosen = hub_files.weight_files(found, {"model-2.safetensors", "model-1.safetensors"})
    assert names(chosen) == ["model-1.safetensors", "model-2.safetensors"]


def test_shards_without_an_index_are_all_taken() -> None:
    found = listing("config.json", "b.safetensors", "a.safetensors", "pytorch_model.bin")
    assert names(hub_files.weight_files(found, None)) == ["a.safetensors", "b.safetensors"]


def test_one_whole_file_beats_its_consolidated_twin() -> None:
    found = listing(*GOOD, "consolidated.safetensors")
    assert names(hub_files.weight_files(found, None)) == ["model.safetensors"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b.safetensors", "", ".hidden", "x" * 300])
def test_an_index_that_names_odd_places_is_refused(name: str) -> None:
    assert code(hub_files.weight_files(listing(*GOOD), {name})) == "repo_broken"


def test_an_index_that_names_nothing_or_what_is_missing_is_refused() -> None:
    assert code(hub_files.weight_files(listing(*GOOD), set())) == "repo_broken"
    assert code(hub_files.weight_files(listing(*GOOD), {"gone.safetensors"})) == "repo_broken"


@pytest.mark.parametrize(
    "path", ["../evil.json", "a/../../evil.json", "/etc/x.json", "a\\b.json", "a\0.json", ".x.json"]
)
def test_names_that_try_to_leave_the_directory_are_never_taken(path: str) -> None:
    assert not hub_files.is_safe_name(path)
    assert path not in names(hub_files.first_files(listing(*GOOD, path)))


def test_what_is_no_model_is_refused_with_what_would_be() -> None:
    assert code(hub_files.problem_of(listing("model.safetensors"))) == "repo_unsuitable"
    gguf = hub_files.problem_of(listing("config.json", "m.gguf"))
    assert isinstance(gguf, Trouble)
    assert "m.gguf" in gguf.failure.message
    assert "import" in gguf.failure.remedy


def test_a_listing_that_makes_no_sense_is_refused() -> None:
    assert code(hub_files.problem_of(listing(*GOOD, commit="main"))) == "repo_broken"
    huge = listing(*GOOD, sizes={"model.safetensors": 1 << 60})
    assert code(hub_files.problem_of(huge)) == "repo_broken"
    odd = listing(*GOOD, sizes={"config.json": 1 << 40})
    assert code(hub_files.problem_of(odd)) == "repo_broken"
    many = listing(*GOOD, *(f"{number}.json" for number in range(hub_files.FILES_MAX)))
    assert code(hub_files.problem_of(many)) == "repo_broken"
    unhashed = Listing(
        repo=ModelId("a/b"),
        revision="main",
        commit=COMMIT,
        files=(RemoteFile(path="config.json", size=1, hash="zz"),),
    )
    assert code(hub_files.problem_of(unhashed)) == "repo_broken"


def test_revisions_and_commits_are_told_from_nonsense() -> None:
    assert hub_files.is_commit(COMMIT)
    assert not hub_files.is_commit("main")
    assert hub_files.is_revision("refs/pr/1")
    assert not hub_files.is_revision("../x")
    assert not hub_files.is_revision("")
    assert hub_files.total_bytes(listing(*GOOD).files) == 30

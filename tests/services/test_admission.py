"""What members tell each other of who may come in."""

from pathlib import Path
from typing import cast

import pytest

from node.config import Config
from node.io.address_book import AddressBook
from node.io.mesh.mesh import Mesh
from node.io.secret_file import load_secret, new_secret, write_secret
from node.services.admission import Admission
from node.services.control_plane import ControlPlane
from node.wire.message import AdmissionRotated


class QuietMesh:
    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def withdraw_invites(self) -> int:
        return 0

    def set_secret(self, key: bytes) -> None:
        self.keys.append(key)


def admission_in(directory: Path, mesh: QuietMesh) -> Admission:
    config = Config(
        cluster_secret_file=str(directory / "secret"),
        state_directory=directory,
        model_directories=(directory,),
    )
    return Admission(
        config,
        cast("Mesh", mesh),
        cast("ControlPlane", None),
        AddressBook(directory),
        lambda: (),
    )


@pytest.mark.parametrize("secret", ["short", "x" * 5000, "\u00e9" * 40, "a" * 20 + "\n" + "b" * 20])
def test_what_can_be_no_secret_leaves_the_one_that_holds(tmp_path: Path, secret: str) -> None:
    path, mesh = tmp_path / "secret", QuietMesh()
    write_secret(path, new_secret())
    before = load_secret(path)
    admission_in(tmp_path, mesh).take(AdmissionRotated(secret=secret))
    assert load_secret(path) == before
    assert mesh.keys == []
    assert [found.name for found in tmp_path.iterdir()] == ["secret"]


def test_a_new_secret_of_a_member_takes_its_place(tmp_path: Path) -> None:
    path, mesh = tmp_path / "secret", QuietMesh()
    write_secret(path, new_secret())
    admission_in(tmp_path, mesh).take(AdmissionRotated(secret=new_secret()))
    assert mesh.keys == [load_secret(path)]

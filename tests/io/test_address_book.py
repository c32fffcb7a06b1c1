"""Remembered addresses are a cache: bounded, and never a reason to fail."""

import stat
from pathlib import Path

import pytest

from node.io.address_book import ADDRESSES_PER_NODE_MAX, BOOK_NAME, NODES_MAX, AddressBook
from node.model.ids import NodeId
from node.model.machine import Address

A, B = NodeId("a" * 52), NodeId("b" * 52)


def at(number: int) -> Address:
    return Address("10.0.0.1", number)


def test_addresses_are_kept_over_restarts_the_latest_first(tmp_path: Path):
    book = AddressBook(tmp_path)
    assert book.load() == {}
    book.remember({A: at(1), B: at(2)})
    book.remember({A: at(3)})
    assert AddressBook(tmp_path).load() == {A: (at(3), at(1)), B: (at(2),)}


def test_nothing_is_written_where_nothing_is_new(tmp_path: Path):
    book = AddressBook(tmp_path)
    book.remember({A: at(1)})
    (tmp_path / BOOK_NAME).unlink()
    book.remember({A: at(1)})
    assert list(tmp_path.iterdir()) == []


def test_nodes_and_addresses_are_bounded_and_the_oldest_go(tmp_path: Path):
    book = AddressBook(tmp_path)
    for number in range(1, 20):
        book.remember({A: at(number)})
    book.remember({NodeId(f"n{number}"): at(1) for number in range(NODES_MAX - 1)})
    kept = AddressBook(tmp_path).load()
    assert len(kept) == NODES_MAX
    assert kept[A] == tuple(at(number) for number in range(19, 19 - ADDRESSES_PER_NODE_MAX, -1))
    book.remember({B: at(1)})
    assert A not in AddressBook(tmp_path).load()


def test_a_removed_node_is_forgotten(tmp_path: Path):
    book = AddressBook(tmp_path)
    book.remember({A: at(1), B: at(2)})
    book.keep_only({B})
    assert set(AddressBook(tmp_path).load()) == {B}
    book.remember({A: at(1)})  # proved before it was removed, told after
    assert set(AddressBook(tmp_path).load()) == {B}
    book.keep_only({A, B})
    book.remember({A: at(1)})
    assert set(AddressBook(tmp_path).load()) == {A, B}


def test_another_cluster_has_another_book(tmp_path: Path):
    book = AddressBook(tmp_path)
    book.remember({A: at(1)})
    book.replace({B: (at(2), at(3))})
    assert AddressBook(tmp_path).load() == {B: (at(2), at(3))}
    book.remember({A: at(1)})
    assert set(AddressBook(tmp_path).load()) == {B}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"nodes": {"a": 5}}', b"\xff\xfe", b" " * 300_000 + b"{}"]
)
def test_a_damaged_book_costs_only_its_addresses(tmp_path: Path, content: bytes):
    (tmp_path / BOOK_NAME).write_bytes(content)
    book = AddressBook(tmp_path)
    assert book.load() == {}
    book.remember({A: at(1)})
    assert AddressBook(tmp_path).load() == {A: (at(1),)}


def test_a_directory_that_is_gone_costs_only_its_addresses(tmp_path: Path):
    book = AddressBook(tmp_path / "gone")
    assert book.load() == {}
    book.remember({A: at(1)})
    assert book.load() == {}


def test_only_the_owner_can_read_it_and_no_scraps_are_left(tmp_path: Path):
    AddressBook(tmp_path).remember({A: at(1)})
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

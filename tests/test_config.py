"""Settings out of the config file and the options."""

from pathlib import Path
from typing import Any

import pytest

from node.config import API_PORT, Config, load_config
from node.model.errors import UsageError
from node.model.machine import Address


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file; there is none yet."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("EXOCTL_CONFIG", str(path))
    return path


def load(file: Path, text: str, **options: Any) -> Config:
    file.write_text(text, encoding="utf-8")
    return load_config(options)


def test_without_a_file_the_defaults_hold(file: Path) -> None:
    config = load_config({})
    assert config.api_port == API_PORT
    assert config.model_directories
    assert not file.exists()


def test_a_file_sets_every_value_and_options_win(file: Path) -> None:
    text = """
        [node]
        name = "studio"
        bind = "10.0.0.1"
        cluster_port = 0
        api_host = "::1"
        api_port = -1
        api_token = "secret"
        discovery = false
        trust = "lan"
        prefer_master = true
        log_level = "warning"
        api_token_required = true
        state_directory = "~/state"
        model_directories = ["/models", "~/more"]
        peers = ["10.0.0.2", "[fe80::1%en0]:99"]
    """
    config = load(file, text, api_port=0, name=None)
    assert config == Config(
        name="studio",
        bind="10.0.0.1",
        cluster_port=0,
        api_host="::1",
        api_port=0,
        api_token="secret",
        discovery=False,
        trust="lan",
        prefer_master=True,
        log_level="warning",
        api_token_required=True,
        state_directory=Path.home() / "state",
        model_directories=(Path("/models"), Path.home() / "more"),
        peers=(Address("10.0.0.2", 52416), Address("fe80::1%en0", 99)),
    )
    peers = (Address("10.0.0.3", 1),)
    options = load(file, text, peers=peers, state_directory=Path("/s"))
    assert (options.peers, options.state_directory) == (peers, Path("/s"))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("node = 5", "node"),
        ("[nodes]\nname = 'x'", "nodes"),
        ("name = 'x'", "name"),
        ("[node]\nnme = 'x'", "nme"),
        ("[node]\nname = 5", "name"),
        ("[node]\nname = 'a\\nb'\n".replace("'", '"'), "name"),
        ("[node]\nmodel_directories = []", "model_directories"),
        ("[node]\nmodel_directories = ['']", "model_directories"),
        ("[node]\nmodel_directories = [5]", "model_directories"),
        ("[node]\nstate_directory = '~nobody-of-that-name/x'", "state_directory"),
        ("[node]\nlog_level = 'loud'", "log_level"),
        ("[node]\ntrust = 'all'", "trust"),
        ("[node]\napi_port = 70000", "api_port"),
        ("[node]\napi_port = true", "api_port"),
        ("[node]\ncluster_port = -1", "cluster_port"),
        ("[node]\ndiscovery = 1", "discovery"),
        ("[node]\napi_token = 'two words'", "api_token"),
        ("[node]\napi_token_required = true", "api_token"),
        ("[node]\npeers = 'a'", "peers"),
        ("[node]\npeers = ['a:99999']", "a:99999"),
        ("[node", "table declaration"),
    ],
)
def test_a_file_that_is_off_is_an_error_that_names_the_place(
    text: str, word: str, file: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        load(file, text)
    assert word in caught.value.failure.message


def test_a_file_that_is_no_text_is_an_error(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"config\.toml"):
        load_config({})


@pytest.mark.parametrize(
    "options",
    [
        {"api_port": 70000},
        {"cluster_port": -1},
        {"trust": "all"},
        {"log_level": "loud"},
        {"name": "x" * 65},
        {"model_directories": ()},
        {"api_token_required": True},
        {"nme": "x"},
    ],
)
def test_options_have_the_same_bounds(options: dict[str, Any], file: Path) -> None:
    with pytest.raises(UsageError):
        load_config(options)

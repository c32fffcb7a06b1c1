"""An environment without anything of the person who runs the tests."""

import os
from pathlib import Path

import pytest


def pretend_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have captured output say that it is a terminal."""

    def yes(_: object) -> bool:
        return True

    monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", yes)


def isolate(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Point every place of exoctl into the directory, and take its other variables away."""
    for name in [name for name in os.environ if name.startswith("EXOCTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EXOCTL_STATE_DIR", str(directory / "state"))
    monkeypatch.setenv("EXOCTL_CONFIG", str(directory / "config.toml"))
    monkeypatch.setenv("EXOCTL_MODEL_DIR", str(directory / "models"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

"""Settings of the app: what each is for, and what it can be."""

import msgspec

from tui.actions.everywhere import VIEWS

APP_WORDS = {
    "theme": "Colours: exoctl-dark, -light, -contrast or -cb (colour-blind safe).",
    "ascii": "Draw with ASCII alone.",
    "mouse": "Clicks and the wheel act in the app; false leaves them to the terminal.",
    "animations": "Rows that changed fade, tokens move along the links.",
    "read_only": "Nothing in the app changes the cluster.",
    "view": "The view that is shown first, such as overview or chat.",
}
AT_ONCE = ("theme", "ascii", "animations")
"""Settings that act as soon as they are changed; the others with the next start."""
YES, NO = "yes", "no"


class AppSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as the dialog shows it."""

    name: str
    now: str
    choices: tuple[str, ...]

    @property
    def words(self) -> str:
        """What it is for."""
        return APP_WORDS[self.name]

    @property
    def is_at_once(self) -> bool:
        """It acts as soon as it is changed."""
        return self.name in AT_ONCE

    def after(self, step: int) -> str:
        """The next choice, or the one before; from the last to the first."""
        place = self.choices.index(self.now) if self.now in self.choices else -step
        return self.choices[(place + step) % len(self.choices)]


def settings_rows(now: dict[str, str], themes: tuple[str, ...]) -> list[AppSetting]:
    """The settings in the order of the file."""
    choices = {"theme": themes, "view": tuple(name for name, _ in VIEWS)}
    return [
        AppSetting(name=name, now=now[name], choices=choices.get(name, (YES, NO)))
        for name in APP_WORDS
    ]

"""What every pane needs: the store, the palette, the node, and how to do things."""

from collections.abc import Callable
from typing import Protocol

from node.model.ids import InstanceId, ModelId, NodeId, RequestId
from node.model.session import Entry
from tui.actions.action import Action, key_text
from tui.app_options import AppOptions
from tui.bridge.conversation import Conversation
from tui.bridge.frame_clock import FRAMES_PER_SECOND
from tui.bridge.node_thread import NodeLink
from tui.bridge.store import ClusterStore
from tui.paint.palette import Palette
from tui.viewmodel import glyphs
from tui.viewmodel.cluster import ClusterView
from tui.viewmodel.rows import Level
from tui.viewmodel.text import clean


class Doer(Protocol):
    """Does actions by id; the main screen."""

    def perform(self, action_id: str, argument: str = "") -> None:
        """Do an action, or say why not."""
        ...

    def say(self, text: str, level: Level = "ok") -> None:
        """Tell the person something, for a few seconds."""
        ...

    def mark(self, topics: frozenset[str]) -> None:
        """Have panes of these topics painted in the next frame."""
        ...

    def show_entry(self, entry: Entry) -> None:
        """Show an entry of the log as JSON."""
        ...

    def show_text(self, title: str, words: str) -> None:
        """Show words whole, broken into lines."""
        ...


class Context:
    """Shared by all panes of one app. Of the screen's thread alone."""

    def __init__(
        self,
        store: ClusterStore,
        node: NodeLink,
        palette: Palette,
        options: AppOptions,
        *,
        is_embedded: bool,
    ) -> None:
        self.store = store
        self.node = node
        self.palette = palette
        self.options = options
        self.is_embedded = is_embedded
        self.doer: Doer | None = None
        self.conversation = Conversation()
        self.frames_per_second = FRAMES_PER_SECOND
        self.zone_seconds = 0.0
        """Local time ahead of UTC."""
        self.random_hex: Callable[[int], str] = _no_chance
        self.instance: InstanceId | None = None
        """The placement that is looked at."""
        self.chosen_node: NodeId | None = None
        """The node that is looked at."""
        self.chosen_model: ModelId | None = None
        """The model that is looked at."""
        self.chosen_request: RequestId | None = None
        self._held: ClusterView | None = None
        self._held_events = 0

    @property
    def is_ascii(self) -> bool:
        """Only ASCII may be drawn."""
        return self.options.ascii

    @property
    def view(self) -> ClusterView:
        """The rows to draw: those of now, or of when the screen was held still."""
        return self._held or self.store.view

    @property
    def is_held(self) -> bool:
        """The screen is held still."""
        return self._held is not None

    @property
    def events_since_held(self) -> int:
        """Entries that came while the screen is held still."""
        return self.store.events_total - self._held_events if self._held else 0

    @property
    def chat_model(self) -> ModelId | None:
        """The model that answers: the chosen one, else the first that is ready."""
        if self.conversation.model is not None:
            return self.conversation.model
        return next((row.model for row in self.view.placements if row.ready), None)

    def hold(self) -> None:
        """Hold the screen still, or let it go on."""
        self._held = None if self._held else self.store.view
        self._held_events = self.store.events_total

    def keys_of(self, action: Action) -> tuple[str, ...]:
        """The keys of an action, as they are written for people."""
        return tuple(key_text(key) for key in self.options.keymap.of(action))

    def written(self, text: str) -> str:
        """Text as it may be drawn: harmless; all of it, or only its ASCII."""
        text = clean(text, keep="\n")
        return glyphs.ascii_only(text) if self.is_ascii else text

    def perform(self, action_id: str, argument: str = "") -> None:
        """Do an action, or say why not."""
        if self.doer is not None:
            self.doer.perform(action_id, argument)

    def show_entry(self, entry: Entry) -> None:
        """Show an entry of the log as JSON."""
        if self.doer is not None:
            self.doer.show_entry(entry)

    def show_text(self, title: str, words: str) -> None:
        """Show words whole, broken into lines."""
        if self.doer is not None:
            self.doer.show_text(title, words)

    def say(self, text: str, level: Level = "ok") -> None:
        """Tell the person something, for a few seconds."""
        if self.doer is not None:
            self.doer.say(text, level)

    def mark(self, topics: frozenset[str]) -> None:
        """Have panes of these topics painted in the next frame."""
        if self.doer is not None:
            self.doer.mark(topics)


def _no_chance(_characters: int) -> str:
    raise RuntimeError("the app sets this at its start")

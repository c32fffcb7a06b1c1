"""The two timers that run only while they have a meaning: figures that age, tokens that flow."""

from collections.abc import Callable

from tui.bridge.store import ALL, STALE_SECONDS
from tui.context import Context
from tui.widgets.topology import TopologyPane

PULSE_SECONDS = 0.15
Start = Callable[[float, Callable[[], None]], object]


class Timers:
    """Started by what happens; each ends by itself."""

    def __init__(self, context: Context, start: Start) -> None:
        self._context = context
        self._start = start
        self._is_watching = self._is_pulsing = False
        self.panes: Callable[[], list[TopologyPane]] = list

    def watch_age(self) -> None:
        """Look, when that is due, whether figures still come; say how old they are if not."""
        if not self._is_watching and self._context.store.heard_at:
            self._is_watching = True
            self._start(STALE_SECONDS + 0.2, self._look_at_age)

    def _look_at_age(self) -> None:
        self._is_watching = False
        if self._context.store.stale_seconds:
            self._context.store.forget_view()
            self._context.mark(ALL)
        self.watch_age()

    def pulse(self) -> None:
        """Have the links pulse while tokens flow over a shown ring."""
        context = self._context
        flowing = any(row.speed > 0 for row in context.view.placements)
        wanted = context.options.animations and not context.is_held and self.panes()
        if flowing and wanted and not self._is_pulsing:
            self._is_pulsing = True
            self._start(PULSE_SECONDS, self._beat)

    def _beat(self) -> None:
        self._is_pulsing = False
        for pane in self.panes():
            pane.pulse += 1
            pane.paint()
        self.pulse()

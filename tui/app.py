"""The Textual app and its way in: the node beside it in its own thread, clean on every way out."""

import gc
import logging
import math
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

import anyio
import msgspec
from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message

from node.config import Config, environment_value
from node.handle import NodeHandle
from node.io import clock
from node.model.errors import ExoctlError
from node.model.machine import Address
from tui.app_options import AppOptions
from tui.bridge.inbox import Answered, Ended, Generated, Inbox
from tui.bridge.node_thread import Connector, NodeLink, NodeThread
from tui.bridge.store import ALL, ClusterStore
from tui.context import Context
from tui.key_order import KeyOrder
from tui.main_screen import MainScreen
from tui.paint.palette import Palette
from tui.themes import COLOURLESS, DEFAULT, OWN, default_variables, textual_theme
from tui.viewmodel.text import clean

GARBAGE_THRESHOLD = 50_000
"""Objects made before the collector looks: with what is there frozen, its pauses vanish."""
FRAMES_PER_SECOND_REMOTE = 5.0
"""Over ssh what is sent costs more than what is drawn."""
INTERRUPTS_SECONDS = 3.0
"""Between two ctrl-c that mean one thing."""
FAULT_SECONDS = 20.0
"""So long a mistake in the settings is shown."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Wake(Message):
    """Something is in the inbox."""


class ExoctlApp(App[None], inherit_bindings=False):
    """Themes, the inbox's reader, and the main screen."""

    CSS_PATH = Path(__file__).with_name("exoctl.tcss")
    TITLE = "exoctl"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit_now", "Quit at once", priority=True),
        Binding("ctrl+c", "interrupt", "Quit", priority=True),
    ]

    def __init__(
        self,
        options: AppOptions,
        *,
        is_embedded: bool = True,
        wall: Callable[[], float] = clock.wall,
        monotonic: Callable[[], float] = clock.monotonic,
        zone_seconds: float | None = None,
    ) -> None:
        self._has_colour = not environment_value("NO_COLOR")
        super().__init__(ansi_color=None if self._has_colour else True)
        self.options = options
        self.inbox = Inbox(lambda: self.post_message(Wake()))
        self.ended_by: BaseException | None = None
        self._keys = KeyOrder(self, self._is_ready_for_keys)
        self._is_embedded = is_embedded
        self._wall = wall
        self._monotonic = monotonic
        self._interrupted_at = -math.inf
        self._zone_seconds = _local_zone() if zone_seconds is None else zone_seconds
        self._node: NodeLink | None = None
        self.main: MainScreen | None = None
        self.context: Context | None = None
        if not options.animations:
            self.animation_level = "none"

    async def on_event(self, event: events.Event) -> None:
        """Let one key after the other act."""
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
        elif not self._keys.holds(event):
            await super().on_event(event)
            self._keys.sent()

    def _is_ready_for_keys(self) -> bool:
        """What the last key opened is there, with its focus."""
        if not self.screen_stack or self.main is None:
            return True
        if self.screen is self.main:
            return self.main.is_settled
        return self.screen.is_mounted

    def attach(self, node: NodeLink) -> None:
        """Take the node that fills the inbox; before the app runs."""
        self._node = node

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our colour names, for themes that do not define them."""
        return default_variables()

    def on_mount(self) -> None:
        """Take the theme and show the main screen."""
        assert self._node is not None
        for colours in OWN.values():
            self.register_theme(textual_theme(colours))
        has_colour = self._has_colour
        wanted = self.options.theme or DEFAULT
        name = wanted if wanted in OWN else DEFAULT
        palette = Palette(OWN[name] if has_colour else None)
        self.context = Context(
            ClusterStore(self._wall),
            self._node,
            palette,
            self.options,
            is_embedded=self._is_embedded,
        )
        self.context.random_hex = clock.random_hex
        self.context.zone_seconds = self._zone_seconds
        if environment_value("SSH_CONNECTION"):
            self.context.frames_per_second = FRAMES_PER_SECOND_REMOTE
        self.set_class(self.options.ascii, "-ascii")
        self.set_class(not has_colour, "-plain")
        self.theme = name if has_colour else COLOURLESS
        self.main = MainScreen(self.context, self._monotonic)
        self.set_keymap({name: ",".join(keys) for name, keys in self.options.keymap.keys.items()})
        self.push_screen(self.main)
        for fault in (*self.options.keymap.faults, *self.options.faults):
            self.notify(fault, severity="warning", markup=False, timeout=FAULT_SECONDS)
        self.call_after_refresh(_settle_garbage)

    def watch_theme(self, name: str) -> None:
        """Draw with the theme's own palette."""
        if self.context is not None and name in OWN and self.main is not None:
            self.context.palette = Palette(OWN[name])
            self.main.mark(ALL)

    def action_interrupt(self) -> None:
        """What a terminal's user expects of ctrl-c: the way out, after the same question as `q`.

        Twice in a row it is meant. Of a field whose text is chosen it is the copy.
        """
        chosen = str(getattr(self.focused, "selected_text", ""))
        if chosen:
            self.copy_to_clipboard(chosen)
            return
        now, before = self._monotonic(), self._interrupted_at
        self._interrupted_at = now
        if self.main is None or now - before < INTERRUPTS_SECONDS:
            self.exit()
        elif self.screen is self.main:
            self.main.perform("global.quit")
        else:
            self.notify("esc closes this; ctrl-c again quits", markup=False)

    def action_quit_now(self) -> None:
        """Quit, whatever is open: a key of the app, since a dialog shuts out the screen's."""
        if self.main is None:
            self.exit()
        else:
            self.main.perform("global.quit_now")

    def on_wake(self) -> None:
        """Empty the inbox."""
        assert self.context is not None
        assert self.main is not None
        topics: frozenset[str] = frozenset()
        for item in self.inbox.take():
            if isinstance(item, Answered):
                self.main.attempt("Showing an answer", partial(item.reply, item.result))
            elif isinstance(item, Ended):
                self.ended_by = item.error
                self.exit()
            elif isinstance(item, Generated):
                topics |= self.context.conversation.accept(item, self._wall())
            else:
                topics |= self.context.store.accept(item)
        if topics and self.main.is_attached:
            self.main.mark(topics)


def _local_zone() -> float:
    offset = datetime.now(UTC).astimezone().utcoffset()
    return offset.total_seconds() if offset else 0.0


def _settle_garbage() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)


def run_app(config: Config | None, host: Address | None, token: str, options: AppOptions) -> int:
    """Run the app until the person quits: over a node of its own, or over the one at `host`.

    Returns the exit code. Whatever ends it, the terminal is as it was and the node has ended.
    """
    connector = embedding(config) if config is not None else _attaching(host, token)
    app = ExoctlApp(options, is_embedded=config is not None)
    return run_with(app, connector, is_embedded=config is not None)


def run_replay(path: Path, speed: float, skip_seconds: float, options: AppOptions) -> int:
    """Run the app over a recording; returns the exit code."""
    from tui.bridge.replay import ReplayClock, replaying  # noqa: PLC0415 - seldom asked for

    replay_clock = ReplayClock(clock.monotonic, speed)
    source = "replay" if speed == 1 else f"replay, {speed:g} times as fast"
    options = msgspec.structs.replace(options, source=source, read_only=True)
    app = ExoctlApp(options, is_embedded=False, wall=replay_clock.wall)
    return run_with(app, replaying(path, replay_clock, skip_seconds), is_embedded=False)


def run_with(app: ExoctlApp, connector: Connector, *, is_embedded: bool) -> int:
    """Run an app over the node that a connector opens."""
    logging.lastResort = None  # nothing may be written across the screen
    node = NodeThread(connector, app.inbox, is_embedded=is_embedded)
    app.attach(node)
    node.start()
    try:
        anyio.run(_run, app)
        node.close()
    except ExoctlError as error:
        return _explain(error)
    finally:
        node.close()
    if app.ended_by is not None:
        return _explain(app.ended_by)
    return app.return_code or 0


async def _run(app: ExoctlApp) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_end_on_signal, app)
        await app.run_async(mouse=app.options.mouse)
        group.cancel_scope.cancel()


async def _end_on_signal(app: ExoctlApp) -> None:
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        async for number in signals:
            app.exit(return_code=128 + number)


def _explain(error: BaseException) -> int:
    if not isinstance(error, ExoctlError):
        raise error
    failure = error.failure
    sys.stderr.write(f"exoctl: {clean(failure.message)}\n")
    if failure.remedy:
        sys.stderr.write(f"        {clean(failure.remedy)}\n")
    return error.exit_code


def embedding(config: Config) -> Connector:
    """Opens a node of this process's own."""

    @asynccontextmanager
    async def connect() -> AsyncGenerator[NodeHandle]:
        from node.runtime import open_node  # noqa: PLC0415 - loaded while the first frame shows

        async with open_node(config) as handle:
            yield handle

    return connect


def _attaching(host: Address | None, token: str) -> Connector:
    if host is None:
        raise ValueError("either a config or a host is needed")

    @asynccontextmanager
    async def connect() -> AsyncGenerator[NodeHandle]:
        from node.client import connect as connect_client  # noqa: PLC0415 - as above

        async with connect_client(host, token) as handle:
            yield handle

    return connect

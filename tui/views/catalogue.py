"""Views by name; a view's module is only loaded when it is first shown."""

import importlib

from tui.context import Context
from tui.views.view import View

CLASSES: dict[str, tuple[str, str]] = {
    "overview": ("tui.views.overview", "Overview"),
    "nodes": ("tui.views.nodes", "NodesView"),
    "placements": ("tui.views.placements", "PlacementsView"),
    "models": ("tui.views.models", "ModelsView"),
    "downloads": ("tui.views.downloads", "DownloadsView"),
    "events": ("tui.views.events", "EventsView"),
    "chat": ("tui.views.chat", "ChatView"),
    "logs": ("tui.views.logs", "LogsView"),
}


def make_view(name: str, context: Context) -> View:
    """A new view."""
    module, class_name = CLASSES[name]
    kind: type[View] = getattr(importlib.import_module(module), class_name)
    return kind(context, identity=f"view-{name}")

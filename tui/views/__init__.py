"""The views: how panes are put together."""

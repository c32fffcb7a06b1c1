"""Dialogs: modal screens over the views."""

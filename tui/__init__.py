"""The terminal front end of exoctl: command line and Textual app."""

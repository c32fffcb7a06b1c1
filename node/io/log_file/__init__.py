"""The replica's records on disk: checksummed, group-committed, replayed at start."""

from node.io.log_file.log_file import LogFile, LogStatus, Synced, open_log

__all__ = ["LogFile", "LogStatus", "Synced", "open_log"]

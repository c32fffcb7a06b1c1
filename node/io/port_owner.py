"""Who listens on a TCP port of this machine."""

import psutil


def port_owner(port: int) -> str:
    """Name and id of the process that listens on a port; empty where that can't be told.

    Reads the system's tables: call it in a thread.
    """
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return _own_listener(port)
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:2] == (port,):
            return _describe(connection.pid)
    return ""


def _own_listener(port: int) -> str:
    """The same where others' sockets are hidden, as on macOS: asks one process after the other."""
    for process in psutil.process_iter():
        try:
            connections = process.net_connections("tcp")
        except (psutil.Error, OSError):
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:2] == (port,):
                return _describe(process.pid)
    return ""


def _describe(process_id: int | None) -> str:
    if process_id is None:
        return "another user's process"
    try:
        name = psutil.Process(process_id).name()
    except (psutil.Error, OSError):
        name = "a process"
    return f"{name} (process {process_id})"

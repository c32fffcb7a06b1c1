"""Who listens on a TCP port of this machine."""

import psutil


def port_owner(port: int) -> str:
    """Name and id of the process that listens on a port; empty where that can't be told.

    Reads the system's tables: call it in a thread.
    """
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return ""  # other users' sockets are hidden from this one
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or tuple(connection.laddr)[1:] != (port,):
            continue
        if connection.pid is None:
            return "another user's process"
        try:
            name = psutil.Process(connection.pid).name()
        except psutil.Error:
            name = "a process"
        return f"{name} (process {connection.pid})"
    return ""

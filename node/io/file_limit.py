"""How many files and connections this process may have open at once."""

import contextlib
import resource

FILES_WANTED = 8192
"""More than a node needs with all its links and clients; macOS allows each process about 10,000."""


def file_limit() -> int:
    """Files that may be open now: the soft limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> int:
    """Raise the soft limit towards the hard one, as far as the system lets; answers what holds now.

    Never lowers it, and never raises an exception: a node runs with what it has.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return file_limit()

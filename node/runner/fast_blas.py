"""OpenBLAS for mlx on Linux, whose wheel brings a BLAS that is 30 times slower."""

import ctypes
import os
import sys
from pathlib import Path

LIBRARY = "libopenblas.so.0"
DIRECTORIES = ("", "/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/")


def preload() -> str:
    """Bring OpenBLAS into the process; to be called before mlx is imported.

    Returns the library's path, or an empty text where there is none or it is not wanted.
    """
    if sys.platform != "linux":
        return ""
    # mlx computes on one thread per runner; more in BLAS only fight with other runners.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for directory in DIRECTORIES:
        if directory and not Path(directory, LIBRARY).exists():
            continue
        try:
            ctypes.CDLL(directory + LIBRARY, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return directory + LIBRARY
    return ""

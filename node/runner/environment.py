"""What mlx and transformers find around them: settings, and OpenBLAS on Linux."""

import ctypes
import os
import sys
from pathlib import Path

LIBRARY = "libopenblas.so.0"
DIRECTORIES = ("", "/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/")


def preload() -> str:
    """Bring OpenBLAS into the process before mlx, whose own BLAS is 30 times slower on Linux.

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


def prepare_environment() -> None:
    """Settings that mlx and transformers read when they are imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if sys.platform == "linux":
        # There it would call g++ at run time, for no measurable gain.
        os.environ.setdefault("MLX_DISABLE_COMPILE", "1")


def name_ring(path: Path, rank: int) -> None:
    """Where mlx.distributed finds the addresses of its ranks, and which of them this is."""
    os.environ["MLX_HOSTFILE"] = str(path)
    os.environ["MLX_RANK"] = str(rank)

"""How fast machines read weights and compute, by chip.

Apple's chips: memory bandwidth as their maker states it and peak of the GPU; where one name covers
several variants that can't be told apart, the slower. Linux processors: what the runner was
measured to do on two cores of a server processor, because mlx's kernels there are bound by
arithmetic and not by memory: SmolLM2-135M decoded 12.1 tokens/s unpacked to float32, 10.0 with
4-bit weights and 4.3 in bfloat16, and read prompts of 130 to 500 tokens at 245, 14.7 and 13.9
tokens/s. A node's own requests soon say it better: see `core/measured`.
"""

import msgspec

from node.model.instance import WeightFormat
from node.model.machine import Machine


class Speed(msgspec.Struct, frozen=True):
    """What a machine keeps up while it decodes and while it reads a prompt."""

    bytes_per_second: float
    """Of weights, read once for each token."""
    operations_per_second: float
    """Floating-point, while a prompt is read; a parameter costs two for each token."""
    known: bool = True
    """False where the chip is not in the table and a slow one stands in for it."""


REACHED = 0.6
"""Share of both peaks that decoding and prompt reading reach on Apple's GPUs: published figures for
4-bit and 16-bit 7B models on M1 to M4 lie between 0.45 and 0.78."""

_APPLE: dict[str, tuple[float, float]] = {
    # chip: (memory bandwidth in GB/s, GPU peak in TFLOPS at single precision)
    "Apple M1": (68.0, 2.6),
    "Apple M1 Pro": (200.0, 4.5),
    "Apple M1 Max": (400.0, 7.8),
    "Apple M1 Ultra": (800.0, 15.9),
    "Apple M2": (100.0, 2.9),
    "Apple M2 Pro": (200.0, 5.7),
    "Apple M2 Max": (400.0, 10.7),
    "Apple M2 Ultra": (800.0, 21.5),
    "Apple M3": (100.0, 2.8),
    "Apple M3 Pro": (150.0, 5.0),
    "Apple M3 Max": (300.0, 10.6),
    "Apple M3 Ultra": (819.0, 21.5),
    "Apple M4": (120.0, 3.4),
    "Apple M4 Pro": (273.0, 7.4),
    "Apple M4 Max": (410.0, 14.7),
    "Apple M5": (153.0, 11.0),
    "Apple M5 Pro": (307.0, 24.0),
    "Apple M5 Max": (460.0, 48.0),
}

_MORE_CORES: dict[tuple[str, int], tuple[float, float]] = {
    # Variants that the number of processor cores gives away.
    ("Apple M3 Max", 16): (400.0, 14.1),
    ("Apple M4 Max", 16): (546.0, 18.4),
}

_PROCESSOR_DENSE = Speed(6.5e9, 66.0e9)
_PROCESSOR_QUANTISED = Speed(1.15e9, 4.0e9)
_PROCESSOR_HALF = Speed(1.2e9, 3.8e9)


def speed_of(machine: Machine, weight_format: WeightFormat, quantisation_bits: int) -> Speed:
    """What the machine is expected to keep up with weights in that format."""
    if machine.unified_memory:
        figures = _MORE_CORES.get((machine.chip, machine.cores)) or _APPLE.get(machine.chip)
        known = figures is not None
        gigabytes, teraflops = figures or _APPLE["Apple M1"]
        return Speed(gigabytes * 1e9 * REACHED, teraflops * 1e12 * REACHED, known)
    if weight_format is WeightFormat.DENSE:
        return _PROCESSOR_DENSE
    return _PROCESSOR_QUANTISED if quantisation_bits else _PROCESSOR_HALF

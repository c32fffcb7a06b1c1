"""`python -m tests.benchmarks.engine_child PART MODEL`: on the embedded model, unpacked."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from node.runner.environment import preload, prepare_environment

prepare_environment()
preload()

import mlx.core as mx  # noqa: E402 - after OpenBLAS
import psutil  # noqa: E402
from mlx_lm.generate import stream_generate  # type: ignore[reportUnknownVariableType]  # noqa: E402

from node.model.ids import ModelId, RequestId  # noqa: E402
from node.model.instance import WeightFormat  # noqa: E402
from node.model.request import Delta, GenerationItem, GenerationRequest, Sampling  # noqa: E402
from node.runner.engine import Engine, EngineSettings  # noqa: E402
from node.runner.shard_loader import (  # noqa: E402
    materialise,
    open_model,
    open_tokenizer,
    weight_bytes,
)
from tests.benchmarks.measure import line, summary  # noqa: E402
from tests.mlx.loop_ring import loop  # noqa: E402

LAYERS = 30
TOKENS = 24
ROUNDS = 5
WIDTHS = (1, 2, 3, 5, 8, 16)
PREFIX_TOKENS = 2000
WORDS = " the keeper of the light went up the stairs once more"
NEVER_ENDS = Sampling(temperature=0.0, logit_bias={2: -100.0})


def loaded(directory: Path, shard: range, form: WeightFormat = WeightFormat.DENSE) -> Any:
    """The model with the layers of the shard in memory."""
    opened = open_model(directory)
    materialise(opened, opened.model.layers, shard, form, lambda _: None)
    return opened.model


class Bench:
    """An engine, and what its requests got."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        settings = EngineSettings(
            context_tokens=4096, vocabulary_size=49152, batch_max=16, queue_max=64,
            cache_bytes_max=1 << 30, cache_bytes_per_token=46_080,
        )  # fmt: skip
        self.tokenizer = tokenizer
        self.counts: dict[str, int] = {}
        self.engine = Engine(model, tokenizer, settings, self._emit)
        self.engine.warm_up()
        self._asked = 0

    def _emit(self, request: RequestId, item: GenerationItem) -> None:
        if isinstance(item, Delta):
            self.counts[request] = self.counts.get(request, 0) + len(item.tokens)

    def ask(self, prompt: str, tokens: int) -> str:
        """Submit one; returns its name."""
        self._asked += 1
        name = f"q-{self._asked}"
        self.engine.submit(
            GenerationRequest(
                id=RequestId(name), model=ModelId("m"), prompt=prompt,
                tokens_max=tokens, sampling=NEVER_ENDS,
            )
        )  # fmt: skip
        return name

    def per_token(self, width: int) -> float:
        """Processor seconds per token while so many answer at once."""
        # Prompts are read in turn: the first must still answer when the last begins.
        tokens = TOKENS + 3 * width
        names = [self.ask(f"{number}: once upon a time", tokens) for number in range(width)]
        while not all(self.counts.get(name) for name in names):
            self.engine.step()
        counted, began = sum(self.counts.values()), time.process_time()
        while self.engine.running_count == width:
            self.engine.step()
        used = time.process_time() - began
        found = used / (sum(self.counts.values()) - counted)
        while self.engine.has_work:
            self.engine.step()
        return found

    def first_token(self, prompt: str) -> float:
        """Processor seconds until the first token."""
        began = time.process_time()
        name = self.ask(prompt, 2)
        while not self.counts.get(name):
            self.engine.step()
        used = time.process_time() - began
        while self.engine.has_work:
            self.engine.step()
        return used


def alone(model: Any, tokenizer: Any) -> float:
    """Processor seconds per token of mlx-lm's own generator, after the first."""
    prompt = tokenizer.encode("0: once upon a time")
    responses = stream_generate(
        model, tokenizer, prompt, max_tokens=TOKENS, logits_processors=[_never_ends]
    )
    next(responses)
    began = time.process_time()
    count = sum(1 for _ in responses)
    return (time.process_time() - began) / count


def _never_ends(_: mx.array, logits: mx.array) -> mx.array:
    logits[:, 2] = -1e9
    return logits


def ratio(name: str, one: Callable[[], float], other: Callable[[], float], limit: str) -> None:
    """`one` over `other`, in turns."""
    pairs = [(one(), other()) for _ in range(ROUNDS)]
    found = [first / second for first, second in pairs]
    line(name, f"{statistics.median(found):.3f}", limit)
    line("  CPU ms each", f"{summary([1e3 * first for first, _ in pairs])}")


def speed(directory: Path) -> None:
    tokenizer = open_tokenizer(directory, open_model(directory).config)
    model = loaded(directory, range(LAYERS))
    bench = Bench(model, tokenizer)
    ratio(
        "engine with one request, over stream_generate",
        lambda: bench.per_token(1),
        lambda: alone(model, tokenizer),
        "<= 1.03",
    )
    halves = [loaded(directory, range(15)), loaded(directory, range(15, LAYERS))]
    first, _ = loop(halves, (0, 15, LAYERS))
    split = Bench(first, tokenizer)
    ratio(
        "two stages, over unsplit, one request",
        lambda: split.per_token(1),
        lambda: bench.per_token(1),
        "<= 1.10",
    )
    for name, what, widths in (("unsplit", bench, WIDTHS), ("two stages", split, (1, 16))):
        rounds = [[what.per_token(width) for width in widths] for _ in range(2)]
        for place, width in enumerate(widths[1:], start=1):
            found = statistics.median(each[place] / each[0] for each in rounds)
            limit = "<= 0.50" if width == 16 else "<= 1"
            line(f"{name}, CPU per token, {width} at once over 1", f"{found:.3f}", limit)
    prompt = (WORDS * PREFIX_TOKENS)[: len(WORDS) * (PREFIX_TOKENS // 11)]
    cold, warm = bench.first_token(prompt), bench.first_token(prompt + " and")
    line(
        f"first token, {len(tokenizer.encode(prompt))} tokens known, over unknown",
        f"{warm / cold:.4f}",
        "<= 0.125",
    )


def loading(directory: Path) -> None:
    for stages in (1, 2, 3):
        for stage in range(min(stages, 2)):
            subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.engine_child", "load", str(directory),
                 str(stages), str(stage)],
                check=True,
            )  # fmt: skip


def load_one(directory: Path, stages: int, stage: int) -> None:
    """Bytes read and held for one stage, as stored."""
    shard = range(LAYERS * stage // stages, LAYERS * (stage + 1) // stages)
    opened = open_model(directory)
    layers = opened.model.layers
    inside = sum(weight_bytes(layers[number])[0] for number in shard)
    if stage == 0:
        inside += weight_bytes(opened.model)[0] - sum(weight_bytes(each)[0] for each in layers)
    process = psutil.Process(os.getpid())
    read, held = process.io_counters().read_chars, process.memory_info().rss
    materialise(opened, layers, shard, WeightFormat.AS_STORED, lambda _: None)
    read = process.io_counters().read_chars - read
    held = process.memory_info().rss - held
    name = f"stage {stage} of {stages}, {inside / 1e6:.0f} MB"
    line(f"{name}: bytes read over its own", f"{read / inside:.3f}", "<= 1.05")
    line(f"{name}: memory over its own", f"{held / inside:.3f}", "<= 1.15")


if __name__ == "__main__":
    part, path, *numbers = sys.argv[1:]
    if part == "load":
        load_one(Path(path), *map(int, numbers))
    else:
        {"loading": loading, "speed": speed}[part](Path(path))

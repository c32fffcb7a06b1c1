"""`make exactness`: every family of mlx-lm, tiny and random, cut into stages against itself whole.

Greedy tokens must be equal and log probabilities close, alone and in a batch that others join and
leave, in two and in three stages, and over two ranks of tensor parallel. Writes the table of what
was found into `docs/architectures.md`.
"""

import argparse
import gc
import json
import pkgutil
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.models
import msgspec
from mlx.utils import tree_flatten
from mlx_lm.generate import BatchGenerator
from mlx_lm.utils import _get_classes as classes_of  # type: ignore[attr-defined]

from node.model.errors import ExoctlError
from node.runner.architecture import Architecture, trace
from node.runner.solo_generator import SoloGenerator, can_batch
from tests.mlx.loop_ring import loop
from tests.mlx.tensor_pair import check_over_two

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "architectures.md"
FAMILIES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("architectures.json").read_text("utf-8")
)
"""A tiny configuration of each family; none is left out but those in `UNTRIED`."""
UNTRIED = {
    "bitnet": "needs a Metal kernel",
    "muse_spark": "needs a Metal kernel",
    "olmo": "needs the package ai2-olmo",
    "phi3small": "its sparse attention ends the process on a processor, whole too",
    "prism_hadamard_qwen35": "exists as 2-bit packs alone, which can't be made of random weights",
}
PROMPTS = ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], [40, 41, 42], [90, 91, 92, 93, 94, 95])
TOKENS = 8
TOLERANCE = 2e-3
"""Of log probabilities: float32 sums in another order."""
SECONDS_MAX = 240
MEMORY_BYTES_MAX = 9 << 30

Row = tuple[list[int], list[mx.array]]


class Outcome(msgspec.Struct, kw_only=True):
    """What became of one family."""

    family: str
    stages: list[int] = []
    """Cuts that gave the unsplit answers."""
    batched: bool = False
    forbidden: int = 0
    """Cuts that are refused, as the layers around them share a cache."""
    layers: int = 0
    reason: str = ""
    """Why it can't be cut, or what went wrong."""
    refused: bool = False
    """It is refused before anything is loaded, so nobody meets a wrong answer."""
    worst: float = 0.0
    """Greatest difference of a log probability."""
    tensor: str = ""
    """Over two ranks: `exact`, or why not; empty where mlx-lm can't divide the family."""


def build(family: str) -> Any:
    """The family's tiny model, the same random one each time."""
    settings = FAMILIES[family]
    model_class, arguments_class = classes_of(settings)
    mx.random.seed(11)
    model: Any = model_class(arguments_class.from_dict(settings))
    mx.eval(model.parameters())
    parameters: Any = tree_flatten(model.parameters())
    model.load_weights(
        [
            (
                name,
                array * 2 if array.ndim > 1 and mx.issubdtype(array.dtype, mx.floating) else array,
            )
            for name, array in parameters
        ]
    )
    return model


def answers_together(model: Any) -> list[Row]:
    """Greedy answers to three prompts, the last of which comes late; a fourth leaves half-way."""
    generator = BatchGenerator(model, max_tokens=TOKENS, prefill_step_size=5)
    first, second, gone = generator.insert([PROMPTS[0], PROMPTS[1], [1, 2, 3, 4]])
    late = -1
    rows: dict[int, Row] = {}
    finished: set[int] = set()
    steps = 0
    while not {first, second, late} <= finished:
        steps += 1
        _, responses = generator.next()
        for response in responses:
            tokens, logprobs = rows.setdefault(response.uid, ([], []))
            tokens.append(response.token)
            logprobs.append(response.logprobs)
            if response.finish_reason:
                finished.add(response.uid)
        if steps == 4:
            (late,) = generator.insert([PROMPTS[2]])
        if steps == 6 and gone not in finished:
            generator.remove([gone])
    generator.close()
    return [rows[uid] for uid in (first, second, late)]


def answers_alone(model: Any) -> list[Row]:
    """Greedy answers to the prompts, one after the other."""
    generator = SoloGenerator(model)
    generator.prefill_step_size = 5
    rows: list[Row] = []
    for prompt in PROMPTS:
        generator.insert([prompt], max_tokens=[TOKENS])
        row: Row = ([], [])
        while len(row[0]) < TOKENS:
            for response in generator.next()[1]:
                row[0].append(response.token)
                row[1].append(response.logprobs)
        rows.append(row)
    return rows


def tokens_of(rows: list[Row]) -> list[list[int]]:
    """Their tokens alone."""
    return [tokens for tokens, _ in rows]


def difference(rows: list[Row], others: list[Row]) -> float:
    """The greatest difference of a log probability that is not negligible."""
    worst = 0.0
    for (_, one), (_, other) in zip(rows, others, strict=True):
        for left, right in zip(one, other, strict=True):
            apart = mx.abs(mx.exp(left.astype(mx.float32)) - mx.exp(right.astype(mx.float32)))
            value: Any = apart.max().tolist()
            worst = max(worst, float(value))
    return worst


def boundaries(architecture: Architecture, stages: int) -> tuple[int, ...] | None:
    """An even split into stages, or None where too few cuts are allowed."""
    allowed = [
        cut for cut in range(1, architecture.layer_count) if cut not in architecture.forbidden_cuts
    ]
    if len(allowed) < stages - 1:
        return None
    step = len(allowed) / stages
    cuts = sorted({allowed[int(step * number)] for number in range(1, stages)})
    return (0, *cuts, architecture.layer_count)


def check_split(
    family: str, cuts: tuple[int, ...], answers: Callable[[Any], list[Row]], expected: list[Row]
) -> float:
    """Answer in stages; returns the greatest difference.

    Raises:
        AssertionError: the tokens are not those of the unsplit model, or a cache was left behind.
    """
    first, workers = loop([build(family) for _ in cuts[1:]], cuts)
    found = answers(first)
    assert tokens_of(found) == tokens_of(expected), f"other tokens with the cuts {cuts[1:-1]}"
    apart = difference(found, expected)
    assert apart < TOLERANCE, f"probabilities differ by {apart:.4f} with the cuts {cuts[1:-1]}"
    gc.collect()
    first.flush()
    for worker in workers:
        worker.listen(lambda: None)
        assert worker.cache_count == 0, "a stage kept a cache"
    return apart


def check(family: str, *, alone_too: bool = True) -> Outcome:
    """Whole, and in two and three stages; alone and, where that is possible, in a batch."""
    outcome = Outcome(family=family)
    try:
        whole = build(family)
        outcome.layers = len(whole.layers)
        architecture = trace(whole)
        outcome.forbidden = len(architecture.forbidden_cuts)
        outcome.batched = can_batch(whole)
        ways = [answers_together] if outcome.batched else []
        ways += [answers_alone] if alone_too or not ways else []
        for stages in (2, 3):
            cuts = boundaries(architecture, stages)
            if cuts is None:
                outcome.reason = f"no {stages - 1} cuts are allowed"
                outcome.refused = True
                break
            for answers in ways:
                expected = answers(whole)
                apart = check_split(family, cuts, answers, expected)
                outcome.worst = max(outcome.worst, apart)
            outcome.stages.append(stages)
    except ExoctlError as error:
        outcome.reason = error.failure.message
        outcome.refused = True
    except Exception as error:  # noqa: BLE001 - a family that fails is a line of the table
        outcome.reason = f"{type(error).__name__}: {error}"[:200]
    return outcome


def all_families() -> list[str]:
    """Every file of mlx-lm that defines a model."""
    found: list[str] = []
    for module in pkgutil.iter_modules(mlx_lm.models.__path__):
        source = Path(mlx_lm.models.__path__[0], f"{module.name}.py").read_text("utf-8")
        if "\nclass Model(" in source:
            found.append(module.name)
    return found


def check_apart(family: str) -> Outcome:
    """In a process of its own, so that none can take the others with it."""
    if family in UNTRIED:
        return Outcome(family=family, reason=UNTRIED[family])
    if family not in FAMILIES:
        return Outcome(family=family, reason="no tiny configuration of it is known")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.mlx.exactness", "--one", family],
            cwd=ROOT, capture_output=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        outcome = msgspec.json.decode(ran.stdout.splitlines()[-1], type=Outcome)
    except subprocess.TimeoutExpired:
        return Outcome(family=family, reason=f"not done after {SECONDS_MAX} s")
    except (IndexError, msgspec.DecodeError):
        return Outcome(family=family, reason="its process ended without an answer")
    outcome.tensor = check_tensor(family)
    return outcome


def check_tensor(family: str) -> str:
    """Over two ranks, where the family can be divided at all."""
    settings = FAMILIES[family]
    if not hasattr(classes_of(settings)[0], "shard"):
        return ""
    if settings.get("num_key_value_heads") == 1:
        return "refused: one key/value head can't be divided"
    found = check_over_two(family)
    return "exact" if found.exact else found.reason


def table(outcomes: list[Outcome]) -> str:
    """The page."""
    right = {stages: sum(stages in each.stages for each in outcomes) for stages in (2, 3)}
    batched = sum(each.batched and 2 in each.stages for each in outcomes)
    ranked = sum(each.tensor == "exact" for each in outcomes)
    lines = [
        f"""# Which models can be split

Made by `make exactness`: each family of mlx-lm with a tiny random configuration, cut and compared
with itself whole: equal greedy tokens, and probabilities within {TOLERANCE:g}, alone and (where
mlx-lm can batch it) beside others that come and go.

Of {len(outcomes)} families {right[2]} are exact in two stages, {right[3]} in three; {batched} of
them in batches too. A family that can't be cut is refused at placement, and runs whole.
{ranked} are exact as tensor parallel over two ranks, each a real process with the sums over mlx's
ring: the others mlx-lm does not know how to divide.

| family | two stages | three | tensor | batched | forbidden cuts | differs by at most | why not |
|---|---|---|---|---|---|---|---|"""
    ]
    for each in sorted(outcomes, key=lambda outcome: outcome.family):
        marks = ["exact" if stages in each.stages else "-" for stages in (2, 3)]
        batch = "yes" if each.batched else "no"
        cuts = f"{each.forbidden} of {max(0, each.layers - 1)}" if each.layers else ""
        worst = f"{each.worst:.0e}" if each.stages else ""
        marks.append(each.tensor.split(":")[0] if each.tensor else "-")
        why = [each.reason]
        if each.tensor not in ("", "exact"):
            marks[2] = "-"
            why.append(f"tensor: {each.tensor}")
        reason = "; ".join(filter(None, why)).replace("|", "/").replace("\n", " ")
        cells = (each.family, *marks, batch, cuts, worst, reason)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check every family, write the page, and fail where fewer are exact than the page says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--one")
    parser.add_argument("families", nargs="*")
    options = parser.parse_args()
    if options.one:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        print(msgspec.json.encode(check(options.one)).decode())
        return 0
    outcomes: list[Outcome] = []
    for family in options.families or all_families():
        outcome = check_apart(family)
        outcomes.append(outcome)
        words = f"exact in {outcome.stages}" if outcome.stages else "-"
        words += f" tensor {outcome.tensor}" if outcome.tensor else ""
        print(f"{family:24} {words:18} {outcome.reason}", flush=True)
    if not options.families:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(table(outcomes), "utf-8")
        print(f"written: {TABLE.relative_to(ROOT)}")
    wrong = [each for each in outcomes if each.reason and not each.refused and each.stages]
    exact = sum(2 in each.stages for each in outcomes)
    ranked = sum(each.tensor == "exact" for each in outcomes)
    print(
        f"{exact} of {len(outcomes)} exact in two stages, {ranked} over two ranks;"
        f" {len(wrong)} wrong in three"
    )
    enough = exact >= EXACT_LEAST and ranked >= RANKED_LEAST
    return 0 if options.families or enough else 1


EXACT_LEAST = 114
"""Families that are exact in two stages; fewer is a regression."""
RANKED_LEAST = 24
"""And over two ranks."""

if __name__ == "__main__":
    sys.exit(main())

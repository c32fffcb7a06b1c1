"""A stream over the HTTP API beside mlx-lm's own generator, same weights, BLAS and detokenizer."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import httpx2

from tests.benchmarks.measure import MODEL, line, processor_seconds, real_nodes, summary
from tests.fakes.node_process import ROOT, NodeProcess

ROUNDS = 7
TOKENS = 120
PROMPT = "Tell me a long story about a lighthouse keeper."

RAW = """
import json, os, sys
from node.runner.environment import preload
preload()
import resource
import mlx.core as mx
from mlx_lm.generate import stream_generate
from mlx_lm.utils import dequantize_model, load
model, tokenizer = load(sys.argv[1], tokenizer_config={})
model = dequantize_model(model)
model.set_dtype(mx.float32)
mx.eval(model.parameters())
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
asked = [{"role": "user", "content": sys.argv[2]}]
prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True)
def once(count):
    return [r.token for r in stream_generate(model, tokenizer, prompt, max_tokens=count)]
once(8)
for line in sys.stdin:
    before = cpu()
    tokens = once(int(line))
    print(json.dumps({"seconds": cpu() - before, "tokens": len(tokens)}), flush=True)
"""


class Raw:
    """mlx-lm alone in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RAW, str(directory), PROMPT],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def once(self, tokens: int) -> float:
        """Processor seconds per token."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{tokens}\n")
        self.process.stdin.flush()
        result = json.loads(self.process.stdout.readline())
        return result["seconds"] / result["tokens"]


def over_api(client: httpx2.Client, node: NodeProcess, tokens: int) -> tuple[float, float]:
    """Processor seconds per token: of the node, and of its runner."""
    parts = ([node.process.pid], list(node.runner_ids().values()))
    body = {
        "model": MODEL, "stream": True, "temperature": 0, "max_tokens": tokens,
        "messages": [{"role": "user", "content": PROMPT}],
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    before = [processor_seconds(ids) for ids in parts]
    count = 0
    with client.stream("POST", f"{node.url}/v1/chat/completions", json=body, timeout=300) as reply:
        for text in reply.iter_lines():
            if text.startswith("data: {"):
                usage = json.loads(text[6:]).get("usage")
                count = usage["completion_tokens"] if usage else count
    used = [processor_seconds(ids) - at for ids, at in zip(parts, before, strict=True)]
    return used[0] / count, used[1] / count


def run() -> None:
    with real_nodes() as nodes, httpx2.Client() as client:
        node = nodes.start("one").wait_ready()
        node.cli("wait", "--for", f"model={MODEL}", "--timeout", "60")
        node.cli("load", MODEL)
        placed = node.state()["instances"]
        line("weights", next(iter(placed.values()))["weight_format"])
        raw = Raw(nodes.models / MODEL)
        over_api(client, node, 8)
        rounds = [(raw.once(TOKENS), *over_api(client, node, TOKENS)) for _ in range(ROUNDS)]
        raw.process.kill()
        raw.process.wait()
        ratios = [(node_part + runner) / alone for alone, node_part, runner in rounds]
        for name, place in (("mlx_lm.stream_generate", 0), ("the node", 1), ("its runner", 2)):
            line(f"{name}, CPU ms per token", summary([1e3 * each[place] for each in rounds]))
        line(f"ratio, middle of {ROUNDS} pairs", f"{statistics.median(ratios):.3f}", "<= 1.05")
        line("least and greatest", f"{min(ratios):.3f} to {max(ratios):.3f}")

"""Stands for `node.runner.convert`: writes a tiny model; its first argument is a mode.

Modes: `normal`, `slow`, `full` (no room), `crash`, `truncate`, `chatter`, `hang`.
"""

import json
import os
import sys
import time
from pathlib import Path

from tests.fakes.tiny_files import write_model


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    mode, source, target_text = sys.argv[1:]
    target = Path(target_text)
    runs = Path(source).with_suffix(".runs")
    with runs.open("a") as file:
        file.write("run\n")
    say(fraction=0.0, step="header")
    if mode == "full":
        error = {
            "code": "disk_full",
            "message": "1 MB free, 2 MB are needed",
            "remedy": "free some",
        }
        say(error=error)
        sys.exit(1)
    if mode == "crash":
        say(fraction=0.4, step="layers")
        target.mkdir()
        (target / "config.json").write_text("{}")
        os.abort()
    if mode == "chatter":
        print("no json at all\n" * 1000, flush=True)
        print("x" * 1_000_000, flush=True)
    for step in range(1, 10):
        say(fraction=step / 10, step="layers")
        if mode == "slow":
            time.sleep(0.05)
    if mode == "hang":
        time.sleep(3600)
    write_model(target)
    if mode == "truncate":
        weights = target / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
    say(done=True, bytes=1000)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main()

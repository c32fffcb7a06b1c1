"""Stands for `node.runner.inspect`: prints a card; the model's config.json may name a fault."""

import json
import sys
from pathlib import Path


def main() -> None:
    directory = Path(sys.argv[1])
    config = json.loads((directory / "config.json").read_text())
    if "runs" in config:
        with Path(config["runs"]).open("a") as file:
            file.write(f"{directory.name}\n")
    print("something that a library prints")
    fault = config.get("fault")
    if fault == "refuse":
        error = {"code": "model_unsupported", "message": "no such architecture", "remedy": "other"}
        print(json.dumps({"error": error}))
        sys.exit(1)
    if fault == "text":
        print(json.dumps({"error": "an error in words"}))
        sys.exit(1)
    if fault == "crash":
        print("the last words", file=sys.stderr)
        sys.exit(7)
    if fault == "nonsense":
        print('{"model": 5}')
        return
    card = {
        "model": "",
        "architecture": "llama",
        "source": "",
        "layers": [[100, 10], [100, 10]],
        "embedding_bytes": 50,
        "hidden_size": 8,
        "activation_bytes_per_token": 32,
        "context_tokens_max": 128,
        "parameters": 1000,
        "attention_heads": 2,
        "kv_heads": 1,
    }
    print(json.dumps(card))


if __name__ == "__main__":
    main()

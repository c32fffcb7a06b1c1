"""`python -m tests.chaos --minutes 10 --seed N`: three real nodes under faults, commands and chats.

Nodes are killed, frozen, restarted and cut off by a schedule that the seed gives, while commands
(each with an id of its own) and chats (one model on one node, one over two) go on. At the end
everything is read back: nothing accepted is lost or doubled, all nodes agree, nothing hangs,
nothing is left.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.chaos.field import MODEL, SPLIT_MODEL, Field
from tests.chaos.load import QUESTIONS, Load
from tests.chaos.schedule import Fault, make_schedule
from tests.chaos.verdict import (
    Settled,
    check_chats,
    check_commands,
    check_end,
    check_logs,
    check_runners,
    keep,
    read_logs,
    settle,
)
from tests.fakes.model_files import convert_embedded_model

LATEST_SECONDS = 90.0
"""For a fault that was begun to be undone."""
FAULTS_SHOWN = 40


def _models(root: Path) -> Path:
    directory = root / "models"
    directory.mkdir()
    convert_embedded_model(directory / MODEL)
    shutil.copytree(directory / MODEL, directory / SPLIT_MODEL, copy_function=os.link)
    return directory


class Run:
    """One run, from the first start to the verdict."""

    def __init__(self, seed: int, minutes: float) -> None:
        self.seed, self.minutes = seed, minutes
        self.faults: list[str] = []
        """What the cluster did wrong; empty at the end of a good run."""
        self.begin = time.monotonic()

    def say(self, text: str) -> None:
        """A line with the seconds since the start."""
        print(f"{time.monotonic() - self.begin:7.1f}  {text}", flush=True)

    def run(self) -> int:
        """0 where the cluster kept its word."""
        root = Path(tempfile.mkdtemp(prefix="exoctl-chaos-"))
        field: Field | None = None
        try:
            field = Field(root, _models(root), self.say)
            if field.no_network:
                self.say(f"no faults of the network here: {field.no_network}")
            self._run(field)
        except Exception as error:  # noqa: BLE001 - a run that breaks off has failed
            self.faults.append("broken off: " + "".join(traceback.format_exception(error)))
        finally:
            if field is not None:
                if self.faults:
                    keep(field, Path("test-artifacts") / f"chaos-{self.seed}")
                field.remove()
            shutil.rmtree(root, ignore_errors=True)
        return self._tell()

    def _run(self, field: Field) -> None:
        field.build()
        references = self._load_models(field)
        schedule = make_schedule(self.seed, 60 * self.minutes, network=field.lan is not None)
        self.say(f"{len(schedule)} faults in {self.minutes:g} minutes")
        load = Load(field, self.seed)
        load.start()
        performed = self._afflict(field, schedule)
        load.finish()
        field.heal()
        settled = settle(field, self.faults)
        check_chats(load, references, self.faults)
        check_runners(field, self.faults)
        settle(field, self.faults)
        check_end(field, self.faults)
        logs = read_logs(field)
        check_logs(logs, self.faults)
        counts = check_commands(load.asked, logs, self.faults)
        self.faults += field.trouble + load.trouble + load.hung
        self._figures(field, load, performed, counts, settled)
        terms = {entry.session for entry in logs.recovered[0].entries}
        self.say(f"log: {logs.states[0].index + 1} entries, {len(terms)} sessions")

    def _load_models(self, field: Field) -> dict[str, str]:
        one = field.nodes[0]
        for model, nodes in ((MODEL, "one"), (SPLIT_MODEL, "two,three")):
            waited = one.cli("wait", "--for", f"model={model}", "--timeout", "60")
            loaded = one.cli("load", model, "--nodes", nodes, "--timeout", "90")
            if loaded.returncode != 0:
                raise AssertionError(f"{model}: {waited.stderr} {loaded.stderr}")
        reader = Load(field, self.seed)
        references: dict[str, str] = {}
        for question in QUESTIONS:
            single, split = (reader.chat(0, model, question) for model in (MODEL, SPLIT_MODEL))
            if single.failure or single.text != split.text:
                raise AssertionError(f"before any fault: {single} {split}")
            references[question] = single.text
        return references

    def _afflict(self, field: Field, schedule: Sequence[Fault]) -> Counter[str]:
        begin = time.monotonic()
        performed: Counter[str] = Counter()
        threads: list[threading.Thread] = []
        for fault in schedule:
            time.sleep(max(0.0, begin + fault.at - time.monotonic()))
            thread = field.perform(fault)
            if thread is not None:
                threads.append(thread)
                performed[fault.kind.value] += 1
        time.sleep(max(0.0, begin + 60 * self.minutes - time.monotonic()))
        for thread in threads:
            thread.join(LATEST_SECONDS)
            if thread.is_alive():
                self.faults.append(f"{thread.name} is not undone: a node does not start")
        return performed

    def _figures(
        self,
        field: Field,
        load: Load,
        performed: Counter[str],
        counts: Counter[str],
        settled: Settled,
    ) -> None:
        self.say("faults: " + _counted(performed) + f"; {field.skipped} came upon a node not well")
        self.say(f"commands: {len(load.asked)}: " + _counted(counts))
        slow = sorted(each.seconds for each in load.asked)
        middle, late = slow[len(slow) // 2], slow[int(len(slow) * 0.99)]
        self.say(f"  answered within {middle:.2f} s (half), {late:.2f} s (99 %), {slow[-1]:.2f} s")
        whole = [chat for chat in load.chats if not chat.failure]
        failures = Counter(chat.failure.partition(":")[0] for chat in load.chats if chat.failure)
        self.say(f"chats: {len(load.chats)}: {len(whole)} whole; failed: " + _counted(failures))
        self.say(
            f"all agree at index {settled.index}, state {settled.state_hash},"
            f" {settled.seconds:.1f} s after the last fault"
        )
        self.say(f"load of the machine: {psutil.getloadavg()[0]:.1f} on {os.cpu_count()} cores")

    def _tell(self) -> int:
        for fault in self.faults[:FAULTS_SHOWN]:
            self.say(f"WRONG: {fault}")
        self.say("the cluster kept its word" if not self.faults else f"{len(self.faults)} wrong")
        print(f"the same schedule again: make chaos SEED={self.seed} MINUTES={self.minutes:g}")
        return 1 if self.faults else 0


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it started is ended then too
    return Run(chosen.seed, chosen.minutes).run()


if __name__ == "__main__":
    sys.exit(main())

"""What is asked of the cluster all the while: commands with ids of their own, and chats."""

import base64
import enum
import hashlib
import random
import threading
import time
from typing import Any

import msgspec

from tests.chaos.field import MODEL, NAMES, SPLIT_MODEL, Field
from tests.chaos.schedule import NODES
from tests.fakes.http_call import CallFailed, call, stream

COMMAND_PAUSE_SECONDS = 0.35
COMMAND_SECONDS = 8.0
"""What a node is given to answer a command."""
GRACE_SECONDS = 8.0
"""What an answer may be late on a loaded machine before it counts as hung."""
ASK_AGAIN_SECONDS = 45.0
CHAT_SECONDS = 60.0
CHAT_TOKENS = 24
QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "Write one sentence about the sea.",
)


class Outcome(enum.Enum):
    """What became of a command."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Asked(msgspec.Struct):
    """A command and what was answered."""

    id: str
    kind: str
    outcome: Outcome = Outcome.UNKNOWN
    detail: str = ""
    index: int = -1
    tries: int = 0
    seconds: float = 0.0


class Chat(msgspec.Struct):
    """A chat and how it ended."""

    model: str
    node: int
    question: str
    text: str = ""
    failure: str = ""
    """Empty where it came to its end."""
    seconds: float = 0.0


def _stranger(chance: random.Random) -> str:
    """The id of a machine that nobody has."""
    digest = hashlib.sha256(chance.randbytes(16)).digest()
    return base64.b32encode(digest).decode().rstrip("=").lower()


class Load:
    """A thread of commands and one of chats at each node, until told to end."""

    def __init__(self, field: Field, seed: int) -> None:
        self.field = field
        self.asked: list[Asked] = []
        self.chats: list[Chat] = []
        self.hung: list[str] = []
        """Requests that a node which was well did not answer within their deadline."""
        self.trouble: list[str] = []
        self._seed = seed
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin."""
        for number in range(NODES):
            for work in (self._command, self._chat):
                thread = threading.Thread(target=self._run, args=(work, number), daemon=True)
                thread.start()
                self._threads.append(thread)

    def finish(self) -> None:
        """Ask nothing more; returns when everything asked is answered or given up."""
        self._stop.set()
        for thread in self._threads:
            thread.join(ASK_AGAIN_SECONDS + 2 * CHAT_SECONDS)
            if thread.is_alive():
                self.hung.append(f"{thread.name} does not end")

    def _run(self, work: Any, number: int) -> None:
        chance = random.Random(f"{self._seed} {work.__name__} {number}")
        admitted: list[str] = []
        try:
            while not self._stop.wait(chance.uniform(0.3, 1.7) * COMMAND_PAUSE_SECONDS):
                work(number, chance, admitted)
            for stranger in admitted:
                self._ask(number, chance, {"type": "RemoveNode", "node": stranger})
        except Exception as error:  # noqa: BLE001 - told at the end
            self.trouble.append(f"{work.__name__} at {NAMES[number]}: {error!r}")

    # -- commands ----------------------------------------------------------------------------------

    def _command(self, number: int, chance: random.Random, admitted: list[str]) -> None:
        self._ask(number, chance, self._choose(chance, admitted))

    def _choose(self, chance: random.Random, admitted: list[str]) -> dict[str, object]:
        draw = chance.random()
        if draw < 0.06:
            return {"type": "StopInstance", "instance": "i-" + chance.randbytes(4).hex()}
        if draw < 0.075:
            instances = self._instances(chance)
            if instances:
                return {"type": "RestartInstance", "instance": chance.choice(instances)}
        if draw < 0.12:
            if admitted:
                return {"type": "RemoveNode", "node": admitted.pop()}
            admitted.append(_stranger(chance))
            name = "stranger-" + admitted[-1][:6]
            return {"type": "AdmitNode", "node": admitted[-1], "name": name}
        node = self.field.nodes[chance.randrange(NODES)].node
        return {"type": "CordonNode", "node": node, "cordoned": chance.random() < 0.5}

    def _instances(self, chance: random.Random) -> list[str]:
        try:
            state = self.field.state(chance.randrange(NODES), 3.0)
        except (CallFailed, KeyError, ValueError):
            return []
        return sorted(state["instances"])

    def _ask(self, number: int, chance: random.Random, command: dict[str, object]) -> Asked:
        """Ask one node, then any, always with the same id, until there is an answer."""
        asked = Asked("c-" + chance.randbytes(8).hex(), str(command["type"]))
        self.asked.append(asked)
        begin = time.monotonic()
        while time.monotonic() - begin < ASK_AGAIN_SECONDS:
            asked.tries += 1
            if self._ask_once(number, command, asked):
                break
            time.sleep(0.2)
            number = chance.randrange(NODES)
        asked.seconds = time.monotonic() - begin
        return asked

    def _ask_once(self, number: int, command: dict[str, object], asked: Asked) -> bool:
        """Whether there is an answer."""
        begin = time.monotonic()
        try:
            answer = call(
                self.field.place(number), "POST", "/v1/cluster/commands", command,
                seconds=COMMAND_SECONDS + 2 * GRACE_SECONDS, timeout=COMMAND_SECONDS, id=asked.id,
            )  # fmt: skip
        except CallFailed:
            return False
        finally:
            self._check_time(number, begin, COMMAND_SECONDS, f"command {asked.id}")
        if answer.status != 200:
            asked.detail = f"{answer.status} {answer.code}"
            return False
        item = answer.item
        if item["type"] == "Accepted":
            asked.outcome, asked.index = Outcome.ACCEPTED, item["index"]
        else:
            asked.outcome, asked.detail = Outcome.REFUSED, item["failure"]["code"]
        return True

    def _check_time(self, number: int, begin: float, seconds: float, what: str) -> None:
        """A node that was well all the while has to answer in time, whatever the others did."""
        end = time.monotonic()
        well = end - begin - self.field.afflicted_seconds(number, begin, end)
        if well > seconds + GRACE_SECONDS:
            self.hung.append(f"{what} at {NAMES[number]}: {well:.1f} s, {seconds:g} were given")

    # -- chats -------------------------------------------------------------------------------------

    def _chat(self, number: int, chance: random.Random, _: list[str]) -> None:
        self.chat(number, chance.choice((MODEL, SPLIT_MODEL)), chance.choice(QUESTIONS))
        time.sleep(1.0)

    def chat(self, number: int, model: str, question: str) -> Chat:
        """Ask and read to the end, or to the failure."""
        chat = Chat(model, number, question)
        begin = time.monotonic()
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": CHAT_TOKENS,
            "stream": True,
        }
        finished = False
        try:
            place = self.field.place(number)
            for event in stream(place, "/v1/chat/completions", body, seconds=2 * CHAT_SECONDS):
                if "error" in event:
                    chat.failure = str(event["error"]["code"])
                    break
                choice = event["choices"][0]
                chat.text += choice["delta"].get("content") or ""
                finished = finished or choice["finish_reason"] is not None
            else:
                if not finished:
                    chat.failure = "ended without a reason"
        except CallFailed as error:
            chat.failure = f"no whole answer: {error}"
        chat.seconds = time.monotonic() - begin
        self._check_time(number, begin, CHAT_SECONDS, f"chat with {model}")
        self.chats.append(chat)
        return chat

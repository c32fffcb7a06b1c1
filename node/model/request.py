"""A person's generation and the tokens that come back, free of any API dialect."""

import enum

import msgspec

from node.model.errors import Failure
from node.model.ids import InstanceId, ModelId, NodeId, RequestId


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation, as a chat template takes it."""

    role: str
    content: str = ""
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[dict[str, object], ...] = ()
    """OpenAI's shape: id, type, function{name, arguments as text}."""
    tool_call_id: str | None = None


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    """None: a fresh one for each request."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    repetition_window: int = 0
    """Tokens at the end that the repetition penalty looks at; 0: all."""


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to generate. Either `messages` (chat template) or `prompt` (raw text)."""

    id: RequestId
    model: ModelId
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    sampling: Sampling = Sampling()
    tokens_max: int = 0
    """0: to the end of the context."""
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    """None: no log probabilities at all; 0: only the chosen token's."""
    tools: tuple[dict[str, object], ...] = ()
    tool_choice: str | dict[str, object] | None = None
    instance: InstanceId | None = None
    """Only this instance; None: any ready one of the model."""
    answer_schema: str = ""
    """JSON Schema, as text, that the answer obeys; empty where it is free."""
    single_call: bool = False
    """At most one tool call, where the form of calls is enforced."""
    reasoning: str = ""
    """`none`, or an effort such as `low` that the model's template is told; empty: its own way."""
    reasoning_tokens_max: int = 0
    """Tokens of thinking after which it is ended; 0: as long as it takes."""
    continue_last: bool = False
    """The last message, the assistant's, is the beginning of the answer."""
    count_only: bool = False
    """Read the prompt, tell its length in the usage, and generate nothing."""


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token's text and log probability, and the likeliest alternatives."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class FinishReason(enum.Enum):
    """Why a generation ended well."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts and times of one generation."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    """From the start of prefill to the first token."""
    decode_seconds: float = 0.0
    reasoning_tokens: int = 0
    """Those of the output tokens that were spent on thinking, the marker of its end among them."""


class Queued(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The request waits for a place in the batch."""

    ahead: int
    wait_seconds: float = 0.0
    """Estimated from how long requests took lately; 0 where nothing is known yet."""


class Prefilled(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Progress through the prompt."""

    done: int
    total: int


class Delta(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """New output. `text`, `reasoning` and `tool_calls` are only what is new."""

    index: int
    """0, 1, 2 … within the request: a gap is a bug and is reported as one."""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[dict[str, object], ...] = ()
    tokens: tuple[int, ...] = ()
    """Ids of the tokens since the last delta; held-back text comes later than its tokens."""
    logprobs: tuple[TokenLogprob, ...] = ()


class Finished(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The last item of a generation that ended well."""

    reason: FinishReason
    usage: Usage
    stop_text: str = ""
    """The stop string that was met; empty where none was."""


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The last item of a generation that did not."""

    kind: str
    """Name of the exception class in `model.errors`."""
    failure: Failure


GenerationItem = Queued | Prefilled | Delta | Finished | Failed


class RequestPhase(enum.Enum):
    """Where a generation is."""

    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One generation as the node that took it tells the others."""

    request: RequestId
    model: ModelId
    instance: InstanceId
    taken_by: NodeId
    phase: RequestPhase
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    started_at: float = 0.0
    """Wall clock, seconds since 1970."""
    first_token_seconds: float = 0.0
    tokens_per_second: float = 0.0
    ended_at: float = 0.0
    failure: Failure | None = None
    cached_tokens: int = 0
    """Of the prompt, not read anew."""
    prefill_seconds: float = 0.0
    """From the start of reading the prompt to the first token; without the wait before it."""
    nodes: tuple[NodeId, ...] = ()
    """Where it was computed, in rank order."""
    weight_format: str = ""
    table_tokens_per_second: float = 0.0
    """What the table of chips promised for these nodes: measurements are held against it."""
    table_prompt_tokens_per_second: float = 0.0

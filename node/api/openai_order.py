"""What the OpenAI dialect takes: documented parameters, each honoured or refused by its name."""

from typing import Annotated

import msgspec
from msgspec import Meta

from node.api.faults import ParameterError
from node.api.generation import CHOICES_MAX
from node.model.request import Sampling

NAME_CHARACTERS_MAX = 200
STOPS_MAX = 16
TOP_LOGPROBS_MAX = 20
TOKENS_MAX = 2**31 - 1
TOP_K_MAX = 1_000_000

ModelName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TokenCount = Annotated[int, Meta(ge=1, le=TOKENS_MAX)]
Stop = (
    Annotated[str, Meta(min_length=1)]
    | Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=STOPS_MAX)]
    | None
)


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a streamed answer."""

    include_usage: bool = False
    include_obfuscation: bool = False


class CommonOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters that chat and plain completions share."""

    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=TOP_K_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stop = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    n: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | None = None
    user: str | None = None

    @property
    def choices(self) -> int:
        """How many answers are wanted."""
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop texts."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    def check_stream_options(self) -> None:
        """Raise where options of a stream stand without one, or ask for what there is not."""
        if self.stream_options is None:
            return
        if not self.stream:
            raise ParameterError("stream_options", "stream_options needs stream: true")
        if self.stream_options.include_obfuscation:
            raise ParameterError(
                "stream_options.include_obfuscation", "obfuscation of streams is not supported"
            )

    def sampling(self, choice: int) -> Sampling:
        """How tokens are drawn; with a seed, each further choice has the next one."""
        seed = None if self.seed is None else (self.seed + choice) % 2**63
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            min_p=self.min_p or 0.0,
            seed=seed,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            logit_bias=read_logit_bias(self.logit_bias or {}),
        )


def read_logit_bias(biases: dict[str, float]) -> dict[int, float]:
    """Biases by token id.

    Raises:
        ParameterError: a key is no token id.
    """
    read: dict[int, float] = {}
    for key, bias in biases.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise ParameterError("logit_bias", f"{key[:40]!r} is no token id")
        read[int(key)] = bias
    return read


class Refusals(msgspec.Struct, frozen=True):
    """Documented parameters that are not honoured, each with the values that change nothing."""

    harmless: dict[str, tuple[object, ...]]

    def check(self, order: msgspec.Struct) -> None:
        """Raise where a parameter asks for something that is not done.

        Raises:
            ParameterError: names the parameter.
        """
        for name, values in self.harmless.items():
            value = getattr(order, name)
            if value is not None and value not in values:
                alternatives = " or ".join(repr(each) for each in values)
                remedy = f"leave it out, or send {alternatives}" if values else "leave it out"
                raise ParameterError(name, f"{name} is not supported", remedy)

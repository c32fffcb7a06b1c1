"""A node whose model always says the same, for vendors' clients."""

from collections.abc import AsyncGenerator

from node.model.register import HeldModel, ModelFigures
from node.model.request import (
    Delta,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Prefilled,
    TokenLogprob,
    Usage,
)
from tests.fakes.fake_handle import ALPHA, FakeHandle, make_card

WORDS = ["Hel", "lo", " there", ",", " how", " are", " you", "?"]
KNOWN_FORMS = (
    ("is_tame", ['{"name": "Tom",', ' "legs": 4,', ' "is_tame": true}']),
    ("legs", ['{"legs":', " 4}"]),
)


class TalkingHandle(FakeHandle):
    """A node whose model always says the same, and minds limits, stops and log probabilities."""

    def __init__(self) -> None:
        super().__init__()
        held = HeldModel(card=make_card(), complete=True, bytes_on_disk=1)
        self.set_register(ALPHA, ModelFigures(held=(held,)))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Say `WORDS`, cut off where the request says so."""
        forms = [words for name, words in KNOWN_FORMS if name in request.answer_schema]
        words = [] if request.count_only else forms[0] if forms else WORDS
        text, said = "".join(words), 0
        ends = [text.find(stop) for stop in request.stop if stop in text]
        end = min(ends, default=len(text))
        self.script = [Prefilled(done=12, total=12)]
        for number, word in enumerate(words):
            if said >= end or (request.tokens_max and number >= request.tokens_max):
                break
            shown = word[: end - said]
            said += len(word)
            logprobs: tuple[TokenLogprob, ...] = ()
            if request.top_logprobs is not None:
                top = ((word, -0.25), ("other", -1.5))[: request.top_logprobs]
                logprobs = (TokenLogprob(token=word, logprob=-0.25, top=top),)
            self.script.append(Delta(index=number, text=shown, tokens=(number,), logprobs=logprobs))
        full = said < end and not request.count_only
        reason = FinishReason.LENGTH if full else FinishReason.STOP
        usage = Usage(prompt_tokens=12, output_tokens=len(self.script) - 1)
        met = [stop for stop in request.stop if text.startswith(stop, end)]
        stop_text = met[0] if met and not full else ""
        self.script.append(Finished(reason=reason, usage=usage, stop_text=stop_text))
        async for item in super().generate(request):
            yield item

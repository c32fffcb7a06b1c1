"""Every operation of the API."""

from node.api.faults import OPENAI_DIALECT
from node.api.model_list import OpenAiModel, OpenAiModelList, list_models, show_model
from node.api.openai_chat import ChatCompletion, complete_chat
from node.api.openai_chat_order import ChatOrder
from node.api.openai_completions import Completion, CompletionOrder, complete_text
from node.api.operation import Operation

_OPENAI = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        summary="Answer a conversation",
        handler=complete_chat,
        dialect=OPENAI_DIALECT,
        body=ChatOrder,
        answer=ChatCompletion,
    ),
    Operation(
        method="POST",
        path="/v1/completions",
        summary="Continue a text",
        handler=complete_text,
        dialect=OPENAI_DIALECT,
        body=CompletionOrder,
        answer=Completion,
    ),
    Operation(
        method="GET",
        path="/v1/models",
        summary="List the models that are loaded or on disk",
        handler=list_models,
        dialect=OPENAI_DIALECT,
        answer=OpenAiModelList,
    ),
    Operation(
        method="GET",
        path="/v1/models/{model:path}",
        summary="Show one model",
        handler=show_model,
        dialect=OPENAI_DIALECT,
        answer=OpenAiModel,
    ),
)

OPERATIONS = (*_OPENAI,)

"""Operations of the vendors' dialects, beside OpenAI's older ones."""

from node.api import ollama_models, ollama_pull
from node.api.anthropic_messages import (
    AnthropicMessage,
    TokenCounted,
    count_tokens,
    create_message,
)
from node.api.anthropic_order import CountOrder, MessagesOrder
from node.api.faults import ANTHROPIC_DIALECT, OLLAMA_DIALECT, OPENAI_DIALECT
from node.api.ollama_order import OllamaChatOrder, OllamaTextOrder
from node.api.ollama_reply import OllamaReply, chat, generate
from node.api.operation import Handler, Operation
from node.api.responses import ResponseObject, create_response
from node.api.responses_order import ResponsesOrder
from node.wire.surface import NDJSON

_OLLAMA_PREFIXES = ("", "/ollama")
"""Some clients want a host of their own for each dialect; they get a path."""
_OLLAMA: tuple[tuple[str, str, str, Handler, object, object], ...] = (
    ("POST", "/api/chat", "Answer a conversation", chat, OllamaChatOrder, OllamaReply),
    ("POST", "/api/generate", "Answer a prompt", generate, OllamaTextOrder, OllamaReply),
    (
        "POST",
        "/api/show",
        "Show a model",
        ollama_models.show,
        ollama_models.OllamaShowOrder,
        ollama_models.OllamaShown,
    ),
    (
        "POST",
        "/api/pull",
        "Fetch a model to this node",
        ollama_pull.pull,
        ollama_pull.OllamaPullOrder,
        ollama_pull.OllamaProgress,
    ),
    (
        "DELETE",
        "/api/delete",
        "Delete a model from every node",
        ollama_pull.delete,
        ollama_pull.OllamaDeleteOrder,
        None,
    ),
    (
        "GET",
        "/api/tags",
        "List the models on disk",
        ollama_models.list_tags,
        None,
        ollama_models.OllamaModels,
    ),
    (
        "GET",
        "/api/ps",
        "List the loaded models",
        ollama_models.list_loaded,
        None,
        ollama_models.OllamaProcesses,
    ),
    (
        "GET",
        "/api/version",
        "This node's version",
        ollama_models.show_version,
        None,
        ollama_models.OllamaVersion,
    ),
)
_STREAMED = (OllamaReply, ollama_pull.OllamaProgress)

DIALECT_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path="/v1/responses",
        summary="Answer an input",
        handler=create_response,
        dialect=OPENAI_DIALECT,
        body=ResponsesOrder,
        answer=ResponseObject,
    ),
    Operation(
        method="POST",
        path="/v1/messages",
        summary="Answer a conversation, as Anthropic does",
        handler=create_message,
        dialect=ANTHROPIC_DIALECT,
        body=MessagesOrder,
        answer=AnthropicMessage,
    ),
    Operation(
        method="POST",
        path="/v1/messages/count_tokens",
        summary="The length of a conversation",
        handler=count_tokens,
        dialect=ANTHROPIC_DIALECT,
        body=CountOrder,
        answer=TokenCounted,
    ),
    *(
        Operation(
            method=method,
            path=f"{prefix}{path}",
            summary=f"{summary}, as Ollama does",
            handler=handler,
            dialect=OLLAMA_DIALECT,
            body=body,
            answer=answer,
            content_type=NDJSON if answer in _STREAMED else "application/json",
        )
        for prefix in _OLLAMA_PREFIXES
        for method, path, summary, handler, body, answer in _OLLAMA
    ),
)

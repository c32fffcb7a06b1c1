"""The routes of the API, made from its operations."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from node.api.context import ApiContext
from node.api.faults import HttpError, dialect_of
from node.api.operation import Endpoint
from node.api.operations import OPERATIONS

PATH_SHOWN_MAX = 100
EMBEDDING_PATHS = ("/v1/embeddings", "/api/embed", "/api/embeddings")
"""Where clients of the vendors ask for what is not there."""


def build_application(context: ApiContext) -> Starlette:
    """The ASGI application behind the guard."""
    routes = [
        Route(operation.path, Endpoint(operation, context), methods=[operation.method])
        for operation in OPERATIONS
    ]

    async def answer_unrouted(request: Request, error: Exception) -> Response:
        path = request.scope["path"][:PATH_SHOWN_MAX]
        matching = [route for route in routes if route.matches(request.scope)[0] is Match.PARTIAL]
        methods = sorted({method for route in matching for method in route.methods or ()})
        headers: dict[str, str] = {}
        if isinstance(error, HTTPException) and error.status_code == 405:
            headers["allow"] = ", ".join(methods)
            fault = HttpError(
                405,
                "method_not_allowed",
                f"{request.method} is not possible on {path!r}",
                f"use {' or '.join(methods)}",
            )
        elif path.removeprefix("/ollama") in EMBEDDING_PATHS:
            fault = HttpError(
                404,
                "embeddings_not_served",
                "embeddings are not served: the models that mlx-lm runs generate text",
                "ask a program that is made for embeddings",
            )
        else:
            fault = HttpError(
                404, "no_such_path", f"nothing is served at {path!r}", "see /openapi.json"
            )
        body = dialect_of(path).fault(fault)
        return Response(body, fault.status, headers, media_type="application/json")

    return Starlette(routes=routes, exception_handlers={HTTPException: answer_unrouted})

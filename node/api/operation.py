"""Operations: method, path, what goes in and comes out. Routes and OpenAPI are made from them."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.types import Receive, Scope, Send

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.faults import Dialect

Handler = Callable[[ApiContext, Exchange], Awaitable[None]]


class QueryParameter(msgspec.Struct, frozen=True):
    """A query parameter, as the OpenAPI document tells of it."""

    name: str
    kind: str
    """`string`, `number`, `integer`, `boolean`."""
    summary: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the API can be asked."""

    method: str
    path: str
    summary: str
    handler: Handler
    dialect: Dialect
    body: object = None
    """Type of the JSON body; None where there is none."""
    answer: object = None
    """Type of the JSON answer, or of a page's items; None where it is no JSON."""
    page: str = ""
    """Kind of the items where the answer is a page."""
    status: int = 200
    content_type: str = "application/json"
    query: tuple[QueryParameter, ...] = ()


class Endpoint:
    """An operation as an ASGI application."""

    def __init__(self, operation: Operation, context: ApiContext) -> None:
        self._operation = operation
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = Exchange(self._context, scope, receive, send, self._operation.dialect)
        handler = self._operation.handler
        context = self._context

        async def run(exchange: Exchange) -> None:
            await handler(context, exchange)

        takes_body = self._operation.method in ("POST", "PUT", "PATCH")
        await exchange.run(run, body=takes_body or self._operation.body is not None)

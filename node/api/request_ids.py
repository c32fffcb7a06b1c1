"""Request ids: one for each HTTP request, on every answer; the same one names its generation."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from node.io.clock import random_hex
from node.model.ids import RequestId

HEADER = b"x-request-id"


def new_request_id() -> RequestId:
    """A fresh id."""
    return RequestId(f"q-{random_hex(16)}")


def ids_of_choices(first: RequestId, choices: int) -> list[RequestId]:
    """An id for each generation of a request; the first is the request's own."""
    return [first, *(new_request_id() for _ in range(choices - 1))]


class RequestIds:
    """ASGI application around another one: gives each request its id."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, with the id among the headers."""
        state = {**scope.get("state", {}), "request_id": new_request_id()}
        scope["state"] = state

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                header = (HEADER, state["request_id"].encode())
                message = {**message, "headers": [*message["headers"], header]}
            await send(message)

        await self._application(scope, receive, send_with_id)

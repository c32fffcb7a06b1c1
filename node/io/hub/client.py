"""The HTTP client that the hub's own package is given: one try, within a deadline.

Its package repeats every call five times over more than twenty seconds, in silence. Who asks here
either waits for the answer and wants to be told at once, or is a download, which keeps its own
order of tries, seen by everyone.
"""

from typing import Any

import httpx2

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0


class HubConnectionError(ConnectionError):
    """The hub did not answer; no kind of failure that the hub's package tries again."""


class OneTryClient(httpx2.Client):
    """Raises what the hub's package would wait upon."""

    def __init__(self) -> None:
        super().__init__(
            follow_redirects=True, timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        )

    def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        """Send it once.

        Raises:
            HubConnectionError: no answer came. HfHubHTTPError: the hub refuses for now.
        """
        from huggingface_hub.utils import hf_raise_for_status  # noqa: PLC0415 -- loaded by who asks

        request.extensions["timeout"] = self.timeout.as_dict()  # its package asks for none at all
        try:
            response = super().send(request, **settings)
        except httpx2.TransportError as error:
            raise HubConnectionError(str(error) or type(error).__name__) from error
        if response.is_error:
            response.read()
            hf_raise_for_status(response)
        return response

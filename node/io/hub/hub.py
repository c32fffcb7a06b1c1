"""Metadata of repositories, through the hub's own client; bytes are `transfer`'s business."""

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
import httpx2
import msgspec

from node.core import hub_trouble
from node.core.download_queue import Trouble
from node.io.hub.client import OneTryClient
from node.model.download import HubModel, Listing
from node.model.errors import ExoctlError
from node.model.ids import ModelId

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CALL_SECONDS = 30.0
SEARCH_HITS_MAX = 50
_TRUE = ("1", "true", "yes", "on")

Answer = TypeVar("Answer")


class HubError(ExoctlError):
    """The hub could not be asked, or said no."""

    http_status = 502

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.failure)
        self.trouble = trouble


class Hub:
    """Made once; its client is loaded when it is first asked."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Honours HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE; proxies as the system has them."""
        self._environment = environment
        self._api: HfApi | None = None
        self._token: str | None = None

    @property
    def offline_reason(self) -> str:
        """Why nothing may be asked; empty where it may."""
        value = self._environment.get("HF_HUB_OFFLINE", "")
        return "HF_HUB_OFFLINE is set" if value.lower() in _TRUE else ""

    @property
    def has_token(self) -> bool:
        """Whether it asks in somebody's name; known after the first call."""
        return self._token is not None

    async def listing(self, repo: ModelId, revision: str) -> Listing:
        """The files of a revision, pinned to the commit that it names now.

        Raises:
            HubError: it can't be had.
        """
        return await self._call(repo, lambda: self._list(repo, revision))

    async def search(self, text: str) -> list[HubModel]:
        """Models that match, the most used first, those in MLX form only.

        Raises:
            HubError: it can't be asked.
        """
        return await self._call(f"a search for {text!r}", lambda: self._search(text))

    async def reach(self) -> str:
        """Its address, once it has answered in whatever way.

        Raises:
            HubError: nobody answers there.
        """
        endpoint = (await anyio.to_thread.run_sync(self._client)).endpoint
        await self._call(endpoint, lambda: self._reach(endpoint))
        return endpoint

    async def file_url(self, repo: ModelId, commit: str, path: str) -> str:
        """Where the bytes of a file are."""
        from huggingface_hub import hf_hub_url  # noqa: PLC0415 -- loaded by who fetches

        api = await anyio.to_thread.run_sync(self._client)
        return hf_hub_url(repo, path, revision=commit, endpoint=api.endpoint)

    def headers(self) -> dict[str, str]:
        """What every request for bytes carries."""
        headers = {"Accept-Encoding": "identity"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    # -- in a thread -------------------------------------------------------------------------------

    def _client(self) -> "HfApi":
        if self._api is None:
            from huggingface_hub import (  # noqa: PLC0415
                HfApi,
                constants,
                get_token,
                set_client_factory,
            )

            set_client_factory(OneTryClient)
            constants.HF_HUB_DISABLE_TELEMETRY = True  # only what a person asked for is sent
            environment = self._environment
            self._token = environment.get("HF_TOKEN") or get_token() or None
            endpoint = environment.get("HF_ENDPOINT") or constants.ENDPOINT
            self._api = HfApi(
                endpoint=endpoint.rstrip("/"), token=self._token or False, library_name="exoctl"
            )
        return self._api

    def _reach(self, endpoint: str) -> None:
        from huggingface_hub import get_session  # noqa: PLC0415
        from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

        with contextlib.suppress(HfHubHTTPError):  # a refusal is an answer
            get_session().head(endpoint)

    def _list(self, repo: ModelId, revision: str) -> Listing:
        from huggingface_hub import RepoFile  # noqa: PLC0415

        api = self._client()
        commit = api.model_info(repo, revision=revision, timeout=CALL_SECONDS).sha or ""
        files: list[dict[str, object]] = []
        for entry in api.list_repo_tree(repo, revision=commit, recursive=False):
            if isinstance(entry, RepoFile):
                lfs = entry.lfs
                files.append(
                    {
                        "path": entry.path,
                        "size": entry.size,
                        "hash": (lfs.sha256 if lfs else entry.blob_id).lower(),
                        "is_sha256": lfs is not None,
                    }
                )
        # Its client passes on whatever types came: what is no listing ends here.
        told = {"repo": repo, "revision": revision, "commit": commit, "files": files}
        return msgspec.convert(told, Listing)

    def _search(self, text: str) -> list[HubModel]:
        found = self._client().list_models(
            search=text, filter="mlx", sort="downloads", limit=SEARCH_HITS_MAX
        )
        return [
            msgspec.convert(
                {
                    "model": each.id,
                    "downloads": each.downloads or 0,
                    "likes": each.likes or 0,
                    "gated": bool(each.gated),
                },
                HubModel,
            )
            for each in found
        ]

    async def _call(self, what: str, ask: Callable[[], Answer]) -> Answer:
        if self.offline_reason:
            raise HubError(hub_trouble.offline(what, self.offline_reason))
        try:
            with anyio.fail_after(2 * CALL_SECONDS):
                return await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
        except TimeoutError:
            raise HubError(
                hub_trouble.unreachable(what, f"no answer within {2 * CALL_SECONDS:.0f} s")
            ) from None
        except Exception as error:
            raise HubError(self._trouble(what, error)) from error

    def _trouble(self, what: str, error: Exception) -> Trouble:
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

        if isinstance(error, HfHubHTTPError):
            response = error.response
            return hub_trouble.of_status(
                response.status_code,
                what,
                error_code=response.headers.get("X-Error-Code", ""),
                has_token=self.has_token,
                after=retry_after_seconds(response.headers),
            )
        if isinstance(error, HFValidationError):
            return hub_trouble.trouble("bad_repo_name", f"{what}: {error}", "write `owner/name`")
        if isinstance(error, httpx2.HTTPError | OSError):
            return hub_trouble.unreachable(what, str(error) or type(error).__name__)
        return hub_trouble.trouble(
            "hub_answer",
            f"{what}: the hub's answer can't be read: {type(error).__name__}: {error}",
            "check HF_ENDPOINT: is it a hub?",
            passing=True,
            after=30.0,
        )


def retry_after_seconds(headers: Mapping[str, str]) -> float:
    """What a Retry-After in seconds says; 0 where there is none, or a date."""
    text = headers.get("Retry-After", headers.get("retry-after", ""))
    return float(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0.0

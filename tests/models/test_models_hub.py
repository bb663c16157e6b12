"""The real huggingface_hub against a real server on this machine that speaks the hub's protocol."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CONFIG = json.dumps({"model_type": "llama", "num_hidden_layers": 3, "vocab_size": 100}).encode()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"
RESOLVE = """
import json, sys
from autotune.errors import UsageError
from autotune.models import resolve_model
for name in sys.argv[1:]:
    try:
        spec = resolve_model(name, weights=True)
        answer = {"config": spec.config, "weights": spec.weights}
    except UsageError as error:
        answer = {"message": error.message, "hint": error.hint}
    print(json.dumps(answer))
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


class Hub(BaseHTTPRequestHandler):
    """One public model, one private, one gated, one without a config.json; the server is failing for one."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        repository = "/".join(self.path.split("/")[1:3])
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        status, error = {
            "acme/public": (200, ""),
            "acme/private": (200, "") if allowed else (401, "RepoNotFound"),
            "acme/gated": (403, "GatedRepo"),
            "acme/empty": (404, "EntryNotFound"),
            "acme/broken": (503, ""),
        }.get(repository, (404, "RepoNotFound"))
        body = CONFIG if status == 200 else b""
        self.send_response(status)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", '"0000"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def hub_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def resolve(names: list[str], home: Path, **environment: str) -> tuple[list[dict[str, Any]], str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, *names],
        env={**inherited, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_the_config_alone_is_fetched_and_every_refusal_has_its_reason(hub_url: str, tmp_path: Path) -> None:
    names = ["acme/public", "acme/private", "acme/gated", "acme/empty", "acme/broken", "acme/nosuch"]
    (public, private, gated, empty, broken, missing), stderr = resolve(names, tmp_path, HF_ENDPOINT=hub_url)
    assert public == {"config": json.loads(CONFIG), "weights": "acme/public"}
    assert "no model" in private["message"] and "HF_TOKEN" in private["hint"]
    assert "granted" in gated["message"] and "HF_TOKEN" in gated["hint"]
    assert "no config.json" in empty["message"]
    assert "503" in broken["message"]
    assert "no model" in missing["message"]
    assert stderr == ""


def test_a_private_model_is_seen_with_its_token(hub_url: str, tmp_path: Path) -> None:
    (private,), _ = resolve(["acme/private"], tmp_path, HF_ENDPOINT=hub_url, HF_TOKEN=TOKEN)
    assert private["weights"] == "acme/private"


def test_what_was_fetched_once_works_offline(hub_url: str, tmp_path: Path) -> None:
    resolve(["acme/public"], tmp_path, HF_ENDPOINT=hub_url)
    (public, other), _ = resolve(
        ["acme/public", "acme/other"], tmp_path, HF_ENDPOINT=hub_url, HF_HUB_OFFLINE="1"
    )
    assert public["config"] == json.loads(CONFIG)
    assert "cannot be reached" in other["message"]


def test_without_a_network_the_answer_comes_at_once(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
    started = time.monotonic()
    (answer,), stderr = resolve(["acme/public"], tmp_path, HF_ENDPOINT=nobody)
    assert "cannot be reached" in answer["message"]
    assert stderr == ""
    assert time.monotonic() - started < 10

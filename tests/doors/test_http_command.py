"""Does `pulse server` serve HTTP where it is told to, say where, and do the documents' examples work there?"""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from pulse.cli.dev.server import dev_server
from pulse.settings import Settings
from tests.doors.command_line import environment
from tests.doors.test_server_command import Cards, cards, env, refusal
from tests.doors.worker_processes import PATIENCE, Started, started

__all__ = ["cards", "env"]  # fixtures

ANYWHERE = "127.0.0.1:0"
LISTEN = ("--listen", ANYWHERE, "--http-listen", ANYWHERE)
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()


def http_of(server: Started) -> str:
    return server.expect(r"http +(https?://\S+)").group(1)


def test_it_serves_http_and_says_where(tmp_path: Path, env: dict[str, str]) -> None:
    with started(tmp_path, "server", *LISTEN, **env) as server:
        url = http_of(server)
        submitted = httpx.post(f"{url}/v1/jobs", json={"task": "mail"}, timeout=PATIENCE)
        waiting = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import httpx; print(httpx.get('{url}/v1/jobs/{submitted.json()['id']}/wait').text)",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        server.process.terminate()

        assert submitted.status_code == 201
        assert server.exit_code() == 0
        waiting.communicate(timeout=PATIENCE)
        assert "Traceback" not in server.text
        assert "rror" not in server.text


@pytest.mark.parametrize("off", [{"PULSE_HTTP_LISTEN": ""}, {"PULSE_HTTP_LISTEN": ANYWHERE}], ids=["twin", "flag"])
def test_it_can_be_turned_off(tmp_path: Path, env: dict[str, str], off: dict[str, str]) -> None:
    flag = ("--http-listen", "") if off["PULSE_HTTP_LISTEN"] else ()

    with started(tmp_path, "server", "--listen", ANYWHERE, *flag, **env, **off) as server:
        server.expect(r"http +off$")


def test_without_its_packages_it_says_what_to_install(tmp_path: Path, env: dict[str, str]) -> None:
    code = "import sys; sys.modules['fastapi'] = None; from pulse.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "server", *LISTEN],
        cwd=tmp_path,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        running = Started(process)
        try:
            running.expect(r"http +off: pip install 'pulse-postgres\[http\]'")
        finally:
            running.close()


def test_a_port_in_use_is_said(tmp_path: Path, env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(tmp_path, "--listen", ANYWHERE, "--http-listen", listen, **env)

    assert f"cannot listen on {listen} for HTTP (Address already in use)" in said


def test_strangers_are_not_let_in(tmp_path: Path, env: dict[str, str]) -> None:
    said = refusal(tmp_path, "--listen", ANYWHERE, "--http-listen", "0.0.0.0:0", **env)

    assert "listening on 0.0.0.0:0 would let everybody" in said


# --- certificates


def test_tls(tmp_path: Path, env: dict[str, str], cards: Cards) -> None:
    files = ("--tls-cert", cards.cert, "--tls-key", cards.key)
    with started(tmp_path, "server", *LISTEN, *files, **env) as server:
        url = http_of(server)

        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(cards.ca))
        assert httpx.get(f"{url}/v1/info", verify=trusting, timeout=PATIENCE).json()["version"]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url.replace('https', 'http')}/v1/info", timeout=PATIENCE)


def test_mutual_tls(tmp_path: Path, env: dict[str, str], cards: Cards) -> None:
    files = ("--tls-cert", cards.cert, "--tls-key", cards.key, "--tls-client-ca", cards.ca)
    listen = ("--listen", ANYWHERE, "--http-listen", "0.0.0.0:0")
    with started(tmp_path, "server", *listen, *files, **env) as server:
        url = http_of(server).replace("0.0.0.0", "127.0.0.1")

        known = ssl.create_default_context(cafile=str(cards.ca))
        known.load_cert_chain(cards.client_cert, cards.client_key)
        answer = httpx.get(f"{url}/v1/jobs", verify=known, headers={"host": "jobs.example"}, timeout=PATIENCE)
        assert answer.status_code == 200
        stranger = ssl.create_default_context(cafile=str(cards.ca))
        for own in ((), (cards.stranger_cert, cards.stranger_key)):
            if own:
                stranger.load_cert_chain(*own)
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{url}/v1/info", verify=stranger, timeout=PATIENCE)


# --- in development


def test_dev_serves_it_too_on_another_port_if_need_be(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = f"127.0.0.1:{taken.getsockname()[1]}"
        with dev_server(replace(settings, listen=ANYWHERE, http_listen=usual), "secret"):
            said = re.search(r"dashboard +(http://127\.0\.0\.1:\d+)/", capfd.readouterr().err)
            assert said
            assert httpx.get(f"{said[1]}/v1/info", timeout=PATIENCE).json()["version"]

    assert usual not in said[1]


def test_two_that_start_at_the_same_moment_have_a_server_each(settings: Settings) -> None:
    from dataclasses import replace

    with socket.create_server(("127.0.0.1", 0)) as free:
        usual = f"127.0.0.1:{free.getsockname()[1]}"
    both_run = threading.Barrier(2)

    def run(_: int) -> str | None:
        with dev_server(replace(settings, listen=usual, http_listen=""), "secret") as url:
            both_run.wait(PATIENCE)
            return url

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(run, range(2))

    assert one != other


# --- the examples


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_documents_examples_work(tmp_path: Path, env: dict[str, str]) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = [part.strip() for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    commands = [command for command in commands if "…" not in command]  # where a value of the reader's own stands

    with started(tmp_path, "server", *LISTEN, **env) as server:
        address = http_of(server).partition("://")[2]
        for command in commands:
            here = command.replace("localhost:8700", address)
            answer = subprocess.check_output(["bash", "-c", here], text=True, timeout=PATIENCE)
            assert "error" not in json.loads(answer) or json.loads(answer)["error"] is None, (command, answer)

    assert len(commands) >= 7

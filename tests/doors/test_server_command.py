"""Does `pulse server` come up, serve and go as a service should, and refuse in a sentence what must not be served?"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
import pytest

from pulse.cli.server.process import ServerOptions, ServerProcess, open_in_browser
from pulse.links.opening import open_link
from pulse.model.errors import InvalidSettings
from pulse.model.jobs import NewJob, Submitted
from pulse.server import Server, check_exposure
from pulse.settings import Settings
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc
from tests.doors.command_line import call, environment
from tests.doors.worker_processes import PATIENCE, Started, run_in, started

ANYWHERE = "127.0.0.1:0"


@pytest.fixture
def env(settings: Settings) -> dict[str, str]:
    return {"PULSE_DATABASE_URL": str(settings.database_url)}


@contextmanager
def channel(url: str, credentials: grpc.ChannelCredentials | None = None) -> Iterator[grpc.Channel]:
    target = url.partition("://")[2]
    # Certificates made here are for localhost, wherever that is.
    options = [("grpc.ssl_target_name_override", "localhost")] if credentials else []
    made = grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target)
    with made as channel:
        yield channel


def ask(url: str, credentials: grpc.ChannelCredentials | None = None) -> pb.ServerInfo:
    with channel(url, credentials) as found:
        stub: Any = pb_grpc.InfoStub(found)
        info: pb.ServerInfo = stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=20)
        return info


def address_of(server: Started) -> str:
    return server.expect(r"address +(grpcs?://\S+)").group(1)


def test_it_explains_itself() -> None:
    result = call("server", "--help")

    assert result.exit_code == 0
    assert "PULSE_SERVER_URL" in result.output


# --- up and down


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, env: dict[str, str], number: int) -> None:
    with started(tmp_path, "server", "--listen", ANYWHERE, "--health-port", 0, **env) as server:
        url = address_of(server)
        server.expect("schema +pulse, version")
        health = server.expect(r"(http://\S+/readyz)").group(1)
        assert ask(url).batch_limit == 10_000
        assert json.loads(urllib.request.urlopen(health, timeout=PATIENCE).read()) == {"status": "ok"}
        metrics = urllib.request.urlopen(health.replace("readyz", "metrics"), timeout=PATIENCE).read()
        assert b'pulse_duty_age_seconds{duty="dispatch"}' in metrics

        server.process.send_signal(number)

        assert server.exit_code() == 0
        assert "stopping" in server.text
        assert "Traceback" not in server.text


def test_it_opens_its_dashboard_when_asked(tmp_path: Path, env: dict[str, str]) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\nimport sys\nprint('opened', sys.argv[1], flush=True)\n")
    browser.chmod(0o755)
    env |= {"BROWSER": str(browser), "PULSE_HTTP_LISTEN": ANYWHERE}

    with started(tmp_path, "server", "--listen", ANYWHERE, "--open", **env) as server:
        url = server.expect(r"http +(http://\S+)").group(1)

        assert server.expect(r"opened (\S+)").group(1) == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:8700", "no browser was found to open the dashboard: open http://127.0.0.1:8700 yourself"),
        ("off", "there is no dashboard to open: HTTP is off"),
    ],
)
def test_what_keeps_the_dashboard_from_opening_is_said(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: False)

    open_in_browser(url)

    assert caplog.messages == [says]


def test_jobs_go_in_and_come_out(tmp_path: Path, env: dict[str, str]) -> None:
    with started(tmp_path, "server", "--listen", ANYWHERE, **env) as server, channel(address_of(server)) as found:
        jobs: Any = pb_grpc.JobsStub(found)
        [submitted] = jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail")])).jobs

        assert jobs.GetJob(pb.GetJobRequest(id=submitted.id)).status == pb.PENDING
        listed = run_in(tmp_path, "jobs", "list", **env)

    assert submitted.id in listed.stdout


def test_a_wait_is_let_go_when_the_server_stops(tmp_path: Path, env: dict[str, str]) -> None:
    with started(tmp_path, "server", "--listen", ANYWHERE, **env) as server, channel(address_of(server)) as found:
        jobs: Any = pb_grpc.JobsStub(found)
        [submitted] = jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail")])).jobs
        waiting = jobs.WaitJob.future(pb.WaitJobRequest(id=submitted.id))
        jobs.GetJob(pb.GetJobRequest(id=submitted.id))  # so the one before it has arrived

        server.process.terminate()

        assert waiting.result(timeout=10).status == pb.PENDING
        assert server.exit_code() == 0


class Stuck:
    """A server whose callers do not let go."""

    async def drain(self) -> None:
        await asyncio.Event().wait()


async def test_a_second_signal_does_not_wait_for_anybody(settings: Settings) -> None:
    process = ServerProcess(ServerOptions(settings=settings), migrates=False)
    draining = asyncio.create_task(process._drain(cast("Server", Stuck())))

    process._on_signal(signal.SIGTERM)
    await asyncio.sleep(0.05)
    assert not draining.done()
    process._on_signal(signal.SIGTERM)

    await asyncio.wait_for(draining, 5)


def test_as_pulsed_and_for_programs(tmp_path: Path, env: dict[str, str]) -> None:
    code = "from pulse.cli.server.command import main; main()"
    command = [sys.executable, "-c", code, "--listen", ANYWHERE, "--json", "--log-format", "json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        document = ""
        for line in process.stdout:
            document += line
            if line.startswith("}"):
                break
        process.terminate()
        _, logged = process.communicate(timeout=PATIENCE)

    facts = json.loads(document)
    assert (facts["schema"], facts["tokens"], facts["tls"]) == ("pulse", "off", "off")
    assert facts["pid"] == process.pid
    assert process.returncode == 0
    assert all(json.loads(line)["level"] == "INFO" for line in logged.splitlines())


def test_pulsed_knows_its_version(tmp_path: Path) -> None:
    said = subprocess.check_output(
        [sys.executable, "-c", "from pulse.cli.server.command import main; main()", "--version"],
        cwd=tmp_path,
        text=True,
    )

    assert said.startswith("pulse ")


@pytest.mark.slow
def test_without_a_database_it_has_one_of_its_own(tmp_path: Path) -> None:
    with started(tmp_path, "server", "--listen", ANYWHERE) as server:
        server.expect("applied migration 0001_jobs")
        assert ask(address_of(server)).version

        server.process.terminate()

        assert server.exit_code() == 0
    assert run_in(tmp_path, "db", "dsn").returncode == 3  # it took its Postgres with it


# --- what is refused


def refusal(folder: Path, *args: object, **env: str) -> str:
    result = run_in(folder, "server", *args, **env)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    return last


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_strangers_are_not_let_in(tmp_path: Path, env: dict[str, str], listen: str) -> None:
    said = refusal(tmp_path, "--listen", listen, **env)

    assert f"listening on {listen} would let everybody" in said
    assert "PULSE_TLS_CLIENT_CA" in said
    assert "127.0.0.1" in said


def test_what_makes_callers_show_themselves_opens_the_door() -> None:
    exposed = Settings(listen="0.0.0.0:8701")
    with pytest.raises(InvalidSettings):
        check_exposure(exposed, has_tokens=False)
    with pytest.raises(InvalidSettings):  # TLS alone says who we are, not who they are
        check_exposure(Settings(listen="0.0.0.0:1", tls_cert=Path("c"), tls_key=Path("k")), has_tokens=False)

    check_exposure(exposed, has_tokens=True)
    check_exposure(Settings(listen="0.0.0.0:8701", tls_client_ca=Path("ca")), has_tokens=False)
    check_exposure(Settings(listen="[::1]:8701"), has_tokens=False)


def test_a_port_in_use_is_said(tmp_path: Path, env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(tmp_path, "--listen", listen, **env)

    assert f"cannot listen on {listen} (Address already in use)" in said


def test_two_ports_in_use_are_said_in_one_refusal(tmp_path: Path, env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as grpc_port, socket.create_server(("127.0.0.1", 0)) as http_port:
        listen, http_listen = (f"127.0.0.1:{taken.getsockname()[1]}" for taken in (grpc_port, http_port))
        said = refusal(tmp_path, "--listen", listen, "--http-listen", http_listen, **env)

    assert f"cannot listen on {listen} (Address already in use): choose another with --listen or" in said
    assert (
        f"cannot listen on {http_listen} for HTTP (Address already in use): choose another with --http-listen or"
        in said
    )


def test_two_servers_do_not_share_a_port(tmp_path: Path, env: dict[str, str]) -> None:
    with started(tmp_path, "server", "--listen", ANYWHERE, **env) as server:
        taken = address_of(server).partition("://")[2]

        assert "Address already in use" in refusal(tmp_path, "--listen", taken, **env)


@pytest.mark.parametrize("listen", ["nonsense:port", "8701", "grpc://127.0.0.1:1"])
def test_an_address_that_cannot_be_read(tmp_path: Path, env: dict[str, str], listen: str) -> None:
    assert "listen must be host:port" in refusal(tmp_path, "--listen", listen, **env)


def test_a_host_that_is_not_this_machine(tmp_path: Path, env: dict[str, str], cards: Cards) -> None:
    files = ("--tls-cert", cards.cert, "--tls-key", cards.key, "--tls-client-ca", cards.ca)

    assert "cannot listen on 192.0.2.1:8701" in refusal(tmp_path, "--listen", "192.0.2.1:8701", *files, **env)


def test_without_grpc_it_says_what_to_install(tmp_path: Path, env: dict[str, str]) -> None:
    code = "import sys; sys.modules['grpc'] = None; from pulse.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, "server"],
        cwd=tmp_path,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert "pip install 'pulse-postgres[grpc]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_schema_of_yours_is_not_migrated(tmp_path: Path, env: dict[str, str]) -> None:
    result = run_in(tmp_path, "server", "--listen", ANYWHERE, PULSE_SCHEMA="not_there", **env)

    assert result.returncode == 5
    assert "run `pulse migrate`" in result.stderr


def test_a_database_that_stays_away(tmp_path: Path) -> None:
    away = "postgresql://me:secret@127.0.0.1:1/pulse"
    result = run_in(tmp_path, "server", PULSE_DATABASE_URL=away, PULSE_PATIENCE="300ms")

    assert result.returncode == 5
    assert "Trying for 300ms" in result.stderr
    assert "secret" not in result.stderr


# --- certificates


class Cards(NamedTuple):
    """Who is who: an authority, a server, a client, and somebody whom another authority vouches for."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path
    stranger_cert: Path
    stranger_key: Path


@pytest.fixture(scope="session")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Cards:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("cards")
    for authority in ("ca", "other"):
        _openssl(folder, f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={authority} "
                 f"-keyout {authority}.key -out {authority}.pem")  # fmt: skip
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl(folder, f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
        _openssl(folder, f"x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial "
                 f"-days 2 -extfile names -out {name}.pem")  # fmt: skip
    files = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key", "stranger.pem", "stranger.key")
    return Cards(*(folder / file for file in files))


def _openssl(folder: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)


def show(cards: Cards, *own: Path) -> grpc.ChannelCredentials:
    """What a client shows and believes."""
    cert, key = [file.read_bytes() for file in own] if own else (None, None)
    return grpc.ssl_channel_credentials(cards.ca.read_bytes(), key, cert)


async def submit_through(url: str, cards: Cards) -> Submitted:
    """As the SDK does it, by settings alone."""
    settings = Settings(server_url=url, tls_ca=cards.ca, tls_cert=cards.client_cert, tls_key=cards.client_key)
    async with open_link(settings) as link:
        submitted: list[Submitted] = await link.submit([NewJob(task="mail")])
    return submitted[0]


def test_tls(tmp_path: Path, env: dict[str, str], cards: Cards) -> None:
    files = ("--tls-cert", cards.cert, "--tls-key", cards.key)
    with started(tmp_path, "server", "--listen", ANYWHERE, *files, **env) as server:
        url = address_of(server)

        assert url.startswith("grpcs://")
        assert ask(url, show(cards)).version
        with pytest.raises(grpc.RpcError):
            ask(url)


def test_mutual_tls(tmp_path: Path, env: dict[str, str], cards: Cards) -> None:
    files = ("--tls-cert", cards.cert, "--tls-key", cards.key, "--tls-client-ca", cards.ca)
    with started(tmp_path, "server", "--listen", "0.0.0.0:0", *files, **env) as server:
        url = address_of(server).replace("0.0.0.0", "127.0.0.1")

        assert ask(url, show(cards, cards.client_cert, cards.client_key)).version
        assert asyncio.run(submit_through(url, cards)).created
        for credentials in (show(cards), show(cards, cards.stranger_cert, cards.stranger_key)):
            with pytest.raises(grpc.RpcError) as refused:
                ask(url, credentials)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_certificates_that_cannot_be_used(tmp_path: Path, env: dict[str, str], cards: Cards) -> None:
    (garbage := tmp_path / "garbage.pem").write_text("not a certificate")
    locked = tmp_path / "locked.key"
    _openssl(tmp_path, f"rsa -aes128 -passout pass:secret -in {cards.key} -out {locked}")
    cases = [
        ((cards.cert, None, None), "set both PULSE_TLS_CERT and PULSE_TLS_KEY"),
        ((None, None, cards.ca), "set both PULSE_TLS_CERT and PULSE_TLS_KEY"),
        ((cards.cert, tmp_path / "nowhere.key", None), "nowhere.key cannot be read: No such file"),
        ((garbage, cards.key, None), "must be a certificate and its key"),
        ((cards.cert, cards.client_key, None), "must be a certificate and its key"),
        ((cards.cert, locked, None), "must be a certificate and its key"),
        ((cards.cert, cards.key, garbage), "must hold a certificate"),
    ]
    for files, said in cases:
        flags = [
            part
            for flag, file in zip(("--tls-cert", "--tls-key", "--tls-client-ca"), files, strict=True)
            if file
            for part in (flag, file)
        ]
        assert re.search(said, refusal(tmp_path, "--listen", ANYWHERE, *flags, **env)), files

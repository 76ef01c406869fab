"""What does a worker print when it starts?"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from pulse.cli.output import print_text, show_json
from pulse.store.connections.redacted_url import embedded_place

if TYPE_CHECKING:
    from pulse.cli.worker.worker_options import WorkerOptions
    from pulse.sdk.app import Pulse
    from pulse.sdk.task import Task
    from pulse.sdk.worker.worker import Worker
    from pulse.settings import Settings

log = logging.getLogger("pulse.worker")


def print_banner(options: WorkerOptions, app: Pulse, worker: Worker, *, health_port: int | None) -> None:
    """Print what runs on stderr, and with --json as a document on stdout; if logs are JSON, log it as a line."""
    facts = collect_facts(options, app, worker, health_port)
    if options.as_json:
        show_json(facts)
    if options.log_format == "json":
        log.info("worker starts: %s", ", ".join(f"{name} {_format_fact(value)}" for name, value in facts.items()))
        return
    head = f"Pulse worker for {options.app}, pid {os.getpid()}"
    if options.is_again:
        print_text(f"{head}, topics {_format_fact(facts['topics'])}", to_stderr=True)
        return
    if "database" in facts:
        facts["database"] = name_database(worker.settings)
    lines = [f"  {name:<9} {_format_fact(value)}" for name, value in facts.items() if name not in ("app", "pid")]
    print_text("\n".join([head, *lines]), to_stderr=True)


def collect_facts(options: WorkerOptions, app: Pulse, worker: Worker, health_port: int | None) -> dict[str, Any]:
    settings = worker.settings
    facts: dict[str, Any] = {
        "app": options.app,
        "pid": os.getpid(),
        "topics": worker.topics,
        "slots": {
            "async": settings.concurrency,
            "threads": settings.threads,
            "processes": settings.processes or os.cpu_count() or 1,
        },
    }
    if settings.server_url and not options.is_dev:
        facts["server"] = settings.server_url
    else:
        facts |= {"database": without_password(str(settings.database_url)), "schema": settings.schema}
    if health_port is not None:
        host = options.health_host
        facts["health"] = f"http://{f'[{host}]' if ':' in host else host}:{health_port}/readyz"
    if options.is_dev and (line := enqueue_line(app)):
        facts["enqueue"] = _as_environment(options.overrides) + line
    return facts


def _format_fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _as_environment(flags: dict[str, Any]) -> str:
    """Return the flags as variables, for a command in another terminal."""
    shown = {"database_url": "…"}  # it may hold a password
    names = [name for name in ("database_url", "schema", "state_dir") if name in flags]
    return "".join(f"PULSE_{name.upper()}={shown.get(name) or shlex.quote(str(flags[name]))} " for name in names)


def name_database(settings: Settings) -> str:
    """Return the database as it is shown to people: its URL without a password, or that it is the embedded one."""
    embedded = embedded_place(settings.database_url, settings.state_dir)
    return f"{embedded} (`pulse db dsn`)" if embedded else without_password(str(settings.database_url))


def without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # connecting to it will raise an error
        return "an address that cannot be read"
    credentials, at, host = parts.netloc.rpartition("@")
    user = credentials.partition(":")[0]
    query = [(name, value) for name, value in parse_qsl(parts.query) if name != "password"]
    return parts._replace(netloc=f"{user}{at}{host}", query=urlencode(query, safe="/")).geturl()


def enqueue_line(app: Pulse) -> str | None:
    """Return a command that enqueues one of the app's tasks from another terminal."""
    task = next((task for task in app.tasks.values() if _is_importable(task)), None)
    if task is None:
        return None
    name, module = task.__name__, task.function.__module__
    arguments = ", ".join(f"{name}=..." for name in task.arguments.required)
    return f'{interpreter()} -c "from {module} import {name}; {name}.enqueue({arguments})"'


def _is_importable(task: Task[..., Any, Any]) -> bool:
    return getattr(sys.modules.get(task.function.__module__), task.__name__, None) is task


def interpreter() -> str:
    """Return how this Python is called from this folder."""
    found = shutil.which("python")
    if found and Path(found).parent == Path(sys.executable).parent:
        return "python"
    path = os.path.relpath(sys.executable)
    return shlex.quote(sys.executable if path.startswith("..") else path)

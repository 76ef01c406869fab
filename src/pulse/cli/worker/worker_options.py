"""Which options does a worker process have? A reloading worker passes them on to its child process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    app: str
    overrides: dict[str, Any] = field(default_factory=dict)  # settings from flags, which win over those of the code
    topics: tuple[str, ...] = ()
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    log_level: str | None = None
    log_format: str | None = None
    as_json: bool = False
    is_child: bool = False  # of a process that watches the files and passes signals on
    is_again: bool = False  # restarted, so its banner is short
    is_dev: bool = False  # run by `pulse dev`: migrates the schema, and prints how to enqueue
    dev_url: str | None = None  # the database of `pulse dev`, unless the application has another
    dev_server: str | None = None  # the server of `pulse dev`, unless the application has a server or database
    dev_token: str | None = field(default=None, repr=False)  # admitted by that server, whatever tokens there are

"""What did the command line ask of a worker? Written down, so that another process can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    app: str
    overrides: dict[str, Any] = field(default_factory=dict)  # settings given as flags, which win over the code's
    topics: tuple[str, ...] = ()
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    log_level: str | None = None
    log_format: str | None = None
    as_json: bool = False
    is_child: bool = False  # of a process that watches the files, and passes signals on
    is_again: bool = False  # in the place of one that has introduced itself
    is_dev: bool = False  # makes the schema, and says how to enqueue
    dev_url: str | None = None  # the database of `pulse dev`, where nobody named another
    dev_server: str | None = None  # its server, for those who did not
    dev_token: str | None = field(default=None, repr=False)  # that server lets in, whatever tokens there are

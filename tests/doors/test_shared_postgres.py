"""When a command has started the Postgres that others use, who waits for whom, and for how long?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pulse.cli import session
from pulse.cli.database import commands_lock
from pulse.cli.database.commands_lock import hold_commands_lock
from pulse.cli.output import print_text
from pulse.cli.session import Session


def test_others_are_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands_lock, "PATIENCE", 0.3)
    monkeypatch.setattr(commands_lock, "NOTICE_AFTER", 0.1)

    with hold_commands_lock(tmp_path) as ours, hold_commands_lock(tmp_path):
        began = time.monotonic()
        ours.wait_for_others()

    assert 0.3 <= time.monotonic() - began < 5
    assert "for other commands that use this Postgres" in capsys.readouterr().err


def test_the_answer_is_there_before_anybody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def reach(*_: object) -> Iterator[None]:
        yield
        print_text("waiting")

    async def nothing(_: object) -> None: ...

    @click.command()
    def command() -> None:
        answer: Any = Session().run_with_engine(nothing)
        print_text(answer)

    monkeypatch.setattr(Session, "reachable_settings", reach)
    monkeypatch.setattr(session, "run_with_engine", lambda *_: "answer")

    assert CliRunner().invoke(command).output == "answer\nwaiting\n"

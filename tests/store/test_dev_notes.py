"""Do programs in a folder believe what `pulse dev` says there, and only while it runs?"""

from __future__ import annotations

from pathlib import Path

from pulse.settings import Settings
from pulse.store.embedded.dev_notes import NAME, leave_notes, with_notes

NOTES = {"alarm_target": "http://127.0.0.1:41234", "alarm_networks": "127.0.0.0/8"}


def test_what_dev_says_is_taken_where_nothing_else_was_said(tmp_path: Path) -> None:
    silent, own = Settings(state_dir=tmp_path), Settings(state_dir=tmp_path, alarm_target="https://mine.example")

    with leave_notes(tmp_path, **NOTES):
        found = with_notes(silent)
        assert (found.alarm_target, found.alarm_networks) == ("http://127.0.0.1:41234", "127.0.0.0/8")
        assert with_notes(own).alarm_target == "https://mine.example"
        with leave_notes(tmp_path, alarm_target="http://127.0.0.1:1"):
            assert with_notes(silent) == found  # the first one's
        assert with_notes(silent) == found

    assert with_notes(silent) is silent
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_dev_has_left_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"alarm_target": "http://127.0.0.1:41234"}')

    assert with_notes(Settings(state_dir=tmp_path)).alarm_target is None

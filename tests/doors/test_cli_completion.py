"""Do shells complete what is typed after `pulse`?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doors.command_line import call, call_json, environment

PULSE = "import sys; sys.argv[0] = 'pulse'; from pulse.cli.main import main; main()"


def completed(typed: str) -> set[str]:
    """As the script for bash asks."""
    words = typed.split(" ")
    env = environment(_PULSE_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1))
    answer = subprocess.run([sys.executable, "-c", PULSE], env=env, capture_output=True, text=True, check=True)
    return {line.partition(",")[2] for line in answer.stdout.splitlines()}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("pulse jo", {"jobs"}),
        ("pulse jobs re", {"replay"}),
        ("pulse jobs list --st", {"--state-dir", "--status"}),
        ("pulse jobs list --status dea", {"dead_lettered"}),
        ("pulse completion z", {"zsh"}),
    ],
)
def test_what_is_typed_is_completed(typed: str, expected: set[str]) -> None:
    assert completed(typed) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_takes_the_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = call("completion", shell).stdout

    read = subprocess.run([shell, "-n", "/dev/stdin"], input=script, capture_output=True, text=True, check=False)

    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete -o"), ("zsh", "#compdef pulse"), ("fish", "complete ")])
def test_there_is_a_script_for_each(shell: str, word: str) -> None:
    script = call_json("completion", shell)["script"]

    assert word in script
    assert "_PULSE_COMPLETE" in script


def test_bash_completes_with_it(tmp_path: Path) -> None:
    """The script itself, with a `pulse` of our own on the path."""
    pulse = tmp_path / "pulse"
    pulse.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PULSE}" "$@"\n')
    pulse.chmod(0o755)
    program = f"""
        PATH="{tmp_path}:$PATH"
        {call("completion", "bash").stdout}
        COMP_WORDS=(pulse jo) COMP_CWORD=1
        _pulse_completion pulse
        echo "${{COMPREPLY[@]}}"
    """
    shown = subprocess.run(["bash", "-c", program], env=environment(), capture_output=True, text=True, check=True)

    assert shown.stdout == "jobs\n"


def test_a_shell_that_is_not_known_is_refused() -> None:
    result = call("completion", "tcsh")

    assert result.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in result.output

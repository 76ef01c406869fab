"""Is every YAML file of deploy/ read without a complaint?"""

from __future__ import annotations

from tests.deploy.programs import DEPLOY, needs, run_program


@needs("yamllint", "yamllint of PyPI or Debian")
def test_yamllint_finds_nothing() -> None:
    assert run_program("yamllint", "--strict", "--config-file", DEPLOY / ".yamllint", DEPLOY) == ""

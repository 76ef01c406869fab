"""How does pytest come by the fixtures? It finds this module by the entry point of the package.

It is loaded in every run of everybody who has Pulse installed, so it imports nothing before a test asks for something.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.testing.fixture import PulseFixture
    from pulse.testing.stage import Stage


@pytest.fixture(scope="session")
def pulse_stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The database of this test process, made when first needed."""
    from pulse.model.errors import PulseError
    from pulse.testing.server import open_database
    from pulse.testing.stage import Stage

    xdist = getattr(request.config, "workerinput", {})  # of a run in several processes, which one this is
    problem = ""
    with ExitStack() as stack:
        try:
            settings = stack.enter_context(open_database(xdist.get("testrunuid"), xdist.get("workerid", "main")))
        except PulseError as error:
            problem = str(error)
        if problem:
            pytest.fail(f"the pulse fixture has no database: {problem}", pytrace=False)
        yield stack.enter_context(closing(Stage(settings)))


@pytest.fixture(scope="session")
def pulse_database_url(pulse_stage: Stage) -> str:
    """Where the jobs of all tests are, for session-wide fixtures that keep the application's own tables there."""
    return str(pulse_stage.settings.database_url)


@pytest.fixture
def pulse(pulse_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[PulseFixture]:
    """Points every Pulse app at an empty database of the tests', and asks and runs what they enqueue there."""
    from pulse.testing.fixture import PulseFixture

    with monkeypatch.context() as patch:
        pulse_stage.prepare(patch)
        yield PulseFixture(pulse_stage)

"""Which pytest fixtures are there? pytest finds this module by the entry point of the package.

Every pytest run on a machine with Pulse loads this module, so it imports nothing else before a test uses a fixture.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.testing.database_session import DatabaseSession
    from pulse.testing.fixture import PulseFixture


@pytest.fixture(scope="session")
def pulse_database_session(request: pytest.FixtureRequest) -> Iterator[DatabaseSession]:
    """The database of this test process, created when it is first needed."""
    from pulse.model.errors import PulseError
    from pulse.testing.database_session import DatabaseSession
    from pulse.testing.server import open_database

    xdist = getattr(request.config, "workerinput", {})  # identifies this process in a run with several
    problem = ""
    with ExitStack() as stack:
        try:
            settings = stack.enter_context(open_database(xdist.get("testrunuid"), xdist.get("workerid", "main")))
        except PulseError as error:
            problem = str(error)
        if problem:
            pytest.fail(f"the pulse fixture has no database: {problem}", pytrace=False)
        yield stack.enter_context(closing(DatabaseSession(settings)))


@pytest.fixture(scope="session")
def pulse_database_url(pulse_database_session: DatabaseSession) -> str:
    """The URL of the tests' database, for session fixtures that keep the application's own tables there."""
    return str(pulse_database_session.settings.database_url)


@pytest.fixture
def pulse(pulse_database_session: DatabaseSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[PulseFixture]:
    """Connects every Pulse app to an empty test database, and inspects and runs the jobs enqueued there."""
    from pulse.testing.fixture import PulseFixture

    with monkeypatch.context() as patch:
        pulse_database_session.prepare(patch)
        yield PulseFixture(pulse_database_session)

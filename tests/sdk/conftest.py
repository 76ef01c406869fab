"""One suite, two links: whatever the SDK promises holds straight to Postgres and through servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pulse.settings import Settings
from tests.sdk import apps_here
from tests.sdk.apps_here import BRISK
from tests.served import Served


@pytest.fixture(params=["direct", "server"])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Settings]:
    settings = replace(settings, alarm_networks="127.0.0.0/8")
    if request.param == "direct":
        yield settings
        return
    apps_here.served = Served(settings)
    try:
        yield apps_here.served.start(**BRISK)
    finally:
        apps_here.served.stop()
        apps_here.served = None

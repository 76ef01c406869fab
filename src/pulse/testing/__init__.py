"""What do tests of an application need? A fixture, `pulse`, which pytest finds by itself; these are its types."""

from pulse.testing.fixture import PulseFixture
from pulse.testing.summary import DrainFailed, Summary

__all__ = ["DrainFailed", "PulseFixture", "Summary"]

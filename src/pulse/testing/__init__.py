"""Holds the types of `pulse`, the pytest fixture with which applications test their tasks."""

from pulse.testing.fixture import PulseFixture
from pulse.testing.summary import DrainFailed, Summary

__all__ = ["DrainFailed", "PulseFixture", "Summary"]

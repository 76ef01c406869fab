"""Every error Pulse raises on purpose: `from pulse.errors import JobFailed`. pulse.model.errors draws the tree."""

from pulse.model.errors import *  # noqa: F403

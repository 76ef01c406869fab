"""Only the app: its tasks are in split_tasks.py, as in most programs."""

from pulse import Pulse

app = Pulse()

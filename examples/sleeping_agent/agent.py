"""An agent that watches something slow, and sleeps between two looks.

It has no loop of its own and no process that waits: each turn ends by setting an alarm whose payload holds all the
next turn needs. At that time Pulse sends the payload back, as a signed wake, to the endpoint below, which hands it to a
worker. Kill any of them in between, and the agent still wakes up.

    a turn:  observe → think → act, which is either to be done or to sleep
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypedDict

from pulse import Pulse
from pulse.errors import InvalidSignature
from pulse.webhooks import verify

app = Pulse()

PORT = int(os.environ.get("AGENT_PORT", "8080"))
DIARY = Path("diary.txt")
OWNER = os.environ.get(
    "PULSE_ALARM_OWNER", "local"
)  # whose alarms these are: those of everybody else wake somebody else


class Memory(TypedDict):
    """All that the agent knows from one turn to the next."""

    goal: str
    turn: int
    seen: list[int]


# --- the agent


def observe(memory: Memory) -> int:
    """Look at the world: here, water on a stove, which is warmer at each look."""
    return 20 + 30 * memory["turn"]


def think(memory: Memory) -> tuple[str, float]:
    """What to do next, and in how many seconds. This is where you would ask a model."""
    if memory["seen"][-1] >= 100:
        return "done", 0
    is_near = memory["seen"][-1] >= 70
    return "sleep", 0.5 if is_near else 1.0


@app.task(timeout="1m")
def take_turn(memory: Memory) -> str:
    memory["turn"] += 1
    memory["seen"].append(observe(memory))
    what, seconds = think(memory)
    write(f"turn {memory['turn']}: {memory['seen'][-1]} °C, so {what}")
    if what == "sleep":
        sleep(memory, seconds)
    return what


def sleep(memory: Memory, seconds: float) -> None:
    """Named after its goal, so that a turn which is run again replaces its alarm and sets no second."""
    app.alarms.set(
        f"agent:{memory['goal']}",
        delay=seconds,
        url=f"http://127.0.0.1:{PORT}/wake",
        payload=memory,
        label=f"look after turn {memory['turn']}",
    )


def write(line: str) -> None:
    with DIARY.open("a") as diary:
        diary.write(f"{line}\n")
    print(line, flush=True)


# --- its bell


class Bell(BaseHTTPRequestHandler):
    """Checks who rings, hands the turn to a worker, and answers at once: a wake has only seconds."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            wake = verify(body, dict(self.headers), os.environ["WAKE_SECRET"], owner=OWNER)
        except InvalidSignature as error:
            self.answer(401, str(error))
            return
        # A wake may come twice, if our answer to the first was lost. Its id is the same, and so is the job's key.
        take_turn.using(unique_key=wake.id, unique_window="1d").enqueue(wake.payload)
        self.answer(202, "up")

    def answer(self, status: int, text: str) -> None:
        body = json.dumps({"agent": text}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Its diary says enough."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", PORT), Bell) as bell:
        take_turn.enqueue({"goal": "tea", "turn": 0, "seen": []})
        print(f"the bell is at http://127.0.0.1:{PORT}/wake", flush=True)
        bell.serve_forever()

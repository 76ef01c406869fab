"""An agent that watches something slow, and sleeps between its turns.

It has no loop of its own and no process that waits. Each turn ends by setting an alarm whose payload holds everything
that the next turn needs. When the alarm fires, Pulse sends the payload as a signed wake to the endpoint below, which
submits the next turn as a job. If any of these processes is killed meanwhile, the agent still wakes up.

    a turn:  observe → think → either stop, or sleep until the next turn
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
OWNER = os.environ.get("PULSE_ALARM_OWNER", "local")  # wakes of other owners are refused


class Memory(TypedDict):
    """All that the agent knows from one turn to the next."""

    goal: str
    turn: int
    seen: list[int]


# --- the agent


def observe(memory: Memory) -> int:
    """Observe the world: here, the temperature of water on a stove, which rises with each turn."""
    return 20 + 30 * memory["turn"]


def think(memory: Memory) -> tuple[str, float]:
    """Return what to do next, and in how many seconds. This is where you would call a model."""
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
    """Set the alarm for the next turn. It is named after the goal, so a turn that runs again replaces its alarm."""
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


# --- the endpoint


class WakeHandler(BaseHTTPRequestHandler):
    """Checks the signature of a wake, submits the turn as a job, and responds at once: a wake waits only seconds."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            wake = verify(body, dict(self.headers), os.environ["WAKE_SECRET"], owner=OWNER)
        except InvalidSignature as error:
            self.answer(401, str(error))
            return
        # If our response is lost, the wake is sent again, with the same id. So its id is the unique key of the job.
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
        """Log nothing, since the diary has every turn."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", PORT), WakeHandler) as server:
        take_turn.enqueue({"goal": "tea", "turn": 0, "seen": []})
        print(f"wakes arrive at http://127.0.0.1:{PORT}/wake", flush=True)
        server.serve_forever()

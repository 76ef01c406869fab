"""Does the page on observing name what is there?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "observe.md").read_text()


def test_the_provider_can_be_set_up_as_it_says() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_attribute_is_listed() -> None:
    source = (Path(__file__).parents[2] / "src/pulse/telemetry/tracing.py").read_text()
    listed = set(re.findall(r"`((?:messaging|pulse|error)\.[a-z_.]+)`", PAGE))

    assert listed == set(re.findall(r'"((?:messaging|pulse|error)\.[a-z_.]+)"', source)) - {"pulse.trace"}

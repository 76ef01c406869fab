"""How are the examples of a page run? In order, as one module, beside a worker of its app."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next of its kind."""
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def a_module(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of a module that can be imported, as an app is looked for in one."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module.__dict__


async def run(block: str, names: dict[str, Any]) -> None:
    """One with `await` on this loop, another on a thread: it may wait for a worker that is on the loop."""
    code = compile(block, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        await asyncio.to_thread(exec, code, names)

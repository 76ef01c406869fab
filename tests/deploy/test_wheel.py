"""Does the wheel, which the image is made of, have everything that is no Python in it?"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from tests.deploy.programs import ROOT, run_program

SOURCE = ROOT / "src"


def test_the_wheel_has_all_that_the_source_has(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir"]
    run_program(*build, tmp_path, ROOT, cwd=tmp_path)

    [wheel] = tmp_path.glob("*.whl")
    has = set(zipfile.ZipFile(wheel).namelist())
    files = [path for path in (SOURCE / "pulse").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(SOURCE)) for path in files} <= has
    assert {"pulse/py.typed", "pulse/store/jobs/claims.sql", "pulse/store/schema/migrations/0001_jobs.sql"} <= has
    assert not any(name.startswith(("tests/", "deploy/")) for name in has)

"""Generate the wire package from proto/, or say whether it is what proto/ says: `python -m tools.proto [--check]`."""

from __future__ import annotations

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("pulse/wire/v1")


def generate(out: Path) -> None:
    """The proto is found under the package's own path, so that the generated imports are the package's."""
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PACKAGE}={ROOT / 'proto/pulse/v1'}"),
            *(f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")),
            str(PACKAGE / "pulse.proto"),
        ],
        check=True,
        capture_output=True,
        env={"PATH": str(Path(sys.executable).parent)},
    )


def main() -> int:
    if "--check" not in sys.argv:
        generate(ROOT / "src")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh, kept = Path(folder) / PACKAGE, ROOT / "src" / PACKAGE
        names = sorted(path.name for path in fresh.iterdir())
        _, stale, missing = filecmp.cmpfiles(fresh, kept, names, shallow=False)
    if stale or missing:
        sys.stderr.write(f"{', '.join(stale + missing)} is not what proto/ says: run `make proto`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

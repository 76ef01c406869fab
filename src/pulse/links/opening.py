"""Which way leads to the jobs? Through a server if one is named, else straight to the database."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pulse.model.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from pulse.model.doctor.findings import Finding
    from pulse.settings import Settings


def open_link(settings: Settings) -> AbstractAsyncContextManager[Any]:
    if settings.server_url is None:
        from pulse.links.direct import open_direct

        return open_direct(settings)
    with _needing_grpc():
        import pulse.wire  # noqa: F401  before gRPC
        from pulse.links.remote.link import open_remote

        return open_remote(settings)


def open_remote_operating(settings: Settings) -> AbstractAsyncContextManager[Any]:
    """What operators need of the engine, at a server."""
    with _needing_grpc():
        import pulse.wire  # noqa: F401  before gRPC
        from pulse.links.remote.jobs import open_remote_engine

        return open_remote_engine(settings)


async def examine_servers(settings: Settings) -> list[Finding]:
    """What is well with the servers of the URL, and what is not."""
    with _needing_grpc():
        import pulse.wire  # noqa: F401  before gRPC
        from pulse.links.remote.doctor import examine

    return await examine(settings)


@contextmanager
def _needing_grpc() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InvalidSettings(
            f"PULSE_SERVER_URL needs grpcio ({error}): pip install 'pulse-postgres[grpc]', "
            "or unset it to use the database"
        ) from None

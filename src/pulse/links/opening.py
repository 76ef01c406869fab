"""Which kind of link is opened? One to a server if PULSE_SERVER_URL is set, else one to the database."""

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
    with _require_grpc():
        import pulse.wire  # noqa: F401  must be imported before gRPC
        from pulse.links.remote.link import open_remote

        return open_remote(settings)


def open_remote_operator_engine(settings: Settings) -> AbstractAsyncContextManager[Any]:
    """Open the part of a server's engine that operators use, with the same methods as the engine."""
    with _require_grpc():
        import pulse.wire  # noqa: F401  must be imported before gRPC
        from pulse.links.remote.jobs import open_remote_engine

        return open_remote_engine(settings)


async def examine_servers(settings: Settings) -> list[Finding]:
    """Examine the servers of the URL, and return what is fine and what is not."""
    with _require_grpc():
        import pulse.wire  # noqa: F401  must be imported before gRPC
        from pulse.links.remote.doctor import examine

    return await examine(settings)


@contextmanager
def _require_grpc() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InvalidSettings(
            f"PULSE_SERVER_URL needs grpcio ({error}): pip install 'pulse-postgres[grpc]', "
            "or unset PULSE_SERVER_URL to use the database"
        ) from None

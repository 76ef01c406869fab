"""Which way leads to the jobs? Through a server if one is named, else straight to the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse.model.errors import InvalidSettings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from pulse.settings import Settings


def open_link(settings: Settings) -> AbstractAsyncContextManager[Any]:
    if settings.server_url is None:
        from pulse.links.direct import open_direct

        return open_direct(settings)
    try:
        from pulse.links.remote import open_remote
    except ImportError as error:
        raise InvalidSettings(
            f"PULSE_SERVER_URL needs grpcio ({error}): pip install 'pulse-queue[grpc]', or unset it to use the database"
        ) from None
    return open_remote(settings)

"""How are alarms used through a server? With the methods of engine.alarms.

If no owner is given, the server uses the owner of the token. Values that a message cannot carry are refused here, by
the engine's own checks: a limit of 0, for example, would be read as the default.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pulse.engine.alarms.use_cases import OVERLAP
from pulse.links.remote.servers import CALL_TIMEOUT
from pulse.model.alarms import AlarmFilter, AlarmPage, DeliveryPage, SetAlarm, check_alarm_name
from pulse.model.ids import Mint
from pulse.model.jobs import PAGE_LIMIT, check_int, check_length
from pulse.model.network.targets import check_headers
from pulse.model.text import check_name
from pulse.wire import convert
from pulse.wire import convert_alarms as wire
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from pulse.links.remote.servers import Servers
    from pulse.model.alarms import Alarm, NewAlarm, WakeSecret

SLOW = 60.0  # seconds for calls that may read every row


class RemoteAlarms:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._mint = Mint()

    # --- reading

    async def get(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._call_by_key(pb.GetAlarmRequest, "GetAlarm", key, owner)

    async def list_page(
        self, wanted: AlarmFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> AlarmPage:
        check_int("limit", limit, 1, PAGE_LIMIT)
        filtering = wire.write_alarm_filter(wanted or AlarmFilter())
        request = pb.ListAlarmsRequest(filter=filtering, after=after or "", limit=limit)
        answer = await self._call(lambda service: service.ListAlarms, request, timeout=SLOW)
        return AlarmPage([wire.read_alarm(each) for each in answer.alarms], _read_next(answer))

    async def deliveries(
        self, key: UUID | str, *, owner: str | None = None, after: str | None = None, limit: int = 50
    ) -> DeliveryPage:
        check_int("limit", limit, 1, PAGE_LIMIT)
        request = pb.ListDeliveriesRequest(
            name=_write_key(key), owner=_write_owner(owner), after=after or "", limit=limit
        )
        answer = await self._call(lambda service: service.ListDeliveries, request)
        return DeliveryPage([wire.read_delivery(each) for each in answer.deliveries], _read_next(answer))

    # --- changing

    async def set(self, new: NewAlarm, *, own_id: UUID | None = None) -> SetAlarm:
        """Set an alarm. Its id is minted here, so that a call whose answer was lost can be repeated."""
        check_headers(new.headers)
        request = wire.write_new_alarm(new, own_id or self._mint.ids([0])[0])
        answer = await self._call(lambda service: service.SetAlarm, request)
        return SetAlarm(wire.read_alarm(answer.alarm), is_new=answer.created)

    async def cancel(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._call_by_key(pb.CancelAlarmRequest, "CancelAlarm", key, owner)

    async def pause(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._call_by_key(pb.PauseAlarmRequest, "PauseAlarm", key, owner)

    async def resume(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._call_by_key(pb.ResumeAlarmRequest, "ResumeAlarm", key, owner)

    async def fire(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Deliver the alarm now. If the answer is lost, the repeated call may deliver it once more."""
        return await self._call_by_key(pb.FireAlarmRequest, "FireAlarm", key, owner)

    async def _call_by_key(self, make: Callable[..., Any], method: str, key: UUID | str, owner: str | None) -> Alarm:
        request = make(name=_write_key(key), owner=_write_owner(owner))
        return wire.read_alarm(await self._call(lambda service: getattr(service, method), request))

    # --- signing

    async def secrets(self, owner: str | None = None) -> list[WakeSecret]:
        request = pb.GetWakeSecretsRequest(owner=_write_owner(owner))
        return wire.read_secrets(await self._call(lambda service: service.GetWakeSecrets, request))

    async def rotate_secret(self, *, overlap: timedelta = OVERLAP, owner: str | None = None) -> list[WakeSecret]:
        """Make a new secret. If the answer is lost, the repeated call makes a second one, and both are used to sign."""
        if overlap:
            check_length("overlap", overlap, timedelta(seconds=1))
        request = pb.RotateWakeSecretRequest(overlap=convert.write_length(overlap), owner=_write_owner(owner))
        return wire.read_secrets(await self._call(lambda service: service.RotateWakeSecret, request))

    async def _call(self, pick: Callable[[Any], Any], request: object, *, timeout: float = CALL_TIMEOUT) -> Any:  # noqa: ANN401
        return await self._servers.call(lambda server: pick(server.alarms), request, timeout=timeout)


def _write_key(key: UUID | str) -> str:
    if isinstance(key, UUID):
        return str(key)
    try:
        return str(UUID(key))
    except (ValueError, TypeError, AttributeError):
        return check_alarm_name(key)


def _write_owner(owner: str | None) -> str:
    return "" if owner is None else check_name("owner", owner)


def _read_next(answer: Any) -> str | None:  # noqa: ANN401
    return convert.read_text(answer, "next")

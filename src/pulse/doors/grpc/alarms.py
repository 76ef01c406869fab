"""Which calls are there for alarms over gRPC?

A call first finds the alarm and checks that the caller may see or manage it. Then it acts on the alarm by its id, since
another alarm may have taken the name meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pulse.doors.access import LOCAL
from pulse.doors.grpc.errors import Context, handle_errors
from pulse.doors.owners import filter_to_list, find_to_manage, find_to_see, owner_to_set
from pulse.doors.page_size import how_many_fit
from pulse.engine.alarms.use_cases import OVERLAP
from pulse.model.tokens import Right
from pulse.wire import convert
from pulse.wire import convert_alarms as wire
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.doors.access import Caller
    from pulse.engine.engine import Engine
    from pulse.model.alarms import Alarm


PAGE = 50


class AlarmRequest(Protocol):
    """A request about one alarm, which it names."""

    @property
    def name(self) -> str: ...
    @property
    def owner(self) -> str: ...


class AlarmsDoor(pb_grpc.AlarmsServicer):
    def __init__(self, engine: Engine, *, caller: Callable[[], Caller] = lambda: LOCAL) -> None:
        self._alarms = engine.alarms
        self._page_bytes = engine.settings.message_limit // 2  # the other half is for what the sizes do not count
        self._caller = caller

    @handle_errors
    async def SetAlarm(self, request: pb.SetAlarmRequest, _context: Context) -> pb.SetAlarmResponse:
        own_id = convert.read_id(request.id) if request.id else None
        owner = owner_to_set(self._caller(), request.owner)
        result = await self._alarms.set(wire.read_new_alarm(request, owner), own_id=own_id)
        return pb.SetAlarmResponse(alarm=wire.write_alarm(result.alarm), created=result.is_new)

    @handle_errors
    async def GetAlarm(self, request: pb.GetAlarmRequest, _context: Context) -> pb.Alarm:
        return wire.write_alarm(await self._find_to_see(request))

    @handle_errors
    async def ListAlarms(self, request: pb.ListAlarmsRequest, _context: Context) -> pb.ListAlarmsResponse:
        wanted = filter_to_list(self._caller(), wire.read_alarm_filter(request.filter))
        after = request.after or None
        page = await self._alarms.list_page(wanted, after=after, limit=request.limit or PAGE)
        alarms = [wire.write_alarm(alarm) for alarm in page.alarms]
        if len(alarms) > (fitting := how_many_fit((alarm.ByteSize() for alarm in alarms), self._page_bytes)):
            page = await self._alarms.list_page(wanted, after=after, limit=fitting)
            alarms = [wire.write_alarm(alarm) for alarm in page.alarms]
        return pb.ListAlarmsResponse(alarms=alarms, next=page.next)

    @handle_errors
    async def CancelAlarm(self, request: pb.CancelAlarmRequest, _context: Context) -> pb.Alarm:
        return wire.write_alarm(await self._alarms.cancel((await self._find_to_manage(request)).id))

    @handle_errors
    async def PauseAlarm(self, request: pb.PauseAlarmRequest, _context: Context) -> pb.Alarm:
        return wire.write_alarm(await self._alarms.pause((await self._find_to_manage(request)).id))

    @handle_errors
    async def ResumeAlarm(self, request: pb.ResumeAlarmRequest, _context: Context) -> pb.Alarm:
        return wire.write_alarm(await self._alarms.resume((await self._find_to_manage(request)).id))

    @handle_errors
    async def FireAlarm(self, request: pb.FireAlarmRequest, _context: Context) -> pb.Alarm:
        return wire.write_alarm(await self._alarms.fire((await self._find_to_manage(request)).id))

    @handle_errors
    async def ListDeliveries(self, request: pb.ListDeliveriesRequest, _context: Context) -> pb.ListDeliveriesResponse:
        alarm = await self._find_to_see(request)
        after = request.after or None
        page = await self._alarms.deliveries(alarm.id, after=after, limit=request.limit or PAGE)
        deliveries = [wire.write_delivery(delivery) for delivery in page.deliveries]
        if len(deliveries) > (fitting := how_many_fit((each.ByteSize() for each in deliveries), self._page_bytes)):
            page = await self._alarms.deliveries(alarm.id, after=after, limit=fitting)
            deliveries = [wire.write_delivery(delivery) for delivery in page.deliveries]
        return pb.ListDeliveriesResponse(deliveries=deliveries, next=page.next)

    @handle_errors
    async def GetWakeSecrets(self, request: pb.GetWakeSecretsRequest, _context: Context) -> pb.WakeSecrets:
        owner = owner_to_set(self._caller(), request.owner)
        return wire.write_secrets(await self._alarms.secrets(owner))

    @handle_errors
    async def RotateWakeSecret(self, request: pb.RotateWakeSecretRequest, _context: Context) -> pb.WakeSecrets:
        if not request.owner:  # this replaces the secret of every owner
            self._caller().check(Right.ADMIN)
        owner = owner_to_set(self._caller(), request.owner)
        overlap = convert.read_length(request, "overlap")
        overlap = OVERLAP if overlap is None else overlap
        await self._alarms.rotate_secret(overlap=overlap, owner=request.owner or None)
        return wire.write_secrets(await self._alarms.secrets(owner))

    async def _find_to_see(self, request: AlarmRequest) -> Alarm:
        return await find_to_see(self._alarms, self._caller(), request.name, request.owner)

    async def _find_to_manage(self, request: AlarmRequest) -> Alarm:
        return await find_to_manage(self._alarms, self._caller(), request.name, request.owner)

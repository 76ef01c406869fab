"""Which calls does an administrator have over gRPC? They create, list and revoke tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.doors.grpc.errors import Context, handle_errors
from pulse.wire import convert
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from pulse.engine.engine import Engine


class AdminDoor(pb_grpc.AdminServicer):
    def __init__(self, engine: Engine) -> None:
        self._tokens = engine.tokens

    @handle_errors
    async def CreateToken(self, request: pb.CreateTokenRequest, _context: Context) -> pb.CreateTokenResponse:
        lifetime = convert.read_length(request, "lifetime")
        token, secret = await self._tokens.create(request.name, list(request.scopes), lifetime)
        return pb.CreateTokenResponse(token=convert.write_token(token), secret=secret)

    @handle_errors
    async def ListTokens(self, _request: pb.ListTokensRequest, _context: Context) -> pb.ListTokensResponse:
        return pb.ListTokensResponse(tokens=[convert.write_token(token) for token in await self._tokens.list()])

    @handle_errors
    async def RevokeToken(self, request: pb.RevokeTokenRequest, _context: Context) -> pb.Token:
        return convert.write_token(await self._tokens.revoke(request.name))

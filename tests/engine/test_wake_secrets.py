"""Can one owner's receiver be fooled with what another owner has? Each has a secret of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from pulse import webhooks
from pulse.delivery.signing import OwnerSecrets, check_secret, new_secret, owner_secret
from pulse.engine.alarms.use_cases import read_owner_secrets
from pulse.engine.engine import Engine, open_engine
from pulse.model.errors import InvalidName, InvalidSignature
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from pulse.store.schema.migrate import migrate
from tests.clock import FrozenClock
from tests.conftest import migrate_up_to, recreate_database
from tests.endpoint import Endpoint
from tests.engine.test_wakes import at_noon, deliver, endpoint, engine, set_one, settings
from tests.waiting import connected

__all__ = ["at_noon", "endpoint", "engine", "settings"]

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
BEFORE = 9  # the schema in which one secret signed for all


@pytest.fixture(autouse=True)
async def as_before(settings: Settings) -> AsyncIterator[None]:
    """The secrets as the migration leaves them."""
    yield
    async with connected(settings.database_url) as conn:
        await conn.execute("delete from pulse.wake_secrets where number > 1")
        await conn.execute("update pulse.wake_secrets set expires_at = null, is_shared = false")


async def newest(engine: Engine, owner: str) -> str:
    return (await engine.alarms.secrets(owner))[0].secret


async def a_wake(engine: Engine, endpoint: Endpoint, clock: FrozenClock, owner: str, **given: Any) -> Any:
    await set_one(engine, endpoint, owner=owner, **given)
    await clock.advance(MINUTE)
    engine.duties.deliveries._secrets_read_at = float("-inf")  # seconds later, as it were
    await deliver(engine)
    return endpoint.calls[-1]


def is_taken(call: Any, secret: str, clock: FrozenClock, **given: Any) -> bool:
    try:
        webhooks.verify(call.raw, call.headers, secret, **given)
    except InvalidSignature:
        return False
    return True


# --- one for each


async def test_one_owner_cannot_wake_the_receiver_of_another(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    hers, his = await newest(engine, "ada"), await newest(engine, "bob")

    forged = await a_wake(engine, endpoint, clock, "bob", payload='{"transfer": 1000000}')
    true = await a_wake(engine, endpoint, clock, "ada")

    assert hers != his
    assert not is_taken(forged, hers, clock)
    assert is_taken(forged, his, clock, owner="bob")
    assert is_taken(true, hers, clock, owner="ada")
    assert not is_taken(true, hers, clock, owner="bob")


def test_a_secret_of_an_owner_is_as_good_as_any_and_nobody_elses() -> None:
    root, other = new_secret(), new_secret()

    made = {owner_secret(root, "ada"), owner_secret(root, "bob"), owner_secret(other, "ada")}
    made |= {owner_secret(root, "ada", 1), owner_secret(root, "1\x00ada")}

    assert len(made) == 5
    assert owner_secret(root, "ada") == owner_secret(root, "ada") != root
    assert all(check_secret(each) for each in made)


def test_who_has_no_secret_signs_nothing() -> None:
    assert OwnerSecrets([], []).signing("ada") == []


async def test_an_owner_has_a_name(engine: Engine) -> None:
    with pytest.raises(InvalidName):
        await engine.alarms.secrets("a\x00b")


# --- replaced


async def test_the_secret_of_one_owner_is_replaced_alone(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    hers, his = await newest(engine, "ada"), await newest(engine, "bob")

    [new, old] = await engine.alarms.rotate_secret(owner="ada", overlap=HOUR)
    call = await a_wake(engine, endpoint, clock, "ada")

    assert (old.secret, new.secret != hers) == (hers, True)
    assert is_taken(call, hers, clock)
    assert is_taken(call, new.secret, clock)
    assert await newest(engine, "bob") == his

    await clock.advance(HOUR)
    call = await a_wake(engine, endpoint, clock, "ada")
    assert not is_taken(call, hers, clock)
    assert is_taken(call, new.secret, clock)
    assert [each.secret for each in await engine.alarms.secrets("ada")] == [new.secret]


async def test_one_that_is_replaced_twice_never_comes_back(engine: Engine, clock: FrozenClock) -> None:
    seen = [await newest(engine, "ada")]
    for _ in range(4):
        seen.append((await engine.alarms.rotate_secret(owner="ada", overlap=timedelta()))[0].secret)
        await clock.advance(MINUTE)

    assert len(set(seen)) == 5
    assert [each.secret for each in await engine.alarms.secrets("ada")] == seen[-1:]


async def test_a_new_root_replaces_everybodys(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    before = {owner: await newest(engine, owner) for owner in ("ada", "bob")}

    await engine.alarms.rotate_secret(overlap=HOUR)

    for owner, old in before.items():
        call = await a_wake(engine, endpoint, clock, owner)
        assert is_taken(call, old, clock)
        assert is_taken(call, await newest(engine, owner), clock)
        assert await newest(engine, owner) != old


# --- an installation that had one for all


async def test_receivers_of_an_older_schema_are_served_until_the_secret_is_replaced(worker_id: str) -> None:
    older = Settings(database_url=await recreate_database(f"secrets_{worker_id}"))
    await migrate_up_to(BEFORE, older)
    async with connected(older.database_url) as conn:
        shared = await conn.fetchval("select secret from pulse.wake_secrets")
        await conn.execute(
            "insert into pulse.alarms (id, owner, fingerprint, kind, payload, destination, max_failures, occurrence,"
            " next_fire_at, created_at, updated_at)"
            " select gen_random_uuid(), 'ada', '', 'once', 'null', 'd', 5, now(), now(), now(), now()"
        )
    await migrate(older)

    async with open_engine(older) as engine:
        found = await _signing(engine)
        assert found.signing("ada") == [owner_secret(shared, "ada"), shared]
        assert found.has_shared
        assert shared not in {each.secret for each in await engine.alarms.secrets("ada")}  # it is nobody's own

        [new, *_] = await engine.alarms.rotate_secret(overlap=HOUR)
        moving = await _signing(engine)
        assert {new.secret != owner_secret(shared, "local"), shared in moving.signing("ada")} == {True}
        assert not moving.has_shared  # with no end in sight

        await engine.alarms.rotate_secret(overlap=timedelta())
        assert shared not in (await _signing(engine)).signing("ada")


async def test_a_new_schema_never_signs_for_all(worker_id: str) -> None:
    fresh = Settings(database_url=await recreate_database(f"secrets_{worker_id}"))
    await migrate(fresh)

    async with open_engine(fresh) as engine:
        found = await _signing(engine)

    assert not found.has_shared
    assert len(found.signing("ada")) == 1


async def _signing(engine: Engine) -> OwnerSecrets:
    async with await Database.connect(engine.settings) as database:
        return await database.run(read_owner_secrets)

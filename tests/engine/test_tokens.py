"""Are tokens found by their secret, ended by time and by hand, and believed no longer than a few seconds?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import pytest

from pulse.engine.engine import open_engine
from pulse.engine.tokens import CACHED_FOR, MAX_UNKNOWN, Tokens
from pulse.model.errors import (
    DatabaseUnreachable,
    InvalidName,
    InvalidOption,
    SchemaMismatch,
    TokenNameTaken,
    TokenNotFound,
)
from pulse.model.tokens import Token, hash_of, new_secret
from pulse.settings import Settings
from pulse.store import tokens as store
from pulse.store.connections.pool import Connection, Database
from pulse.store.schema.migrate import migrate
from tests.clock import FrozenClock
from tests.conftest import recreate_database
from tests.factories import a_report, claim_one, submit_one
from tests.waiting import connected


class Seconds:
    """The clock by which findings grow old, moved by hand."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float = CACHED_FOR + 0.1) -> None:
        self.now += seconds


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def tokens(database: Database, seconds: Seconds) -> Tokens:
    return Tokens(database, clock=seconds)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each statement that looked tokens up, about how many."""
    counts: list[int] = []
    find_tokens = store.find_tokens

    async def counted(conn: Connection, *, digests: Sequence[bytes]) -> dict[bytes, Token]:
        counts.append(len(digests))
        return await find_tokens(conn, digests=digests)

    monkeypatch.setattr(store, "find_tokens", counted)
    return counts


async def _away(*_: object, **__: object) -> None:
    raise DatabaseUnreachable("the database is away")


async def is_usable(tokens: Tokens, secret: str) -> bool:
    found = await tokens.find(secret)
    assert found is not None
    return found.is_usable


# --- made


async def test_a_token_is_found_by_its_secret_alone(tokens: Tokens) -> None:
    token, secret = await tokens.create("web", ["submit", "work:mail"])

    assert await tokens.find(secret) == token
    assert [str(scope) for scope in token.scopes] == ["submit", "work:mail"]
    assert token.is_usable
    for wrong in (new_secret(), secret[:-1] + "!", secret.upper(), "", "web"):
        assert await tokens.find(wrong) is None


async def test_only_the_hash_of_a_secret_is_kept(tokens: Tokens, settings: Settings) -> None:
    _, secret = await tokens.create("web", ["admin"])

    async with connected(settings.database_url) as conn:
        [row] = await conn.fetch("select tokens::text as text, hash from pulse.tokens")
    assert row["hash"] == hash_of(secret)
    assert secret not in row["text"]
    assert secret.removeprefix("pulse_").encode().hex() not in row["text"]


async def test_a_name_is_taken_for_ever(tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["submit"])
    with pytest.raises(TokenNameTaken):
        await tokens.create("web", ["admin"])
    await tokens.revoke("web")

    with pytest.raises(TokenNameTaken, match="'web' already exists, perhaps revoked"):
        await tokens.create("web", ["admin"])

    assert [str(scope) for token in await tokens.list() for scope in token.scopes] == ["submit"]
    assert not await is_usable(tokens, secret)


async def test_a_create_whose_answer_was_lost_can_be_repeated(conn: Connection) -> None:
    digest = hash_of(new_secret())

    first = await store.create_token(conn, name="web", digest=digest, scopes=["work"], lifetime=None)
    second = await store.create_token(conn, name="web", digest=digest, scopes=["work"], lifetime=None)

    assert first == second is not None


async def test_what_makes_no_token_is_refused_and_changes_nothing(tokens: Tokens) -> None:
    with pytest.raises(InvalidName):
        await tokens.create("a/b", ["work"])
    with pytest.raises(InvalidOption, match="scope"):
        await tokens.create("web", ["everything"])
    with pytest.raises(InvalidOption, match="scopes"):
        await tokens.create("web", [])
    with pytest.raises(InvalidOption, match="lifetime"):
        await tokens.create("web", ["work"], timedelta())

    assert await tokens.list() == []


# --- ended


async def test_it_expires_by_the_databases_clock(tokens: Tokens, seconds: Seconds, clock: FrozenClock) -> None:
    token, secret = await tokens.create("web", ["submit"], timedelta(hours=1))
    assert token.expires_at == clock.instant + timedelta(hours=1)

    await clock.advance(timedelta(minutes=59))
    seconds.pass_by()
    assert await is_usable(tokens, secret)

    await clock.advance(timedelta(minutes=1))
    seconds.pass_by()
    assert not await is_usable(tokens, secret)
    assert [token.is_expired for token in await tokens.list()] == [True]


async def test_a_revoked_one_is_known_as_such_from_the_next_call_on(tokens: Tokens, clock: FrozenClock) -> None:
    _, secret = await tokens.create("web", ["submit"])
    assert await tokens.find(secret)

    revoked = await tokens.revoke("web")
    await clock.advance(timedelta(hours=1))

    assert await tokens.find(secret) == revoked
    assert await tokens.revoke("web") == revoked, "the first time stands"


async def test_elsewhere_a_revocation_is_known_within_seconds(
    tokens: Tokens, seconds: Seconds, database: Database
) -> None:
    _, secret = await tokens.create("web", ["submit"])
    assert await tokens.find(secret)

    await Tokens(database).revoke("web")

    seconds.pass_by(CACHED_FOR - 0.1)
    assert await is_usable(tokens, secret)
    seconds.pass_by(0.2)
    assert not await is_usable(tokens, secret)


async def test_one_that_is_not_there_cannot_be_revoked(tokens: Tokens) -> None:
    with pytest.raises(TokenNotFound):
        await tokens.revoke("web")


async def test_once_there_was_a_token_there_always_is_one(tokens: Tokens, clock: FrozenClock) -> None:
    """A server decides by this whether to ask for tokens: revoking the last one must not open it to everybody."""
    assert not await tokens.has_any()
    await tokens.create("short", ["submit"], timedelta(minutes=1))
    assert await tokens.has_any()

    await clock.advance(timedelta(minutes=1))
    await tokens.revoke("short")

    assert await tokens.has_any()


# --- what looking up costs


async def test_calls_cost_no_statement_each(tokens: Tokens, asked: list[int]) -> None:
    _, secret = await tokens.create("web", ["submit"])
    unknown = new_secret()

    for _ in range(100):
        await tokens.find(secret)
        await tokens.find(unknown)
        await tokens.find("not even a secret")

    assert asked == [1, 1]


async def test_all_tokens_in_use_are_asked_about_in_one_statement(
    tokens: Tokens, seconds: Seconds, asked: list[int]
) -> None:
    secrets = [(await tokens.create(f"worker-{number}", ["work"]))[1] for number in range(20)]
    await asyncio.gather(*[tokens.find(secret) for secret in secrets])
    await tokens.find(new_secret())
    asked.clear()

    seconds.pass_by()
    found = await asyncio.gather(*[tokens.find(secret) for secret in secrets * 5])

    assert asked == [20]
    assert all(found)


async def test_a_token_that_is_no_longer_used_is_no_longer_asked_about(
    tokens: Tokens, seconds: Seconds, asked: list[int]
) -> None:
    secrets = [(await tokens.create(f"worker-{number}", ["work"]))[1] for number in range(3)]
    await asyncio.gather(*[tokens.find(secret) for secret in secrets])
    asked.clear()

    for _ in range(3):
        seconds.pass_by()
        await tokens.find(secrets[0])

    assert asked == [3, 1, 1]
    assert len(tokens._found) == 1


async def test_secrets_nobody_knows_are_looked_up_together_and_a_right_one_among_them_is_found(
    tokens: Tokens, asked: list[int]
) -> None:
    _, secret = await tokens.create("web", ["submit"])
    await tokens.find(new_secret())
    asked.clear()

    found = await asyncio.gather(*[tokens.find(each) for each in [*(new_secret() for _ in range(500)), secret]])

    assert len(asked) <= 2, "one for who came first, one for all the others"
    assert sum(asked) == 501
    assert [each.name for each in found if each] == ["web"]


async def test_secrets_nobody_knows_that_come_one_after_the_other_are_looked_up_at_intervals(
    tokens: Tokens, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.engine.tokens.LOOK_UP_EVERY", 0.3)
    await tokens.find(new_secret())
    began = time.monotonic()

    await tokens.find(new_secret())

    assert time.monotonic() - began > 0.25
    assert asked == [1, 1]


async def test_a_look_up_that_fails_is_not_remembered(
    tokens: Tokens, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = await tokens.create("web", ["submit"])
    with monkeypatch.context() as broken:
        broken.setattr(store, "find_tokens", _away)
        failed = await asyncio.gather(*[tokens.find(secret) for _ in range(3)], return_exceptions=True)

    assert {type(each) for each in failed} == {DatabaseUnreachable}
    assert await tokens.find(secret)


async def test_a_flood_of_secrets_nobody_knows_is_not_kept(tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["submit"])
    await tokens.find(secret)
    tokens._unknown = {number.to_bytes(32) for number in range(MAX_UNKNOWN)}

    await tokens.find(new_secret())

    assert len(tokens._unknown) == 1
    assert await tokens.find(secret), "nor does it push out those that are known"


async def test_a_secret_made_elsewhere_after_it_was_refused_is_soon_known(tokens: Tokens, seconds: Seconds) -> None:
    secret = new_secret()
    assert await tokens.find(secret) is None
    await tokens._database.run(
        lambda conn: store.create_token(conn, name="web", digest=hash_of(secret), scopes=["work"], lifetime=None)
    )

    seconds.pass_by()

    assert await tokens.find(secret)


async def test_without_a_database_what_was_known_is_believed_and_nothing_else(
    impatient: Settings, seconds: Seconds
) -> None:
    async with await Database.connect(impatient) as database:
        tokens = Tokens(database, clock=seconds)
        token, secret = await tokens.create("web", ["submit"])
        await tokens.find(secret)

        await database.close()
        seconds.pass_by()

        assert await tokens.find(secret) == token
        with pytest.raises(DatabaseUnreachable):
            await tokens.find(new_secret())


# --- beside an older schema


async def test_a_schema_without_tokens_is_only_missed_by_who_asks_for_them(worker_id: str) -> None:
    settings = Settings(database_url=await recreate_database(f"tokens_{worker_id}"))
    await migrate(settings)
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute("drop table pulse.tokens")
    await conn.close()

    async with open_engine(settings) as engine:
        await submit_one(engine)
        assert await engine.claims.report([a_report(await claim_one(engine))])
        with pytest.raises(SchemaMismatch, match="pulse migrate"):
            await engine.tokens.list()
        with pytest.raises(SchemaMismatch, match="pulse migrate"):
            await engine.tokens.find(new_secret())

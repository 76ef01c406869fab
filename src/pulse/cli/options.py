"""Which flags do all commands share, and how are times and states read from the command line?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from click.core import ParameterSource

from pulse.cli.session import Session
from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.model.jobs import JobStatus

EVERYWHERE = "Everywhere"


class JobId(click.ParamType[UUID]):
    """The full id of a job, see docs/decisions/0040."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:  # noqa: ANN401
        try:
            return UUID(value)
        except ValueError:
            self.fail(f"{value[:60]!r} is not the id of a job: write all of its 36 characters.", param, ctx)


class Command(click.Command):
    """A command that takes the shared flags too: `pulse --json jobs list` and `pulse jobs list --json` are the same."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.params += shared_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(self, ctx, formatter)


class Group(click.Group):
    """A group of commands. A PulseError becomes a line on stderr and an exit code."""

    command_class = Command
    group_class = type  # click then uses this class for groups within the group

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.params += shared_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        write_sections(self, ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except PulseError as error:
            ctx.exit(ctx.ensure_object(Session).refuse(error))


def variables_of(command: click.Command, prefix: tuple[str, ...] = ("PULSE",)) -> Iterator[str]:
    """Iterate over the environment variables of all flags of a command and its subcommands."""
    for parameter in command.params:
        given = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar
        yield from given or ["_".join([*prefix, str(parameter.name)]).upper().replace("-", "_")]
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from variables_of(child, (*prefix, name))


def write_sections(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the command's own flags first, then the shared ones, which are the same in every help text."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": [], EVERYWHERE: []}
    for param in command.get_params(ctx):
        if record := param.get_help_record(ctx):
            is_shared = param.name in SHARED or "--help" in param.opts
            sections[EVERYWHERE if is_shared else "Options"].append(record)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


SHARED = {
    "server_url": "Use a server: grpc://host:8701.",
    "database_url": "The Postgres to use (default: the embedded one).",
    "schema": "The schema of Pulse's tables (default: pulse).",
    "state_dir": "The embedded Postgres' folder (default: .pulse).",
    "json": "Print one JSON document on stdout.",
}


def shared_options() -> list[click.Parameter]:
    kinds: dict[str, dict[str, Any]] = {
        "server_url": {"metavar": "URL"},
        "database_url": {"metavar": "URL"},
        "schema": {"metavar": "NAME"},
        "state_dir": {"metavar": "FOLDER", "type": click.Path(path_type=Path)},
        "json": {"is_flag": True},
    }
    return [
        click.Option(
            [f"--{name.replace('_', '-')}"],
            help=text,
            envvar=f"PULSE_{name.upper()}",
            expose_value=False,
            callback=_remember,
            **kinds[name],
        )
        for name, text in SHARED.items()
    ]


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:  # noqa: ANN401
    """Store a shared flag in the session. If it is given to a group and again to its command, the last one wins."""
    session = ctx.find_root().ensure_object(Session)
    name = str(param.name)
    is_flag = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    if name == "json":
        session.as_json |= bool(value)
    elif is_flag or (value is not None and name not in session.given):
        session.given[name] = value
    if is_flag and name != "json":
        session.flags[name] = str(value)


def read_status(ctx: click.Context, param: click.Parameter, value: str | None) -> JobStatus | None:
    from pulse.model.jobs import JobStatus

    if value is None:
        return None
    try:
        return JobStatus(value)
    except ValueError:
        names = ", ".join(status.lower() for status in JobStatus)
        raise click.BadParameter(f"a state must be one of {names}, not {value!r}.", ctx, param) from None


def complete_status(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    from pulse.model.jobs import JobStatus

    return [status.lower() for status in JobStatus if status.lower().startswith(typed.lower())]


def read_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Read an instant, or an age as how long ago it was. Without an offset it is local time, as in all output."""
    from pulse.timing.duration import InvalidDuration, parse_duration

    if value is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(value)
    except (InvalidDuration, OverflowError):
        pass
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"must be a time (2026-07-31, 2026-07-31T09:00+02:00) or an age (90s, 2h, 7d), not {value!r}.", ctx, param
        ) from None


def read_length(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    from pulse.timing.duration import InvalidDuration, parse_duration

    if value is None:
        return None
    try:
        return parse_duration(value)
    except InvalidDuration as error:
        raise click.BadParameter(f"{error}.", ctx, param) from None

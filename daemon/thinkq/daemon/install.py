"""`thinkq daemon install` and `uninstall`."""

from __future__ import annotations

import os
import shlex
from typing import get_args

import click
import msgspec

from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import control, service
from thinkq.daemon.platforms import HERE, Platform, recorder, service_for
from thinkq.daemon.redis_server import find_server
from thinkq.daemon.systemd import LINGER


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the file and the commands, change nothing.")
@click.option(
    "--platform",
    type=click.Choice(get_args(Platform)),
    default=HERE,
    show_default=True,
    help="Another system's; with --dry-run.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --dry-run.")
def install(dry_run: bool, platform: Platform, as_json: bool) -> None:
    """Start the daemon at each login, as a service.

    It is started again after a crash, too. The service gets the THINKQ_* variables and the proxies
    of this shell. A daemon that runs already is stopped first.

    \b
    Examples:
      thinkq daemon install
      thinkq daemon install --dry-run --platform darwin
    """
    if not dry_run and (platform != HERE or as_json):
        raise click.UsageError("--platform and --json go with --dry-run only")
    settings = load_settings()
    if dry_run:
        click.echo(_plan(settings, platform, as_json=as_json))
    else:
        _install(settings)


@click.command()
def uninstall() -> None:
    """Stop the service and remove it.

    Jobs, results and settings stay.

    \b
    Example:
      thinkq daemon uninstall
    """
    ours = service_for(load_settings())
    if not service.installed(ours):
        click.echo(f"not installed: there is no {ours.path}")
        return
    ours.unload()
    click.echo(f"removed {ours.path}")


def _install(settings: Settings) -> None:
    if settings.embedded_redis:
        find_server()
    ours = service_for(settings)
    control.stop(settings, control.tell)
    service.write(ours, os.environ)
    try:
        control.start(settings, ours, control.tell, wait=False)
    except service.ServiceError as error:
        ours.path.unlink(missing_ok=True)
        remedy = "`thinkq daemon start` runs it without a service"
        raise service.ServiceError(f"{error}; {remedy}") from None
    click.echo(f"installed {ours.path}")
    if HERE == "linux":
        click.echo(LINGER)


def _plan(settings: Settings, platform: Platform, *, as_json: bool) -> str:
    commands = recorder(platform)
    ours = service_for(settings, commands, platform)
    ours.load()
    content = ours.content(os.environ)
    if as_json:
        plan = {"path": str(ours.path), "content": content, "commands": commands.commands}
        return msgspec.json.encode(plan).decode()
    shown = "\n".join(map(shlex.join, commands.commands))
    return f"# {ours.path}\n{content}\n# commands\n{shown}"

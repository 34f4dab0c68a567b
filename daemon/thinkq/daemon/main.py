"""The commands of the daemon."""

from __future__ import annotations

import logging
from typing import Final

import click
import msgspec
import redis

from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import control, logs, service
from thinkq.daemon import status as status_report
from thinkq.daemon.awake import Awake
from thinkq.daemon.install import install, uninstall
from thinkq.daemon.platforms import service_for
from thinkq.daemon.run import supervise

EXIT_NOT_RUNNING: Final = 3

_log = logging.getLogger(__name__)

wait_option = click.option("--wait", is_flag=True, help="Until the model is loaded, too.")


@click.group()
def daemon() -> None:
    """Keep Redis and the worker alive.

    \b
    Examples:
      thinkq daemon start
      thinkq daemon install
    """


@daemon.command()
@click.option("--until-eof", is_flag=True, help="Stop when stdin ends, as when its owner dies.")
def run(until_eof: bool) -> None:
    """Run Redis and the worker in the foreground.

    Each is started again when it dies. Ends with SIGTERM or Ctrl-C. The daemon's log goes to
    stderr, those of the two into the data directory.

    \b
    Example:
      thinkq daemon run
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        settings = load_settings()
        supervise(settings, until_eof=until_eof, awake=Awake(settings))
    except ThinkqError as error:
        _log.error("%s", error)
        raise SystemExit(service.refusal_code()) from None
    except (OSError, redis.RedisError) as error:
        _log.error("%s", error)
        raise SystemExit(1) from None


@daemon.command()
@wait_option
def start(wait: bool) -> None:
    """Start the daemon in the background, and show what runs.

    \b
    Example:
      thinkq daemon start --wait
    """
    _start(load_settings(), wait=wait)


@daemon.command()
def stop() -> None:
    """Stop the daemon, its worker and its Redis.

    Jobs that run go back to the queue.

    \b
    Example:
      thinkq daemon stop
    """
    settings = load_settings()
    control.stop(settings, control.tell)
    if service.installed(service_for(settings)):
        click.echo(
            "the service stays installed: it starts again at the next login, or with "
            "`thinkq daemon start`; `thinkq daemon uninstall` removes it"
        )


@daemon.command()
@wait_option
def restart(wait: bool) -> None:
    """Stop the daemon and start it again.

    It reads the settings anew.

    \b
    Example:
      thinkq daemon restart
    """
    settings = load_settings()
    control.stop(settings, control.tell)
    _start(settings, wait=wait)


@daemon.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def status(as_json: bool) -> None:
    """Show how the daemon is, and its last error.

    Also Redis, the workers, the queue, memory, and whether it is a service. Ends with 0 if the
    daemon runs, and with 3 if it does not.

    \b
    Example:
      thinkq daemon status --json
    """
    settings = load_settings()
    found = status_report.look(settings, service_for(settings))
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        click.echo("\n".join(status_report.lines(found)))
    if not found.running:
        raise SystemExit(EXIT_NOT_RUNNING)


@daemon.command("logs")
@click.argument(
    "process", type=click.Choice(("daemon", "worker", "redis")), default=None, required=False
)
@click.option("-f", "follow", is_flag=True, help="Go on with what is written next.")
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, metavar="N")
def show_logs(process: str | None, follow: bool, lines: int) -> None:
    """Show the last lines of the logs.

    Of all that there are, or of one process.

    \b
    Example:
      thinkq daemon logs worker -f
    """
    logs.show(logs.present(load_settings(), process), lines, follow=follow)


def _start(settings: Settings, *, wait: bool) -> None:
    ours = service_for(settings)
    control.start(settings, ours, control.tell, wait=wait)
    click.echo("\n".join(status_report.lines(status_report.look(settings, ours))))


daemon.add_command(install)
daemon.add_command(uninstall)

"""The command: run all checks, and show what they found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import click
import msgspec

from thinkq.client.columns import columns
from thinkq.client.errors import RedisUnavailable, SettingsError
from thinkq.client.settings import Settings, find_home, load_settings
from thinkq.daemon.doctor import queues, server, service, system
from thinkq.daemon.doctor.finding import (
    Finding,
    Installation,
    Verdict,
    counted,
    fail,
    ok,
    run,
    warn,
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def doctor(as_json: bool) -> None:
    """Check this installation; each finding comes with its remedy.

    Changes nothing. The exit code is 0 if nothing fails (warnings may be there), else 1.

    \b
    Example:
      thinkq doctor
    """
    findings = examine()
    bad = any(finding.level == "fail" for finding in findings)
    if as_json:
        click.echo(msgspec.json.encode({"ok": not bad, "findings": findings}))
    else:
        for line in report(findings):
            click.echo(line)
    raise SystemExit(1 if bad else 0)


def examine(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """The findings of all checks that apply here."""
    settings, verdict = _settings(environ)
    site = Installation(settings)
    found = [run("settings", lambda: verdict)]
    for name, check in (system.CHECKS | service.CHECKS).items():
        found.append(run(name, partial(check, site)))
    found += _ask_redis(site)
    return [finding for finding in found if finding is not None]


def _settings(environ: Mapping[str, str]) -> tuple[Settings, Verdict]:
    """The settings, or the defaults where they cannot be read; the other checks go on with them."""
    try:
        settings = load_settings(environ)
    except SettingsError as error:
        home = str(find_home(environ))
        return Settings(home=home), fail(str(error), "correct it; nothing starts before that")
    if settings.lease_s <= settings.heartbeat_s:
        return settings, warn(
            f"lease_s {settings.lease_s:g} is not longer than heartbeat_s "
            f"{settings.heartbeat_s:g}: jobs would be taken from workers that live",
            "set lease_s to several times heartbeat_s",
        )
    return settings, ok(f"the data directory is {settings.home}")


def _ask_redis(site: Installation) -> Iterator[Finding | None]:
    try:
        connection = server.reach(site.settings)
    except RedisUnavailable as error:
        yield run("redis", partial(server.absent, site, error))
        return
    with connection:
        for name, check in (server.CHECKS | queues.CHECKS).items():
            yield run(name, partial(check, site, connection))


def report(findings: list[Finding]) -> Iterator[str]:
    """The findings for people, and their counts."""
    rows = list(columns([(each.level, each.name, "") for each in findings]))
    indent = max(map(len, rows)) + 2
    for head, finding in zip(rows, findings, strict=True):
        first, *rest = finding.text.splitlines()
        yield f"{head:{indent}}{first}"
        yield from (f"{'':{indent}}{line}" for line in rest)
        if finding.remedy:
            yield f"{'':{indent}}-> {finding.remedy}"
    counts = Counter(finding.level for finding in findings)
    warnings, failures = counted(counts["warn"], "warning"), counted(counts["fail"], "failure")
    yield f"\n{counts['ok']} ok, {warnings}, {failures}"

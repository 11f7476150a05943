"""The page at /: the targets of this agent, for a person with a browser.

In: an Overview, which is in memory. Out: HTML without a script, and its headers. Texts of drivers
and file names are always escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from nodevitals.engine.results import STATES, TargetView

# A page with more rows is not useful; with these limits it has at most 4 MB.
MAX_ROWS = 1000
MAX_NAME_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 300
MAX_PROBLEMS = 10
_BAD = ("stuck", "overdue", "timeout", "error", "stale")
# Characters that a URL's path may contain unescaped (RFC 3986), and `%` of encoded ones.
_PATH = "/%:@!$&'()*+,;=~"

STYLE = """
:root{color-scheme:light dark}
body{font:1rem/1.45 system-ui,sans-serif;margin:1rem auto;max-width:70rem;padding:0 .75rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:1.5rem 0 .25rem}p{margin:.4rem 0}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;border-top:1px solid #8886}
td{overflow-wrap:anywhere}.time{white-space:nowrap;font-variant-numeric:tabular-nums}
small{display:block}.good{color:#1a6b2f}.none{color:#595959}.bad{color:#b3261e;font-weight:600}
a{color:#0550ae;padding:.15rem 0}
@media(prefers-color-scheme:dark){
.good{color:#7ddb92}.none{color:#adadad}.bad{color:#ff8a80}a{color:#79b8ff}}
.alert{border-left:.3rem solid;padding-left:.6rem;overflow-wrap:anywhere}
@media(max-width:40rem){
thead{display:none}tr{display:grid;grid-template-columns:5rem 1fr;border-top:1px solid #8886}
td{border:0;padding:.1rem 0}.time{grid-column:2}.time small{display:inline;margin-left:.5rem}
td.time::before{content:"last result: "}td:last-child::before{content:"next run: "}}
"""
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Overview(NamedTuple):
    """The content of the page. Times are of the monotonic clock."""

    node: str
    version: str
    started_at: float
    loaded_at: float
    """When the configuration in use was loaded, in Unix time."""
    reload_problems: Sequence[str]
    """What was wrong with a configuration loaded since, which is not used."""
    health: str
    """'' while the supervisor's loop ticks, else the problem."""
    targets: Sequence[TargetView]


def render(overview: Overview, telemetry_path: str, now: float) -> bytes:
    """The page; `now` by the monotonic clock."""
    metrics = "." + html.escape(quote(telemetry_path, safe=_PATH))
    summary = _summary(_states(overview.targets))
    parts = [
        _head(overview, summary, now),
        *_alerts(overview),
        f"<h2>Targets: {summary}</h2>\n",
        *_table(overview.targets, now),
        *_links(metrics, overview.targets),
        _foot(),
    ]
    return "".join(parts).encode()


def _head(overview: Overview, summary: str, now: float) -> str:
    node, running = _text(overview.node), span(now - overview.started_at)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>{node}: {summary}</title>\n"
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>{STYLE}</style></head>\n<body><header><h1>{node}</h1>\n"
        f"<p>nodevitals {_text(overview.version)}, running for {running}; "
        f"configuration of {_moment(overview.loaded_at)}</p>\n</header><main>\n"
    )


def _foot() -> str:
    return (
        f'</main><footer><p class="none">As of {_moment(time.time())}; load the page again for '
        "a newer state.</p></footer></body></html>\n"
    )


def _summary(counts: Counter[str]) -> str:
    if not counts:
        return "none configured"
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])


def _alerts(overview: Overview) -> Iterable[str]:
    """The alerts about the whole agent."""
    if overview.health:
        yield (
            f'<p class="bad alert" role="alert">Not healthy: {_text(overview.health)}. '
            "What follows is what was known then.</p>\n"
        )
    problems = overview.reload_problems
    if problems:
        yield (
            '<div class="alert" role="alert"><p class="bad">The last reload failed; still in use '
            f"is the configuration of {_moment(overview.loaded_at)}.</p>\n<ul>"
        )
        yield from (f"<li>{_text(problem)}</li>\n" for problem in problems[:MAX_PROBLEMS])
        if len(problems) > MAX_PROBLEMS:
            yield f"<li>and {len(problems) - MAX_PROBLEMS} more, in the log</li>\n"
        yield "</ul></div>\n"


def _table(targets: Sequence[TargetView], now: float) -> Iterable[str]:
    """The targets, those that need attention first, each group by name."""
    order = {state: place for place, state in enumerate(STATES)}
    rows = sorted(targets, key=lambda target: (order[target.state], target.probe, target.target))
    if not rows:
        return
    yield (
        "<table><thead><tr><th>State</th><th>Probe, target, reason</th>"
        "<th>Last result</th><th>Next run</th></tr></thead>\n<tbody>\n"
    )
    yield from (_row(row, now) for row in rows[:MAX_ROWS])
    yield "</tbody></table>\n"
    if len(rows) > MAX_ROWS:
        yield f"<p>And {len(rows) - MAX_ROWS} more: {_summary(_states(rows[MAX_ROWS:]))}.</p>\n"


def _states(targets: Iterable[TargetView]) -> Counter[str]:
    return Counter(target.state for target in targets)


def _row(view: TargetView, now: float) -> str:
    tone = "bad" if view.state in _BAD else "good" if view.state == "ok" else "none"
    name = _text(view.probe)
    if view.target != view.probe:
        name += f" <bdi>{_text(view.target, MAX_NAME_CHARACTERS)}</bdi>"
    # The reason is one word for the history, and often equal to the outcome.
    words = [view.reason if view.reason not in (view.state, "") else "", view.text]
    why = ": ".join(filter(None, words))
    reason = f"<small><bdi>{_text(why)}</bdi></small>" if why else ""
    return (
        f'<tr><td class="{tone}">{view.state}</td><td>{name}{reason}</td>'
        f'<td class="time">{_last(view, now)}</td><td class="time">{_next(view, now)}</td></tr>\n'
    )


def _last(view: TargetView, now: float) -> str:
    if view.ended_at is None:
        return "none yet"
    milliseconds = round(view.duration_seconds * 1000)
    took = f"<small>took {milliseconds} ms</small>" if view.duration_seconds else ""
    return f"{span(now - view.ended_at)} ago{took}"


def _next(view: TargetView, now: float) -> str:
    if view.overdue_since is not None:
        return f"running for {span(now - view.overdue_since)}<small>past its deadline</small>"
    return f"in {span(view.due_at - now)}" if view.due_at > now else "now"


def _links(metrics: str, targets: Sequence[TargetView]) -> Iterable[str]:
    yield f'<h2>Metrics</h2>\n<p><a href="{metrics}">All metrics</a>'
    probes = sorted({target.probe for target in targets})
    links = (f'<a href="{metrics}?collect[]={quote(name)}">{_text(name)}</a>' for name in probes)
    yield "; of one probe: " + ", ".join(links) if probes else ""
    yield (
        '</p>\n<p><a href="./healthz">Health</a>, <a href="./readyz">readiness</a></p>\n'
        "<h2>Documentation</h2>\n<p><code>nodevitals metrics</code> lists every metric with its "
        "meaning, <code>nodevitals probe NAME</code> runs a probe now, <code>nodevitals --help"
        "</code> lists the other commands. The packages install their documentation in "
        "<code>/usr/share/doc/nodevitals</code>.</p>\n"
    )


def span(seconds: float) -> str:
    """A length of time in its two largest units."""
    whole = max(0, round(seconds))
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole // 60} min" if whole >= 120 else f"{whole} s"


def _moment(unix_time: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_time))


def _text(text: str, characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Text for HTML, of bounded length. Characters that change how other text looks (control
    characters, marks of direction) are shown as their numbers.
    """
    text = text if len(text) <= characters else f"{text[:characters]}…"
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return html.escape(text)

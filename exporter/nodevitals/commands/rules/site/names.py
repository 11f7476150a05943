"""The scrape job and the URL of the runbooks, in the text of rules and of tests."""

from __future__ import annotations

import re

from nodevitals.commands.rules.site.values import JOB, RUNBOOK_BASE, Values

# job="nodevitals", or =~"|nodevitals" for that or none; also within a YAML string, where the quotes
# are escaped.
_MATCHER = re.compile(rf'\bjob(\s*(?:=~|!~|!=|=)\s*\\?"\|?)(?:{JOB})(\\?")')
_KEY = re.compile(rf'\bjob: "?{JOB}"?(?=[,}}\s])')
_PHRASE = re.compile(rf"\b(job must be named ){JOB}\b")


def with_names(text: str, values: Values) -> str:
    """The text with the site's job and runbooks."""
    if values.job != JOB:
        text = _MATCHER.sub(lambda match: f"job{match[1]}{_job(match[1], values)}{match[2]}", text)
        text = _KEY.sub(lambda _: f'job: "{values.job}"', text)
        text = _PHRASE.sub(lambda match: f"{match[1]}{values.job}", text)
    return text.replace(RUNBOOK_BASE, f"{values.runbook_base.rstrip('/')}/")


def _job(operator: str, values: Values) -> str:
    """The job as the operator reads it: a dot matches any character in a regular expression."""
    return values.job.replace(".", "[.]") if "~" in operator else values.job

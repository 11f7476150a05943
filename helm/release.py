"""The chart as a release publishes it: it names the images that the release has pushed.

In: the chart of this checkout, and each image as REPOSITORY:TAG@DIGEST. Out: a copy for
`helm package`, whose values have the repositories; the tag is the chart's appVersion. The digests
are in an annotation and not in the values: there they would make the chart ignore a site's
`image.tag`, and ask the site's own registry for a digest that its copy need not have.
Only the standard library: it runs where nothing is installed.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from typing import NamedTuple

CHART = Path(__file__).parent / "nodevitals"
REFERENCE = re.compile(r"([^@\s]+):([\w.-]+)@sha256:[0-9a-f]{64}")
IGNORED = shutil.ignore_patterns("__pycache__")


class Image(NamedTuple):
    """One image, and the line of values.yaml that names its repository."""

    name: str
    line: str


IMAGES = (
    Image("nodevitals", "  repository: nodevitals\n"),
    Image("nodevitals-hub", "    repository: nodevitals-hub\n"),
)


def repository_of(reference: str) -> str:
    """The repository of REPOSITORY:TAG@DIGEST. Raises ValueError for any other text."""
    found = REFERENCE.fullmatch(reference)
    if found is None:
        raise ValueError(f"{reference!r} is not REPOSITORY:TAG@sha256:DIGEST")
    return found[1]


def released(values: str, chart: str, references: tuple[str, ...]) -> tuple[str, str]:
    """The texts of values.yaml and Chart.yaml, with these references in the order of IMAGES.

    Raises ValueError for a reference that is none, and where a text is not as expected.
    """
    images = ""
    for image, reference in zip(IMAGES, references):
        own = image.line.replace(image.name, repository_of(reference))
        values = _replaced(values, image.line, own)
        images += f"    - name: {image.name}\n      image: {reference}\n"
    key = "\nannotations:\n"
    return values, _replaced(chart, key, f"{key}  artifacthub.io/images: |\n{images}")


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"{old.strip()!r} stands {text.count(old)} times in the chart, not once")
    return text.replace(old, new)


def main() -> None:
    """Read the options, write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("agent", "hub"):
        parser.add_argument(f"--{name}", required=True, metavar="REPOSITORY:TAG@DIGEST")
    parser.add_argument("--output", type=Path, required=True, help="folder that is made")
    options = parser.parse_args()
    names = ("values.yaml", "Chart.yaml")
    values, chart = ((CHART / name).read_text() for name in names)
    try:
        texts = released(values, chart, (options.agent, options.hub))
    except ValueError as error:
        parser.error(str(error))
    shutil.copytree(CHART, options.output, ignore=IGNORED)
    for name, text in zip(names, texts):
        (options.output / name).write_text(text)


if __name__ == "__main__":
    main()

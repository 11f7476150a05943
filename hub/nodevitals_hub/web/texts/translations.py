"""Texts in the language of a client, from gettext's catalogues in the folder `locale`.

In: an English text, a key of texts.py, or the Wording of an error. Out: a text of the language. A
text with `|` has a singular and a plural; `count` selects one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path

import polib

from nodevitals.errors import Wording
from nodevitals_hub.web.texts.texts import TEXTS

LANGUAGES = {"en": "English", "zh": "中文"}
_FOLDER = Path(__file__).parents[2] / "locale"


@cache
def catalogue(language: str) -> NullTranslations:
    """The translations of a language; English has none."""
    if language == "en":
        return NullTranslations()
    file = _FOLDER / language / "LC_MESSAGES/nodevitals_hub.po"
    return GNUTranslations(BytesIO(polib.pofile(str(file)).to_binary()))


def texts_of(language: str) -> Callable[..., str]:
    """A function that returns the text for a key, or for an English text without a key."""
    translations = catalogue(language)

    def t(text: str, /, count: int = 1, **words: object) -> str:
        singular, _, several = TEXTS.get(text, text).partition("|")
        if several:
            template = translations.ngettext(singular, several, count)
        elif text in TEXTS:
            template = translations.pgettext(text, singular)
        else:
            # gettext returns the catalogue's header for "".
            template = translations.gettext(singular) if singular else ""
        return template.format(count=count, **words)

    return t


def translated(language: str, text: str) -> str:
    """The text of a Wording; any other text unchanged."""
    if not isinstance(text, Wording):
        return text
    values = {
        name: translated(language, value) if isinstance(value, str) else value
        for name, value in text.values.items()
    }
    return catalogue(language).gettext(text.template).format(**values)

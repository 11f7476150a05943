"""The language of a dashboard: each text stands in both, side by side, where it is used."""

from __future__ import annotations

from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Say:
    """Chooses the text of one language: say("Nodes", "节点")."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def __call__(self, english: str, chinese: str) -> str:
        """Return the text in the chosen language."""
        return english if self.language == "en" else chinese

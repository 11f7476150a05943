"""What a person may have meant: an unknown word and the known ones in, the end of a message out."""

from __future__ import annotations

from collections.abc import Iterable


def meant(word: object, known: Iterable[str]) -> str:
    """`; did you mean X?` for the known words that look like this one, or ''."""
    import difflib  # here: only an error needs it, and the agent should not pay for it

    near = difflib.get_close_matches(str(word), list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""

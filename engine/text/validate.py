"""What may stand in a text at all."""

from __future__ import annotations

import re

from antiphon.engine.errors import InvalidRequest

_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
"""C0 and C1 controls except tab, line feed, carriage return and next line (U+0085, a line end in
text from some mainframes and from Unicode's own line-breaking rules), and surrogates."""


def validate_text(text: str, *, field: str = "text") -> None:
    """Refuse text that no client means to have spoken.

    A surrogate pair that a JSON decoder left in two halves is refused like a lone one: in a Python
    string a character beyond the basic plane is one code point.

    Raises:
        InvalidRequest: a control character or a surrogate, named by code point and position; the
            text itself is never part of the message.
    """
    found = _FORBIDDEN.search(text)
    if found is None:
        return
    code = ord(found.group())
    kind = "lone surrogate" if 0xD800 <= code <= 0xDFFF else "control character"
    raise InvalidRequest(
        f"{field} has a {kind} (U+{code:04X}) at character {found.start()}; tabs and line breaks "
        "are the only controls allowed",
        field=field,
    )

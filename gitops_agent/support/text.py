"""Text that came from elsewhere (repositories, programs), made harmless to print.

A commit message or a file name may hold terminal escapes, right-to-left overrides or line breaks that forge
output. They become visible instead of working.
"""

import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_control(text: str, *, lines: bool = False) -> str:
    """The text with every control, format and unassigned character made visible; ``lines`` keeps line breaks."""
    if text.isprintable():
        return text
    if lines:
        return "\n".join(escape_control(line) for line in text.replace("\r\n", "\n").split("\n"))
    return "".join(char if is_harmless(char) else _visible(char) for char in text)


def is_harmless(char: str) -> bool:
    """Whether a terminal only shows a character."""
    # Zs: no-break and other wide spaces are not "printable" for Python, yet only ever move the cursor right.
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _visible(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clipped(text: str, limit: int) -> str:
    """At most ``limit`` characters, the cut marked."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def one_line(text: str, limit: int) -> str:
    """The text on one line with single blanks, cut to ``limit`` characters and escaped."""
    return escape_control(clipped(" ".join(text.split()), limit))

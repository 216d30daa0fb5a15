"""What secrets look like that were not announced: public formats of tokens, and places where one is usual.

``looks_secret`` is for refusing what is written: few false alarms. ``mask_patterns`` is for showing: rather one
mask too many.
"""

import re
from functools import lru_cache

MASK = "***"

SHORTEST_TOKEN = 16
"""No known kind of credential has fewer characters."""

_TOKENS = r"""
      \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}        # model providers, payment providers
    | \bgh[pousr]_[A-Za-z0-9]{20,}                # forges
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}             # chat
    | \b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b               # clouds
    | \bAIza[0-9A-Za-z_-]{35}
    | \bhvs\.[A-Za-z0-9_-]{20,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # signed tokens
"""
_LITERAL = re.compile(
    rf"""
    {_TOKENS}
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----
    | \b[a-z][a-z0-9+.-]{{1,20}}://[^\s/:@]{{1,256}}:[^\s/@]{{1,256}}@    # a password in a URL
    """,
    re.VERBOSE,
)
_WORD = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key"
    r"|credentials?|authorization|cookie|client[_-]?secret|webhook[_-]?url|dsn)"
)
_SECRET_NAME = re.compile(_WORD + r"s?$", re.IGNORECASE)
_NAMED = (
    "passw", "passphrase", "pwd", "secret", "token", "key", "credential", "authorization", "cookie",
    "webhook", "dsn",
)  # fmt: skip
_PREFIXES = (
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "sk-", "sk_", "pk-", "pk_", "rk-",
    "rk_", "akia", "asia", "aiza", "hvs.", "eyj",
)  # fmt: skip
# What is masked: text without which a pattern cannot match, in lower case; the pattern; what stands in its place.
# Most text holds nothing of the kind, and a search for fixed text is many times cheaper than an expression that
# ignores case: so ten thousand agents stay cheap to print.
_MASKED: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        ("-----begin",),
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL),
        MASK,
    ),
    # user:password@ and token@ in a URL; the scheme and the host stay, they are what people look for.
    (("://",), re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@'\"<>]+@", re.IGNORECASE), rf"\1{MASK}@"),
    (
        ("bearer", "basic"),
        re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE),
        rf"\1\2{MASK}",
    ),
    (
        ("authorization",),
        re.compile(r"\b(authorization\s*[:=]\s*)(?!(?:bearer|basic)\s)[^\s,;'\"]+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    (
        _NAMED,
        re.compile(
            rf"(\b[\w.-]{{0,60}}?{_WORD}s?\\?[\"']?\s*(?:=|:)\s*)"
            # Escaped, double or single quotes (the closing one may be cut off), or up to the next separator.
            r"(\\\"[^\"\\\n]*(?:\\\"|$)|\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'[^'\n]*(?:'|$)|[^\s,;&'\"}\])]+)",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{MASK}",
    ),
    # Tokens that name themselves, also when they are cut.
    (_PREFIXES, re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abposr]-|sk-)[A-Za-z0-9_-]{8,}"), MASK),
    ((*_PREFIXES, ":"), re.compile(_TOKENS, re.VERBOSE), MASK),
)


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a known kind of credential."""
    return len(text) >= SHORTEST_TOKEN and _LITERAL.search(text) is not None


@lru_cache(4096)
def names_secret(name: str) -> bool:
    """Whether a field or variable of this name is likely to hold a secret (not a reference to one)."""
    return _SECRET_NAME.search(name) is not None


def mask_patterns(text: str) -> str:
    """The text with everything masked that looks like a secret."""
    folded = text.casefold()
    for hints, pattern, replacement in _MASKED:
        if any(hint in folded for hint in hints):
            text = pattern.sub(replacement, text)
    return text

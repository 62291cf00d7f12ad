"""The rules that names and texts of a report keep."""

import re
from typing import get_args

from limiirl.errors import InvalidParameter

# Lower case, since some file systems do not tell cases apart.
_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_RESERVED = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]")


def check_choice(what: str, value: object, choices: object) -> None:
    """A value is one of those that a Literal type lists."""
    allowed = get_args(choices)
    if value not in allowed:
        raise InvalidParameter(
            f"{what} must be one of {', '.join(map(repr, allowed))}; got {value!r}. Pass one of these."
        )


def check_name(what: str, name: str) -> None:
    """A name serves as a file name on every system, and as an anchor on a page."""
    if not (isinstance(name, str) and len(name) <= 80 and _NAME.fullmatch(name) and not _RESERVED.fullmatch(name)):
        raise InvalidParameter(
            f"a {what}'s name must be a file name of at most 80 lower-case letters, digits, single '-' and '_' "
            f"between them; got {name!r}. Use a name such as 'anid-by-wind'."
        )


def check_filled(what: str, text: str) -> None:
    """A text says something."""
    if not (isinstance(text, str) and text.strip()):
        raise InvalidParameter(f"{what} must be text that is not blank; got {text!r}. Say in words what is shown.")

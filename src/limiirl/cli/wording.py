"""What the library advises in Python, said in the options of the command that somebody typed."""

from __future__ import annotations

import re
from typing import Any

_WORD = r"(?<![\w./'=-]){}(?![\w./-])"
# The option of a command, what a message says of it, and what to type instead.
_ADVICE: tuple[tuple[str, str, str], ...] = (
    ("--columns", r"columns=\{'lat': \.\.\., 'lon': \.\.\.\}", "--columns lat=NAME,lon=NAME"),
    ("--columns", r"columns=\{'(\w+)': \.\.\.\}", r"--columns \1=NAME"),
    ("--columns", r"columns=\{'(\w+)': None\}", r"--columns \1="),
    ("--columns", r"columns=\{'(\w+)': '([^']*)'\}", r"--columns \1='\2'"),
    ("--columns", r"columns has no role", "--columns knows no role"),
    ("--swap", r"read_trips\(\.\.\., swap=True\)|swap=True", "--swap"),
    ("--nodes", r"(?<=pass )nodes=", "--nodes"),
    ("--component", r"component=None", "--component all"),
    ("--component", r"(?<='turns' or )None", "'all'"),
    ("--u-turns", r"u_turns='dead_ends'", "--u-turns"),
    ("--features", r"(?<=must be )a FeatureChoice, ", ""),
    ("--device", r"device='(\w+)'", r"--device \1"),
    ("--sample", r"sample(?==\d)", "--sample"),
    ("--workers", r"(?<=at least 1), or None", ""),
    ("--gamma", r"(?<=Leave )gamma(?= out)", "--gamma"),
    ("--gamma", r"(?<=; )gamma(?= is )", "--gamma"),
)
# Parameters by their Python names, wherever a message speaks of them.
_PARAMETERS = {
    "n_intents": "--intents",
    "step_s": "--step",
    "sigma_m": "--sigma",
    "by_driver": "--by-driver",
    "radius_km": "--radius",
    "n_drivers": "--drivers",
    "trips_each": "--trips-each",
    "noise_m": "--noise",
    "random_state": "--seed",
    "u_turns": "--u-turns",
}
# Those that are everyday words as well, only where a message begins with them.
_FIRST = ("device", "workers", "method", "model", "init", "component", "centre", "features", "seed")
# Who wrote a file: a command, for somebody who types commands.
_WRITERS: tuple[tuple[str, str], ...] = (
    (r"RoadNetwork\.save or (?=`limiirl)", ""),
    (r"Matches\.save or (?=`limiirl)", ""),
    (r"IntentMixture\.save(?= wrote)", "`limiirl fit`, `limiirl stream fit` or `limiirl roads fit`"),
    (r"write_features(?= wrote)", "`limiirl stream features`"),
    (r" See Trips\.skipped and Trips\.notes\.", ""),
)


def in_options(message: str, options: set[str]) -> str:
    """Return a message of the library in the words of a command that has these options.

    Examples
    --------
    >>> in_options("n_intents must be a number. Read it with swap=True.", {"--intents", "--swap"})
    '--intents must be a number. Read it with --swap.'
    >>> in_options("n_intents must be a number.", {"--demos"})
    'n_intents must be a number.'
    """
    for pattern, words in _WRITERS:
        message = re.sub(pattern, words, message)
    for option, pattern, words in _ADVICE:
        if option in options:
            message = re.sub(pattern, words, message)
    for name, option in _PARAMETERS.items():
        if option in options:
            message = re.sub(_WORD.format(name), option, message)
    first = message.partition(" ")[0]
    return f"--{message}" if first in _FIRST and f"--{first}" in options else message


def options_of(group: Any, words: list[str]) -> set[str]:
    """Return the options of the command that words name; none where they name no command.

    Parameters
    ----------
    group : click group
        Of all commands.
    words : list of str
        As typed.
    """
    for word in words:
        found = getattr(group, "commands", {}).get(word)
        if found is None:
            break
        group = found
    return {name for part in group.params for name in part.opts}

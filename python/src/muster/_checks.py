"""Checks of arguments. Errors name the argument."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn


def wrong_type(argument: str, wanted: str, given: object) -> NoReturn:
    raise TypeError(f"{argument} must be {wanted}, not {type(given).__name__}")


def text(given: object, argument: str) -> str:
    return given if isinstance(given, str) else wrong_type(argument, "a str", given)


def integer(given: object, argument: str) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        wrong_type(argument, "an int", given)
    return int(given.__index__())


def duration(given: object, argument: str) -> timedelta:
    if isinstance(given, timedelta):
        return given
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        wrong_type(argument, "a datetime.timedelta or a number of seconds", given)
    try:
        return timedelta(seconds=given)
    except (OverflowError, ValueError):
        raise ValueError(f"{argument} must be a possible number of seconds, not {given}") from None


def check_node_counts(min_nodes: int, max_nodes: int) -> None:
    if min_nodes < 1:
        raise ValueError(
            f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero "
            "(min_nodes)."
        )
    if max_nodes < min_nodes:
        raise ValueError(
            f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal "
            f"to the minimum number of rendezvous nodes ({min_nodes}): max_nodes ({max_nodes}), "
            f"min_nodes ({min_nodes})."
        )

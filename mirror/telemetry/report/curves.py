"""Curves with fewer points that look the same, and as few bytes as they need. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Point = tuple[int, int, int, int]
"""Time in ms since 1970, records left, next offset to copy, bytes copied so far."""


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most ``most`` (3 or more) of ``points``, the first and the last among them.

    Of each stretch the point is kept that stands out most, by records left over time, so that steps and standstills
    stay where they are (Steinarsson 2013, "Downsampling Time Series", largest triangle three buckets).
    """
    if len(points) <= most:
        return list(points)
    kept = [points[0]]
    stretch = (len(points) - 2) / (most - 2)
    for number in range(most - 2):
        here = points[1 + int(number * stretch) : 1 + int((number + 1) * stretch)]
        after = points[1 + int((number + 1) * stretch) : 1 + int((number + 2) * stretch)] or points[-1:]
        kept.append(_standing_out(kept[-1], here, after))
    return [*kept, points[-1]]


def _standing_out(before: Point, here: Sequence[Point], after: Sequence[Point]) -> Point:
    """The one of ``here`` that makes the largest triangle with ``before`` and the middle of ``after``."""
    time_ms, left = before[0], before[1]
    run = sum(point[0] for point in after) / len(after) - time_ms
    rise = sum(point[1] for point in after) / len(after) - left
    return max(here, key=lambda point: abs(run * (point[1] - left) - (point[0] - time_ms) * rise))


def as_differences(points: Iterable[Point], origin_ms: int) -> list[int]:
    """All numbers in one list, each as its difference from the point before; times count from ``origin_ms``."""
    flat: list[int] = []
    before: Point = (origin_ms, 0, 0, 0)
    for point in points:
        flat.extend(now - then for now, then in zip(point, before, strict=True))
        before = point
    return flat


def points_for_each(weights: Sequence[int], most_in_all: int, least: int, most: int) -> list[int]:
    """How many points each curve may have: by its weight, in the given bounds, and about ``most_in_all`` together."""
    share = most_in_all / max(1, sum(weights))
    return [max(least, min(most, int(weight * share))) for weight in weights]

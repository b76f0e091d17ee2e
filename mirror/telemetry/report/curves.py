"""Reduces curves to fewer points that look the same, and to few bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Point = tuple[int, int, int, int]
"""Time in ms since 1970, records left, next offset to copy, bytes copied so far."""


def thin(points: Sequence[Point], limit: int) -> list[Point]:
    """Return at most ``limit`` (3 or more) of ``points``, with the first and the last.

    The points are divided into buckets. Of each bucket, the result has the most prominent point by records left over
    time, so that steps and standstills stay visible (Steinarsson 2013, "Downsampling Time Series", largest triangle
    three buckets).
    """
    if len(points) <= limit:
        return list(points)
    selected = [points[0]]
    size = (len(points) - 2) / (limit - 2)
    for number in range(limit - 2):
        bucket = points[1 + int(number * size) : 1 + int((number + 1) * size)]
        after = points[1 + int((number + 1) * size) : 1 + int((number + 2) * size)] or points[-1:]
        selected.append(_most_prominent(selected[-1], bucket, after))
    return [*selected, points[-1]]


def _most_prominent(before: Point, bucket: Sequence[Point], after: Sequence[Point]) -> Point:
    """Return the point of ``bucket`` with the largest triangle to ``before`` and the mean of ``after``."""
    time_ms, left = before[0], before[1]
    run = sum(point[0] for point in after) / len(after) - time_ms
    rise = sum(point[1] for point in after) / len(after) - left
    return max(bucket, key=lambda point: abs(run * (point[1] - left) - (point[0] - time_ms) * rise))


def as_differences(points: Iterable[Point], origin_ms: int) -> list[int]:
    """Return all numbers in one list, each as its difference from the previous point; times start at ``origin_ms``."""
    flat: list[int] = []
    before: Point = (origin_ms, 0, 0, 0)
    for point in points:
        flat.extend(now - then for now, then in zip(point, before, strict=True))
        before = point
    return flat


def points_per_curve(weights: Sequence[int], total: int, minimum: int, maximum: int) -> list[int]:
    """Distribute about ``total`` points over curves by weight, from ``minimum`` to ``maximum`` points per curve."""
    share = total / max(1, sum(weights))
    return [max(minimum, min(maximum, int(weight * share))) for weight in weights]

"""The function of a flow that changes each record, or leaves it out: how it is found, made and called. Pure."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Final

from mirror.errors import FlowError
from mirror.relay.masking.record_masks import Masking, RecordMasks, Sample, share_of
from mirror.relay.model.policy import CopyPolicy
from mirror.wire.decode import Record

Transform = Callable[[Record], Record | None]

_MAX_ERROR_TEXT: Final = 200
_CURRENT_FOLDER: Final = ""
"""As ``sys.path`` names it."""


def transform_of(policy: CopyPolicy) -> Transform | None:
    """Return what a flow does to each record; None: nothing. Raises FlowError if its transform cannot be loaded."""
    own = one_at_a_time(policy.transform) if policy.transform else None
    return own if policy.masking is None else _for_tests(policy.masking, own)


def _for_tests(masking: Masking, own: Transform | None) -> Transform:
    """Return the transform of a test copy, which masks what the flow's ``own`` gives."""
    sample, masks = Sample(share_of(masking.sample)), RecordMasks(masking)

    shown = own if own is None or not masking.masks else _without_texts(own)

    def call(record: Record) -> Record | None:
        if not sample.has(record):
            return None
        if shown is None:
            return masks.masked(record)
        copy = transformed(shown, record)
        return None if copy is None else masks.masked(copy._replace(offset=record.offset))

    call.__module__, call.__qualname__ = ("test-copy", "mask") if own is None else _name_of(own)
    return call


# Invariant: No error of a test copy has anything of a record: of what its transform raises, only the type is shown.
# Test: tests/relay/masking/test_record_masks.py::test_errors_of_a_transform_show_nothing_that_is_masked
def _without_texts(own: Transform) -> Transform:
    """Return ``own`` with errors that do not have the texts of its exceptions, which often quote what they refuse."""

    def call(record: Record) -> Record | None:
        try:
            return own(record)
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything
            kind = type(error).__name__
        problem = f"failed with {kind}, whose text is hidden since it may have what the masks hide,"
        raise transform_error(own, record.offset, problem)

    call.__module__, call.__qualname__ = _name_of(own)
    return call


def load_transform(name: str) -> Transform:
    """Import the function called ``name`` ("package.module:function"). Raises FlowError.

    The current folder is searched last, from then on: no file there replaces a module of Python, Spark or this package.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise FlowError(f'transform = "{name}": give it as "package.module:function"')
    if _CURRENT_FOLDER not in sys.path:
        sys.path.append(_CURRENT_FOLDER)
    try:
        function: object = importlib.import_module(module_name)
        for part in path.split("."):
            function = getattr(function, part)
    except (Exception, SystemExit) as error:  # a module's own code may raise anything
        raise FlowError(f'transform = "{name}" cannot be loaded: {_one_line(error)}') from error
    if not callable(function):
        raise FlowError(f'transform = "{name}" is {type(function).__name__}, not a function of one record')
    return function


def one_at_a_time(name: str) -> Transform:
    """Return the transform called ``name``, which runs for one record at a time in this process. Raises FlowError.

    A transform may keep state, such as the buffer of a decoder, and users are promised that it needs no lock. The
    encoder's thread calls it, and so do searches for a position in theirs.
    """
    transform, lock = load_transform(name), _lock_of(name)

    def call(record: Record) -> Record | None:
        with lock:
            return transform(record)

    call.__module__, call.__qualname__ = _name_of(transform)
    return call


@functools.cache
def _lock_of(name: str) -> threading.Lock:
    del name
    return threading.Lock()


def transformed(transform: Transform, record: Record) -> Record | None:
    """Return what ``transform`` returns. Raises FlowError if it fails, or returns anything else."""
    try:
        copy = transform(record)
    except FlowError:  # of a test copy: it says where
        raise
    except Exception as error:
        raise transform_error(transform, record.offset, "failed", error) from error
    if copy is not None and not isinstance(copy, Record):
        raise transform_error(transform, record.offset, f"gave a {type(copy).__name__}, not a Record or None")
    return copy


def transform_error(transform: Transform, offset: int, problem: str, error: Exception | None = None) -> FlowError:
    """Return the error of a ``problem`` that ``transform`` has, or causes, at a source offset."""
    module, function = _name_of(transform)
    cause = f": {_one_line(error)}" if error is not None else ""
    return FlowError(f"transform {module}:{function} {problem} at offset {offset}{cause}")


def _name_of(transform: Transform) -> tuple[str, str]:
    """Return the module and the name of ``transform``, which may be any callable object."""
    kind = type(transform)
    return getattr(transform, "__module__", None) or kind.__module__, getattr(
        transform, "__qualname__", kind.__qualname__
    )


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MAX_ERROR_TEXT]

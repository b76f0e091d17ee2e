"""Every exception of the project, in one tree.

::

    MirrorError
    ├── ConfigError              a configuration is wrong; carries every problem found, not only the first one
    ├── MigrationError           what comes from MirrorMaker 2 cannot be imported, or not be written
    ├── SandboxError             the embedded brokers could not be fetched, started or stopped
    ├── FlowError                a flow cannot run: no topic matches, the target refuses, progress was lost
    │   ├── SeveralErrors        of several clusters, each of which keeps the flow from running
    │   ├── FlowHeld             a person has to decide before the flow copies again (exit status 4)
    │   │   └── MirrorMakerResumed   MirrorMaker 2 copies again what the flow has taken over
    │   ├── LatchMoved           the flow was held or released since this writer began
    │   └── RecordNotMasked      a record of a test copy cannot be masked
    └── KafkaError               reported by the client cores
        ├── KafkaTimeout         an API call exceeded its timeout (also a builtin TimeoutError)
        │   └── DeliveryTimeout  a batch exceeded delivery.timeout.ms (KIP-91)
        ├── ConnectionFailed     a broker could not be reached, or the connection broke
        ├── NotRetriable         a retry cannot succeed: calls fail immediately instead of waiting for their timeout
        │   ├── UnsupportedVersion     the broker and this client share no version of a request
        │   ├── AuthenticationFailed   TLS or SASL: one side did not accept the other
        │   ├── InvalidArgument        an argument cannot be sent (also a builtin ValueError)
        │   └── WrongState             the transaction's state does not allow the call
        ├── ProtocolError        bytes that do not follow the protocol
        │   ├── CorruptBatch     a record batch whose CRC-32C or structure is wrong
        │   └── BatchTooLarge    a record batch whose decompressed size exceeds its reader's limit
        ├── AcknowledgedRecordsLost   a batch was appended below the log's known end: the log has lost records
        ├── NeedsAbort           the transaction can only be aborted; carries the reason
        ├── BrokerError          a broker responded with an error code
        │   ├── AuthorizationFailed   a permission is missing; names the operation and the resource
        │   ├── Fenced                a newer producer took over this producer id or transactional id
        │   ├── OutOfOrderSequence    the log has lost acknowledged data (KIP-185)
        │   ├── TransactionExpired    the transaction exceeded transaction.timeout.ms: the coordinator aborted it
        │   ├── RecordRejected        the broker refuses the batch itself: an invalid record, a forbidden timestamp
        │   │   └── RecordTooLarge    the batch is larger than the topic or the broker allows: split or skip it
        │   └── OffsetOutOfRange      the log does not (or no longer) contain the requested offset
        ├── NoPosition           a partition has neither a position nor a rule for where to begin
        ├── LogTruncated         the log was truncated below the position: records that were read are lost (KIP-320)
        │   └── TopicRecreated   the topic was deleted and created again under the same name (KIP-516)
        ├── Woken                Consumer.wake() ended the call; what it asked for may have been done
        ├── ClientClosed         the call came after close(), or close() interrupted it
        └── NetworkThreadDied    the network thread has ended; carries the exception that ended it

Which package raises what: ``config`` and the cores' ``settings`` raise ConfigError; ``wire`` raises ProtocolError and
its children; ``cluster`` turns error codes into BrokerError and its children; ``runtime`` raises the connection and
thread errors, and InvalidArgument before anything is sent (``cluster`` raises it, too, for arguments that passed that
check); ``relay``, ``positions`` and ``spark`` raise FlowError; ``migration`` raises MigrationError. No message ever
contains a secret.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

MAX_NAMES_SHOWN: Final = 3
"""A message shows at most so many of a list of names, and how many more there are."""


def named(kind: str, names: Sequence[str]) -> str:
    """Return the first of ``names``, how many more there are, and what they are names of."""
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names[:MAX_NAMES_SHOWN])}{more}"


def of_flow(flow: str, line: str) -> str:
    """Return ``line`` with the flow that it is about in front, unless it begins with that."""
    return line if line.startswith((f"flow {flow}: ", f"flow {flow} ")) else f"flow {flow}: {line}"


def printable(text: str) -> str:
    """Return ``text`` with line breaks, control and escape characters replaced by their escape sequences.

    Names, addresses and messages come from brokers: they must not control a terminal or forge a line.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def problem_of(error: Exception) -> str:
    """Return the line about ``error`` in a report; it begins with the type of an error that is not expected."""
    return str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"


def brief(text: str, longest: int = 500) -> str:
    """Return a broker's ``text`` as one printable line of at most ``longest`` characters and an ellipsis.

    The broker may have sent millions of characters, and an unprintable character becomes up to ten printable ones.
    """
    text = text.strip()
    line = printable(" ".join(text[:longest].split()))
    return line if len(text) <= longest and len(line) <= longest else f"{line[:longest]}..."


class MirrorError(Exception):
    """Root of all errors raised on purpose. Its text is one line that says what happened, where, and what to do."""

    several_lines: ClassVar[bool] = False
    """The text has one line per problem instead; none of the lines contains text from a broker."""

    def __str__(self) -> str:
        text = super().__str__()
        return "\n".join(map(printable, text.split("\n"))) if self.several_lines else printable(text)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a configuration."""

    where: str
    """The file or section."""
    key: str
    """The full key."""
    value: str
    """The wrong value as text (``"***"`` for a secret)."""
    allowed: str
    """The values that are allowed."""

    def __str__(self) -> str:
        place = f"{self.where}: {self.key}" if self.where else self.key
        return f"{place} = {self.value}: {self.allowed}"


class ConfigError(MirrorError):
    """A configuration is wrong. ``problems`` holds every problem found; the text has one line for each."""

    several_lines = True

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(printable(str(problem)) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class MigrationError(MirrorError):
    """What comes from MirrorMaker 2 cannot be imported, or what was made of it cannot be written."""


class SandboxError(MirrorError):
    """The embedded brokers could not be fetched, started or stopped."""

    several_lines = True


class FlowError(MirrorError):
    """A flow cannot run. The next run continues from what this one committed."""


class SeveralErrors(FlowError):
    """Several clusters keep a flow from running. The text has one line for each of ``errors``."""

    several_lines = True

    def __init__(self, errors: Sequence[MirrorError]) -> None:
        self.errors: Final = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))

    def __reduce__(self) -> tuple[type[SeveralErrors], tuple[tuple[MirrorError, ...]]]:
        return type(self), (self.errors,)


class RecordNotMasked(FlowError):
    """A record of a test copy cannot be masked. The text has nothing of its content.

    ``left_out`` says whether the flow leaves such records out; otherwise the partition fails.
    """

    def __init__(self, text: str, *, left_out: bool = False) -> None:
        self.left_out: Final = left_out
        super().__init__(text)

    def __reduce__(self) -> tuple[partial[RecordNotMasked], tuple[str]]:
        return partial(type(self), left_out=self.left_out), (str(self),)


class FlowHeld(FlowError):
    """A person has to decide before the flow copies again: exit status 4."""


class MirrorMakerResumed(FlowHeld):
    """MirrorMaker 2 copies again what the flow has taken over from it. A person must stop one of both."""


class LatchMoved(FlowError):
    """The flow was held or released since this writer began: what it knows may be old. A new run may go on."""


class KafkaError(MirrorError):
    """Root of the errors that the client cores report."""

    may_have_been_written: bool = False
    """The error ends a batch whose outcome is unknown: it may be in the log."""


class KafkaTimeout(KafkaError, TimeoutError):
    """An API call exceeded its timeout. ``__cause__`` is the last error before that, if there was one."""


class DeliveryPhase(enum.StrEnum):
    """What a batch was waiting for when it expired."""

    FENCING = "fencing"
    METADATA = "metadata"
    MEMORY = "memory"
    QUEUE = "queue"
    IN_FLIGHT = "in flight"
    COMMITTING = "committing"


class DeliveryCause(enum.StrEnum):
    """Why a batch expired. ``BACKLOG`` means that the partition was available but other batches were ahead."""

    NO_LEADER = "no leader"
    NOT_ENOUGH_REPLICAS = "not enough replicas"
    NO_ANSWER = "no answer"
    REFUSED = "refused"
    THROTTLED = "throttled"
    BACKLOG = "backlog"
    COORDINATOR = "coordinator"


class DeliveryTimeout(KafkaTimeout):
    """A batch exceeded ``delivery.timeout.ms`` (KIP-91).

    ``age_ms`` is the time since the batch was created: ``queued_ms`` of it were spent waiting and ``in_flight_ms``
    without a response, over ``attempts`` attempts. ``may_have_been_written`` is True if a Produce request with the
    batch was sent and its outcome is unknown: the batch may be in the log, or get there later.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        record_count: int = 0,
        age_ms: int = 0,
        queued_ms: int = 0,
        in_flight_ms: int = 0,
        attempts: int = 0,
        phase: DeliveryPhase = DeliveryPhase.QUEUE,
        cause: DeliveryCause = DeliveryCause.BACKLOG,
        last_error: KafkaError | None = None,
        may_have_been_written: bool = False,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.record_count = record_count
        self.age_ms = age_ms
        self.queued_ms = queued_ms
        self.in_flight_ms = in_flight_ms
        self.attempts = attempts
        self.phase = phase
        self.cause = cause
        self.last_error = last_error
        self.may_have_been_written = may_have_been_written

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),), self.__dict__

    def describe(self) -> dict[str, object]:
        """Return the expiry as plain values (str, int, bool, None) by attribute name, for results and telemetry.

        ``phase``, ``cause`` and ``last_error`` (None if there was none) are texts.
        """
        return {
            "phase": self.phase.value,
            "cause": self.cause.value,
            "age_ms": self.age_ms,
            "queued_ms": self.queued_ms,
            "in_flight_ms": self.in_flight_ms,
            "attempts": self.attempts,
            "record_count": self.record_count,
            "last_error": None if self.last_error is None else str(self.last_error),
            "may_have_been_written": self.may_have_been_written,
        }


class ConnectionFailed(KafkaError):
    """A broker could not be reached, or the connection broke before the response arrived."""


class NotRetriable(KafkaError):
    """A retry cannot succeed until an operator changes something, so calls fail immediately."""


def is_outage(error: BaseException) -> bool:
    """Whether ``error`` says that no broker answers; a timeout because of what one has answered does not."""
    return isinstance(error, ConnectionFailed | KafkaTimeout) and not isinstance(error.__cause__, BrokerError)


class UnsupportedVersion(NotRetriable):
    """The broker and this client share no version of a request (KIP-35), or the broker lacks a feature."""


class AuthenticationFailed(NotRetriable):
    """TLS or SASL: the broker refused this client, or this client does not trust the broker (KIP-152).

    The text names the broker's address and the reason, never a secret.
    """


class InvalidArgument(NotRetriable, ValueError):
    """An argument cannot be sent: a wrong type, a number out of range, a text that is too long.

    The text names the argument, its value, and the values that are allowed.
    """


class WrongState(NotRetriable):
    """The transaction's state does not allow the call. The text names both, and the call that has to come first."""


class NeedsAbort(KafkaError):
    """The transaction can only be aborted: call ``abort_transaction()``. ``__cause__`` is the failure."""


class ProtocolError(KafkaError):
    """Bytes that do not follow the protocol: truncated, oversized, or with impossible lengths."""


class CorruptBatch(ProtocolError):
    """A record batch whose CRC-32C or structure is wrong. Names topic, partition and offset once they are known."""


class BatchTooLarge(ProtocolError):
    """A record batch whose decompressed size exceeds its reader's limit: a decompression bomb, or a limit too low."""


class BrokerError(KafkaError):
    """A broker responded with an error code (``code``, as in Kafka's ``Errors``)."""

    def __init__(self, message: str, code: int = -1) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code), self.__dict__


class AuthorizationFailed(BrokerError):
    """The client lacks a permission on the topic, group, transactional id or cluster that the text names."""


class Fenced(BrokerError):
    """A newer producer took over this producer id or transactional id; this one must stop."""


class OutOfOrderSequence(BrokerError):
    """A gap in a producer's sequence numbers: the log has lost acknowledged data (KIP-185)."""


class RecordRejected(BrokerError):
    """The broker refuses the batch itself (too large, invalid record or timestamp): a retry cannot succeed."""


class RecordTooLarge(RecordRejected):
    """The batch is larger than ``max.message.bytes`` (error 10) or the segment (18). Smaller ones may be accepted."""


class TransactionExpired(BrokerError):
    """The transaction was open for longer than ``transaction.timeout.ms``: its coordinator has aborted it.

    The broker responds as if another producer had taken over (47 or 90); the elapsed time distinguishes the two.
    """


class OffsetOutOfRange(BrokerError):
    """The partition's log does not, or no longer, contain the requested offset."""

    log_start: int | None = None
    """The log start offset if the broker sent it. Apache Kafka's brokers (seen: 4.3) never send it."""


class NoPosition(KafkaError):
    """A partition has no position: no offset was sought or committed, and ``auto.offset.reset`` is ``none``."""


class LogTruncated(KafkaError):
    """The log was truncated below the position (KIP-320): to continue reading would hide the loss of records.

    ``diverging_offset`` is the offset from which the logs differ, or None if it is not known.
    """

    def __init__(self, message: str, diverging_offset: int | None = None) -> None:
        super().__init__(message)
        self.diverging_offset = diverging_offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.diverging_offset), self.__dict__


class AcknowledgedRecordsLost(KafkaError):
    """A batch was appended at ``offset``, below ``log_end``, which the log had reached: it lost records."""

    def __init__(self, message: str, offset: int = -1, log_end: int = -1) -> None:
        super().__init__(message)
        self.offset = offset
        self.log_end = log_end
        self.may_have_been_written = True

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.offset, self.log_end), self.__dict__


class TopicRecreated(LogTruncated):
    """The topic was deleted and created again under the same name (KIP-516): its offsets mean other records."""


class Woken(KafkaError):
    """``Consumer.wake()`` ended the call (Java's WakeupException); what it asked for may have been done."""


class ClientClosed(KafkaError):
    """The call came after close(), or close() cut it short."""


class NetworkThreadDied(KafkaError):
    """The network thread could not start or has ended. ``__cause__`` is the exception that ended it."""

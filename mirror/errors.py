"""Every exception of the project, in one tree.

::

    MirrorError
    ├── ConfigError              a configuration is wrong; carries every problem found, not only the first
    ├── SandboxError             the embedded brokers could not be fetched, started or stopped
    ├── FlowError                a flow cannot run as asked: no topic matches, target refuses, progress lost
    └── KafkaError               what the client cores report
        ├── KafkaTimeout         an API call outlived its timeout (also a builtin TimeoutError)
        │   └── DeliveryTimeout  a batch outlived delivery.timeout.ms (KIP-91)
        ├── ConnectionFailed     no broker, or not this one, could be reached, or it went away
        ├── NotRetriable             trying again cannot help: calls fail at once instead of waiting for their timeout
        │   ├── UnsupportedVersion     the broker and this client share no version of a request
        │   ├── AuthenticationFailed   TLS or SASL: one side did not accept the other
        │   ├── InvalidArgument        a call was given what cannot be sent (also a builtin ValueError)
        │   └── WrongState             a call that does not fit the transaction's state
        ├── ProtocolError        bytes that do not follow the protocol
        │   ├── CorruptBatch     a record batch whose CRC-32C or structure is wrong
        │   └── BatchTooLarge    a record batch that unfolds to more than its reader has room for
        ├── NeedsAbort           the transaction cannot be committed any more; carries why
        ├── BrokerError          a broker answered with an error code
        │   ├── AuthorizationFailed   a permission is missing; says which, and on what
        │   ├── Fenced                a newer producer took over this producer id or transactional id
        │   ├── OutOfOrderSequence    acknowledged data is gone from the log (KIP-185)
        │   ├── TransactionExpired    the transaction outlived transaction.timeout.ms: the coordinator aborted it
        │   ├── RecordRejected        the batch itself is refused: invalid, forbidden timestamp
        │   │   └── RecordTooLarge    it is larger than the topic or broker allows: split it, or let it go
        │   └── OffsetOutOfRange      the offset asked for is not in the log (any more)
        ├── NoPosition           a partition without a position and without a rule for where to begin
        ├── LogTruncated         the log was cut back below the position: records that were read are gone (KIP-320)
        │   └── TopicRecreated   the topic was deleted and made again under its name (KIP-516)
        ├── ClientClosed         the call came after, or was cut short by, close()
        └── NetworkThreadDied    the network thread is gone; carries what killed it

Who raises what: ``config`` and the cores' ``settings`` raise ConfigError; ``wire`` raises ProtocolError and children;
``cluster`` turns error codes into BrokerError and its children; ``runtime`` raises the connection and thread errors,
and InvalidArgument before anything is sent (``cluster`` too, for what slipped through);
``relay`` and ``spark`` raise FlowError. No message ever contains a secret.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


def printable(text: str) -> str:
    """``text`` without line breaks, control or escape characters: what they were is shown instead.

    Names, addresses and messages come from brokers; they must not be able to speak to a terminal, or forge a line.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def brief(text: str, longest: int = 500) -> str:
    """``text`` of a broker in one printable line of at most ``longest`` characters and an ellipsis.

    The broker may have sent millions, and what is not printable is shown as up to ten characters each.
    """
    text = text.strip()
    line = printable(" ".join(text[:longest].split()))
    return line if len(text) <= longest and len(line) <= longest else f"{line[:longest]}..."


class MirrorError(Exception):
    """Root of all errors raised on purpose; its text is one line that says what, where and what to do.

    ``several_lines``: a line for each problem instead, none of them with anything of a broker's.
    """

    several_lines: ClassVar[bool] = False

    def __str__(self) -> str:
        text = super().__str__()
        return "\n".join(map(printable, text.split("\n"))) if self.several_lines else printable(text)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a configuration.

    ``where`` is the file or section, ``key`` the full key, ``value`` the offending value as text (``"***"`` for a
    secret), ``allowed`` what would be right.
    """

    where: str
    key: str
    value: str
    allowed: str

    def __str__(self) -> str:
        place = f"{self.where}: {self.key}" if self.where else self.key
        return f"{place} = {self.value}: {self.allowed}"


class ConfigError(MirrorError):
    """A configuration is wrong. ``problems`` holds all that was found, one line each in the text."""

    several_lines = True

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(printable(str(problem)) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class SandboxError(MirrorError):
    """The embedded brokers could not be fetched, started or stopped."""

    several_lines = True


class FlowError(MirrorError):
    """A flow cannot run as asked; nothing was half-written that the next run would not continue."""


class KafkaError(MirrorError):
    """Root of what the client cores report.

    ``may_have_been_written`` is True where it ends a batch whose outcome is not known: "unknown" is no plain failure.
    """

    may_have_been_written: bool = False


class KafkaTimeout(KafkaError, TimeoutError):
    """An API call outlived its timeout. The last error seen on the way, where there was one, is the ``__cause__``."""


class DeliveryPhase(enum.StrEnum):
    """Where a batch was when its time was up."""

    FENCING = "fencing"
    METADATA = "metadata"
    MEMORY = "memory"
    QUEUE = "queue"
    IN_FLIGHT = "in flight"
    COMMITTING = "committing"


class DeliveryCause(enum.StrEnum):
    """Why a batch's time was up: an unavailable partition is told from mere waiting behind others (``BACKLOG``)."""

    NO_LEADER = "no leader"
    NOT_ENOUGH_REPLICAS = "not enough replicas"
    NO_ANSWER = "no answer"
    REFUSED = "refused"
    THROTTLED = "throttled"
    BACKLOG = "backlog"
    COORDINATOR = "coordinator"


class DeliveryTimeout(KafkaTimeout):
    """A batch outlived ``delivery.timeout.ms`` (KIP-91).

    ``topic``, ``partition`` and ``record_count`` say what it was; ``age_ms`` is the time since its creation, of which
    it spent ``queued_ms`` waiting and ``in_flight_ms`` unanswered, over ``attempts`` attempts; ``phase`` is where it
    was, ``cause`` why, ``last_error`` the last failure seen. ``may_have_been_written`` is True where a Produce for it
    was sent and its outcome is not known: it may be in the log, or come to be.
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
        """What is known of the expiry as plain values (str, int, bool, None), for results and telemetry.

        The keys are the attributes' names; ``phase``, ``cause`` and ``last_error`` (None where there was none) are
        texts, times are ms.
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
    """A broker could not be reached, or the connection broke before the answer came."""


class NotRetriable(KafkaError):
    """Trying again cannot help until somebody changes something; calls fail at once."""


class UnsupportedVersion(NotRetriable):
    """The broker and this client share no version of a request (KIP-35), or a feature is not there."""


class AuthenticationFailed(NotRetriable):
    """TLS or SASL: the broker refused this client, or this client does not trust the broker (KIP-152).

    The text names the broker's address and the reason, never a secret.
    """


class InvalidArgument(NotRetriable, ValueError):
    """A call was given what cannot be sent: a wrong type, a number out of range, a text too long.

    The text says which argument, what it was, and what is allowed.
    """


class WrongState(NotRetriable):
    """A call that the transaction's state does not allow; the text names both, and the call that comes first."""


class NeedsAbort(KafkaError):
    """The transaction cannot be committed any more: call ``abort_transaction()``; ``__cause__`` is what failed."""


class ProtocolError(KafkaError):
    """Bytes that do not follow the protocol: truncated, oversized, or with impossible lengths."""


class CorruptBatch(ProtocolError):
    """A record batch whose CRC-32C or structure is wrong; names topic, partition and offset once they are known."""


class BatchTooLarge(ProtocolError):
    """A record batch that, decompressed, is more than its reader has room for: a bomb, or a limit that is too low."""


class BrokerError(KafkaError):
    """A broker answered with an error code (``code``, as in Kafka's ``Errors``)."""

    def __init__(self, message: str, code: int = -1) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code), self.__dict__


class AuthorizationFailed(BrokerError):
    """A permission is missing on the topic, group, transactional id or cluster that the text names."""


class Fenced(BrokerError):
    """A newer producer took over this producer id or transactional id; this one must stop."""


class OutOfOrderSequence(BrokerError):
    """A gap in a producer's sequence numbers: acknowledged data is gone from the log (KIP-185)."""


class RecordRejected(BrokerError):
    """The broker refuses the batch itself (too large, invalid record or timestamp); a retry cannot help."""


class RecordTooLarge(RecordRejected):
    """The batch is larger than ``max.message.bytes`` (error 10) or the segment (18); smaller ones may be taken."""


class TransactionExpired(BrokerError):
    """The transaction was open for longer than ``transaction.timeout.ms``: its coordinator has aborted it.

    The broker answers as if another producer had taken over (47 or 90); the clock tells the two apart.
    """


class OffsetOutOfRange(BrokerError):
    """The offset asked for is not in the partition's log, or not any more.

    ``log_start`` is where the log begins, where the broker told it; Apache Kafka's own (seen: 4.3) never does.
    """

    log_start: int | None = None


class NoPosition(KafkaError):
    """A partition has no position: none was sought or committed, and ``auto.offset.reset`` is ``none``."""


class LogTruncated(KafkaError):
    """The log was cut back below the position (KIP-320): reading on would hide that records read before are gone.

    ``diverging_offset`` is where the logs part, where that is known.
    """

    def __init__(self, message: str, diverging_offset: int | None = None) -> None:
        super().__init__(message)
        self.diverging_offset = diverging_offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.diverging_offset), self.__dict__


class TopicRecreated(LogTruncated):
    """The topic was deleted and made again under its name (KIP-516): the same offset means another record there."""


class ClientClosed(KafkaError):
    """The call came after close(), or close() cut it short."""


class NetworkThreadDied(KafkaError):
    """The network thread could not start or is gone; ``__cause__`` is what killed it."""

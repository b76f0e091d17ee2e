"""Advice for operators: for each problem that a partition can have, what it means and what to do about it.

In the texts, ``FLOW`` stands for the flow's name. In the commands, ``TOPIC`` and ``NUMBER`` stand for the topic and the
partition, on the source or the target as the command's ``--bootstrap-server`` says. The commands are Apache Kafka's.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from mirror.errors import DeliveryCause
from mirror.relay.progress.open_transactions import OpenTransaction


class Level(enum.StrEnum):
    """The severity of a problem, worst first."""

    CRITICAL = "critical"
    """The copy does not continue until an operator acts."""
    SERIOUS = "serious"
    """The copy stopped, and will be tried again."""
    WARNING = "warning"
    """Records are missing, late, or others than were copied."""
    NOTE = "note"
    """The copy recovered."""


@dataclass(frozen=True, slots=True)
class AdviceStep:
    """One thing to do, and its command if there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """A problem: its title, what it means, and what to do about it."""

    level: Level
    title: str
    meaning: str
    steps: tuple[AdviceStep, ...]
    remark: str = ""
    """What else an operator has to know."""


_TOPICS: Final = "kafka-topics.sh --bootstrap-server $TARGET --describe"
CONTINUES: Final = AdviceStep(
    "You do not have to do anything else: the next run, or the stream, continues where this one stopped."
)
RUN_AGAIN: Final = AdviceStep("Then run the flow again. It continues where this one stopped.")
_UNCLEAN_ELECTION: Final = (
    "If these brokers are lost, an unclean leader election makes the partition available again, without the records"
    " that only they had. Such records are before the committed progress and are not copied again automatically:"
    " compare both"
    ' clusters afterwards, and copy the missing part again with a flow of another name and "from".'
)

EXPIRED: Final[dict[str, Advice]] = {
    DeliveryCause.NO_LEADER: Advice(
        Level.SERIOUS,
        "Expired: no leader on the target",
        "The target partition had no leader for longer than delivery.timeout.ms: the brokers with its replicas are"
        " down, or no new leader was elected.",
        (
            AdviceStep(
                "Find the partitions without a leader, and the brokers that have their replicas.",
                f"{_TOPICS} --unavailable-partitions",
            ),
            AdviceStep("Start these brokers again. " + CONTINUES.text),
            AdviceStep(
                _UNCLEAN_ELECTION,
                "kafka-leader-election.sh --bootstrap-server $TARGET --election-type unclean"
                " --topic TOPIC --partition NUMBER",
            ),
        ),
    ),
    DeliveryCause.NOT_ENOUGH_REPLICAS: Advice(
        Level.SERIOUS,
        "Expired: not enough replicas on the target",
        "The partition has a leader, but fewer in-sync replicas than min.insync.replicas, or these did not confirm in"
        " time: a broker is down, or a follower is too slow.",
        (
            AdviceStep(
                "Find the partitions below their minimum, and the replicas that are missing.",
                f"{_TOPICS} --under-min-isr-partitions",
            ),
            AdviceStep("Restart the missing followers; check the disk and the network of those that lag."),
            AdviceStep(
                "To continue with fewer copies of the data for a while, lower the topic's minimum. Records written in"
                " that time are lost if the brokers that have them are lost.",
                "kafka-configs.sh --bootstrap-server $TARGET --alter --entity-type topics --entity-name TOPIC"
                " --add-config min.insync.replicas=1",
            ),
        ),
    ),
    DeliveryCause.NO_ANSWER: Advice(
        Level.SERIOUS,
        "Expired: the target's broker did not respond",
        "The partition has a leader, but that broker could not be reached, or did not respond to a request, within"
        " delivery.timeout.ms.",
        (
            AdviceStep(
                "Check the broker that the error names: is it running, and can its disk, CPU and network keep up?"
            ),
            AdviceStep(
                "If it is running, check the connection: can the hosts of Spark's executors reach the address that the"
                " broker advertises (advertised.listeners, firewall, DNS)?"
            ),
            AdviceStep(
                'If the broker is slow only at times, set a longer "delivery.timeout.ms" under [flows.FLOW.producer].'
            ),
        ),
    ),
    DeliveryCause.REFUSED: Advice(
        Level.SERIOUS,
        "Expired: the target refused every attempt",
        "The broker responded to every attempt with a retriable error until delivery.timeout.ms had passed.",
        (
            AdviceStep("The last error gives the broker's reason. Search the broker's log for it at that time."),
            CONTINUES,
        ),
    ),
    DeliveryCause.THROTTLED: Advice(
        Level.SERIOUS,
        "Expired: throttled by the target",
        "A quota of the target delayed the copy for longer than delivery.timeout.ms.",
        (
            AdviceStep(
                "Check the quotas (those of users, too: --entity-type users). Raise producer_byte_rate for this client"
                " if the target has the capacity.",
                "kafka-configs.sh --bootstrap-server $TARGET --describe --entity-type clients",
            ),
            AdviceStep(
                "Or set max-bytes-per-second under [flows.FLOW] somewhat below the quota. The copy then waits before it"
                " reads, and no batch expires."
            ),
        ),
    ),
    DeliveryCause.BACKLOG: Advice(
        Level.SERIOUS,
        "Expired: behind other batches in the queue",
        "The partition accepted batches all the time, but the batches ahead of this one took the target longer than"
        " delivery.timeout.ms.",
        (
            AdviceStep(
                'See "Where the time went". If most of it is producing, the target is the bottleneck: its disks, its'
                " network, or its followers."
            ),
            AdviceStep(
                'Set a longer "delivery.timeout.ms" under [flows.FLOW.producer], or a lower max-bytes-per-second under'
                " [flows.FLOW]."
            ),
        ),
    ),
    DeliveryCause.COORDINATOR: Advice(
        Level.SERIOUS,
        "Expired: the target's coordinator",
        "The records were delivered, but their transaction, or the commit of progress, was not completed. The"
        " coordinating broker is not available, or an earlier transaction cannot end because a replica to which the"
        " coordinator has to write its marker does not respond.",
        (
            AdviceStep(
                "Check the coordinators' topics: this one, and __consumer_offsets.",
                f"{_TOPICS} --topic __transaction_state",
            ),
            AdviceStep(
                "Check the state of this partition's transaction.",
                "kafka-transactions.sh --bootstrap-server $TARGET describe --transactional-id mirror.FLOW.TOPIC.NUMBER",
            ),
            AdviceStep(
                "If it stays in PrepareCommit or PrepareAbort, the coordinator waits for the leaders of the"
                " transaction's partitions: make them available again.",
                f"{_TOPICS} --unavailable-partitions",
            ),
        ),
    ),
}
"""By the cause of the last expiry."""

EXPIRED_OTHER: Final = Advice(
    Level.SERIOUS,
    "Expired",
    "A batch was not acknowledged within delivery.timeout.ms.",
    (AdviceStep("The last error gives the reason."), CONTINUES),
)

FAILED_OTHER: Final = Advice(
    Level.CRITICAL,
    "Failed",
    "The error gives the reason. What was committed before it remains valid.",
    (
        AdviceStep("Run the flow again: it continues from there. If the error returns, --debug shows more."),
        AdviceStep("Spark's log is beside this report."),
    ),
)

UNFINISHED: Final[dict[str, tuple[str, Advice]]] = {
    "limits": (
        r"max-bytes-per-run|max-partitions-in-parallel",
        Advice(
            Level.NOTE,
            "Deferred by the flow's limits",
            "max-bytes-per-run or max-partitions-in-parallel did not allow more in this run.",
            (AdviceStep("Run the flow again until its exit status is 0."),),
        ),
    ),
    "not prepared": (
        r"its target topic is not prepared yet",
        Advice(
            Level.NOTE,
            "New on the source or in the flow",
            "The partition was created, or added to the flow, while the flow ran, and its target topic was not ready"
            " when the run was planned.",
            (AdviceStep("A stream copies it as soon as it has prepared the topic; otherwise the next run copies it."),),
        ),
    ),
    "cut short": (
        r"the run was cut short",
        Advice(
            Level.NOTE,
            "The run was interrupted",
            "A signal ended the run before the partition was copied. The error says what was committed.",
            (RUN_AGAIN,),
        ),
    ),
    "task lost": (
        r"its task was lost",
        Advice(
            Level.SERIOUS,
            "The Spark task was lost",
            "Its executor or its Python worker died, or the run was killed, before the task returned its results. What"
            " it had committed remains valid.",
            (
                AdviceStep("Spark's log, beside this report, says which process died. The usual reason is memory."),
                AdviceStep(
                    "If it is, raise spark.executor.memoryOverhead: a worker needs buffer.memory, fetch.max.bytes and"
                    " 50 KB per partition in addition to what it uses at its start."
                ),
                RUN_AGAIN,
            ),
        ),
    ),
}
"""By a pattern in the error of an unfinished partition."""

STUCK: Final = Advice(
    Level.SERIOUS,
    "Stuck: the run ended before its first batch was delivered",
    "The delivery of its first batch continues in the next run. It expires after delivery.timeout.ms.",
    (
        AdviceStep("Open the partition and see in which phase it spent its time: that is where it waits."),
        AdviceStep(
            "If it waits for the target, find the partitions with too few replicas there.",
            f"{_TOPICS} --under-min-isr-partitions",
        ),
    ),
)
UNFINISHED_OTHER: Final = Advice(
    Level.WARNING,
    "Not finished",
    "The run ended before the partition was copied. Everything acknowledged is committed.",
    (CONTINUES,),
)
FENCED: Final = Advice(
    Level.WARNING,
    "Fenced: another attempt took over",
    "A newer attempt at the same partition fenced this one. No record is lost or duplicated, and the newer attempt"
    " continues.",
    (
        AdviceStep(
            "If you did not start the flow twice, check whether a scheduler does, or whether a job still runs"
            " elsewhere: mirror status says which run copies the flow now.",
            "mirror status --config mirror.toml --flow FLOW",
        ),
    ),
)

TARGET_LOSSES_MENDED: Final = Advice(
    Level.WARNING,
    "The target lost what had been copied, and it was copied again",
    "Its log lost acknowledged records, usually by an unclean leader election, or the topic was made again. The records"
    " that it lacked are there again, in order. Consumers that had read beyond the loss read them again at other"
    " offsets.",
    (
        AdviceStep(
            "Find the cause on the target: check unclean.leader.election.enable, min.insync.replicas, the topic's"
            " replicas, and the brokers' logs."
        ),
    ),
)
GAPS_SKIPPED: Final = Advice(
    Level.WARNING,
    "Records that the source lost were skipped",
    'The flow has on-gap = "skip": records that no longer exist on the source are counted, and missing on the target.',
    (
        AdviceStep(
            "To prevent this, keep records longer on the source than it takes to copy a backlog (here: a week), or copy"
            " more often.",
            "kafka-configs.sh --bootstrap-server $SOURCE --alter --entity-type topics --entity-name TOPIC"
            " --add-config retention.ms=604800000",
        ),
    ),
)
RECORDS_SKIPPED: Final = Advice(
    Level.WARNING,
    "Records were skipped by the flow's policies",
    "These records were not copied, because of on-too-large, on-bad-timestamp, on-no-key, or the transform.",
    (AdviceStep('If you need them, set the policy to "fail": the error then names the first record. Fix its cause.'),),
)
THROTTLED: Final = Advice(
    Level.NOTE,
    "Slowed down by the target's quota",
    "The target throttled this partition for a considerable part of its time.",
    (
        AdviceStep(
            "If the copy has to be faster, check the quotas and raise producer_byte_rate for this client.",
            "kafka-configs.sh --bootstrap-server $TARGET --describe --entity-type clients",
        ),
    ),
)
FLAPPING: Final = Advice(
    Level.NOTE,
    "The leader changed repeatedly",
    "Each change costs a metadata request and a retry. The usual reason is a broker that restarts or loses its"
    " network.",
    (AdviceStep("Check the controller's log for these partitions, and the brokers that lead them in turn."),),
)
BEHIND: Final = Advice(
    Level.WARNING,
    "Still behind",
    "The copy makes progress, but its oldest uncopied record has waited for minutes.",
    (
        AdviceStep('See "Where the time went" for the bottleneck, and whether the partition\'s curve falls.'),
        AdviceStep(
            "If it does not, give the flow more tasks (spark.default.parallelism), or the topic more partitions."
        ),
    ),
)

WITHHELD: Final = Advice(
    Level.WARNING,
    "Records behind an open transaction of the source",
    "A producer of the source has begun a transaction and not ended it. Consumers with isolation.level=read_committed,"
    " as this copy, get no records behind it, and no lag shows that. The copy continues as soon as the transaction"
    " ends: after the producer's transaction.timeout.ms at the latest, unless its coordinator has lost the"
    " transaction.",
    (
        AdviceStep(
            "Find its producer and its start time. End or restart the producer if it hangs.",
            "kafka-transactions.sh --bootstrap-server $SOURCE describe-producers --topic TOPIC --partition NUMBER",
        ),
        AdviceStep("If the producer no longer exists, abort the transaction:", "ABORT"),
    ),
)

MAYBE_WRITTEN: Final = (
    "A batch that expired may have reached the target's log. With exactly once, its transaction is aborted, and"
    " consumers with isolation.level=read_committed never see it. With at least once, its records may be duplicated."
)
"""The remark if an expired batch may have been written."""


def withheld(transaction: OpenTransaction) -> Advice:
    """Return the advice about an open transaction of the source."""
    find_producer, abort = WITHHELD.steps
    return replace(WITHHELD, steps=(find_producer, replace(abort, command=transaction.command("$SOURCE"))))


def recovered(cause: str) -> Advice:
    """Return the advice about a partition whose batches expired because of ``cause`` and were delivered later."""
    expired = EXPIRED.get(cause, EXPIRED_OTHER)
    return replace(
        expired,
        level=Level.NOTE,
        title=f"Expired, and recovered: {cause}",
        meaning=f"Batches expired, and a later attempt copied them: no records are missing. {expired.meaning}",
        steps=(
            expired.steps[0],
            AdviceStep("If it happens again, see the partition's page: it lists every expiry with all its details."),
        ),
    )

"""What to do about what went wrong, for whoever runs the clusters: one entry for each way in which a partition is sick.

In the texts, ``FLOW`` is the flow's name; in the commands also ``TOPIC`` and ``NUMBER``, source or target as the
command's ``--bootstrap-server`` says. The commands are Apache Kafka's own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from mirror.errors import DeliveryCause
from mirror.relay.progress.open_transactions import OpenTransaction


class Level(enum.StrEnum):
    """How bad it is, worst first."""

    CRITICAL = "critical"
    """It does not get on until somebody does something."""
    SERIOUS = "serious"
    """It did not get on, and will be tried again."""
    WARNING = "warning"
    """Something is missing, or late."""
    NOTE = "note"
    """It went well in the end."""


@dataclass(frozen=True, slots=True)
class AdviceStep:
    """One thing to do, with the command for it where there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """A way to be sick: its name, what it means, and what to do about it; ``remark`` is what to know besides."""

    level: Level
    title: str
    meaning: str
    steps: tuple[AdviceStep, ...]
    remark: str = ""


_TOPICS: Final = "kafka-topics.sh --bootstrap-server $TARGET --describe"
GOES_ON: Final = AdviceStep(
    "Nothing else is to be done here: the next run, or the stream, goes on where this one stopped."
)
RUN_AGAIN: Final = AdviceStep("Then run the flow again: it goes on where this one stopped.")
_GONE: Final = (
    "If they are gone for good, an unclean election brings the partition back without what only they held. What it"
    " loses is behind the progress and is not copied again by itself: compare both sides afterwards, and copy the"
    ' missing part again with a flow of another name and "from".'
)

EXPIRED: Final[dict[str, Advice]] = {
    DeliveryCause.NO_LEADER: Advice(
        Level.SERIOUS,
        "Expired: no leader on the target",
        "No broker led the target partition for longer than delivery.timeout.ms: those that hold its replicas are"
        " down, or do not get a new leader elected.",
        (
            AdviceStep(
                "See which partitions have no leader, and on which brokers their replicas are.",
                f"{_TOPICS} --unavailable-partitions",
            ),
            AdviceStep("Start these brokers again. " + GOES_ON.text),
            AdviceStep(
                _GONE,
                "kafka-leader-election.sh --bootstrap-server $TARGET --election-type unclean"
                " --topic TOPIC --partition NUMBER",
            ),
        ),
    ),
    DeliveryCause.NOT_ENOUGH_REPLICAS: Advice(
        Level.SERIOUS,
        "Expired: not enough replicas on the target",
        "The leader is there, but fewer replicas than min.insync.replicas follow it, or they did not confirm in time:"
        " a broker is down, or a follower is too slow.",
        (
            AdviceStep(
                "See which partitions are below their minimum, and which replicas are missing.",
                f"{_TOPICS} --under-min-isr-partitions",
            ),
            AdviceStep("Bring the missing followers back; look at the disk and the network of those that lag."),
            AdviceStep(
                "To go on with fewer copies of the data for a while, lower the topic's minimum. What is written then is"
                " lost with the brokers that have it.",
                "kafka-configs.sh --bootstrap-server $TARGET --alter --entity-type topics --entity-name TOPIC"
                " --add-config min.insync.replicas=1",
            ),
        ),
    ),
    DeliveryCause.NO_ANSWER: Advice(
        Level.SERIOUS,
        "Expired: the target's broker did not answer",
        "The partition has a leader, but that broker could not be reached, or answered no request in time, until"
        " delivery.timeout.ms was over.",
        (
            AdviceStep(
                "Look at the broker that the error names: is it up, and are its disk, CPU and network keeping up?"
            ),
            AdviceStep(
                "Where it is up, look at the way there: can the hosts of Spark's executors reach the address that the"
                " broker advertises (advertised.listeners, firewall, DNS)?"
            ),
            AdviceStep(
                'If it is only slow at times, a longer "delivery.timeout.ms" under [flows.FLOW.producer] waits for it.'
            ),
        ),
    ),
    DeliveryCause.REFUSED: Advice(
        Level.SERIOUS,
        "Expired: the target refused again and again",
        "Each attempt was answered with an error that can pass, and did not before delivery.timeout.ms was over.",
        (
            AdviceStep("The last error says what the broker objects to: look it up in the broker's log at that time."),
            GOES_ON,
        ),
    ),
    DeliveryCause.THROTTLED: Advice(
        Level.SERIOUS,
        "Expired: throttled by the target",
        "A quota of the target held the copy back for longer than delivery.timeout.ms.",
        (
            AdviceStep(
                "See the quotas (of the users, too: --entity-type users), and raise producer_byte_rate for this"
                " client, if the target can take it.",
                "kafka-configs.sh --bootstrap-server $TARGET --describe --entity-type clients",
            ),
            AdviceStep(
                "Or set max-bytes-per-second under [flows.FLOW] somewhat below the quota: then the copy waits before"
                " it reads, and nothing grows old."
            ),
        ),
    ),
    DeliveryCause.BACKLOG: Advice(
        Level.SERIOUS,
        "Expired: behind others in the queue",
        "The partition itself took batches all the time. More was waiting before this batch than the target takes"
        " within delivery.timeout.ms.",
        (
            AdviceStep(
                'See "Where the time went". If it is producing, the target is the limit: its disks, its network, or its'
                " followers."
            ),
            AdviceStep(
                'Give it more time ("delivery.timeout.ms" under [flows.FLOW.producer]), or less at once'
                " (max-bytes-per-second under [flows.FLOW])."
            ),
        ),
    ),
    DeliveryCause.COORDINATOR: Advice(
        Level.SERIOUS,
        "Expired: the target's coordinator",
        "What did not get through is not the data but its transaction, or the commit of progress. The broker that"
        " coordinates them is away, or an earlier transaction cannot end because a replica hangs that it has to write"
        " its marker to.",
        (
            AdviceStep(
                "See whether the coordinators' own topics are well; __consumer_offsets is the other one.",
                f"{_TOPICS} --topic __transaction_state",
            ),
            AdviceStep(
                "See in which state this partition's transaction is.",
                "kafka-transactions.sh --bootstrap-server $TARGET describe --transactional-id mirror.FLOW.TOPIC.NUMBER",
            ),
            AdviceStep(
                "If it stays in PrepareCommit or PrepareAbort, its markers wait for the leaders of its partitions:"
                " bring them back.",
                f"{_TOPICS} --unavailable-partitions",
            ),
        ),
    ),
}
"""By the cause of the last expiry."""

EXPIRED_OTHERWISE: Final = Advice(
    Level.SERIOUS,
    "Expired",
    "A batch was not acknowledged within delivery.timeout.ms.",
    (AdviceStep("The last error says why."), GOES_ON),
)

FAILED_OTHERWISE: Final = Advice(
    Level.CRITICAL,
    "Failed",
    "The error says why. What was copied before it counts.",
    (
        AdviceStep("Run the flow again: it goes on from there. Where the error comes back, --debug shows more."),
        AdviceStep("Spark's log is beside this report."),
    ),
)

UNFINISHED: Final[dict[str, tuple[str, Advice]]] = {
    "limits": (
        r"max-bytes-per-epoch|max-partitions-in-parallel",
        Advice(
            Level.NOTE,
            "Left for later by the flow's limits",
            "max-bytes-per-epoch or max-partitions-in-parallel let this much through and no more.",
            (AdviceStep("Run the flow again until it ends with exit status 0; a stream goes on by itself."),),
        ),
    ),
    "not prepared": (
        r"it appeared after the flow's target topics were prepared",
        Advice(
            Level.NOTE,
            "New on the source",
            "It came while the flow ran, and its target topic was not ready when the epoch was planned.",
            (AdviceStep("A stream copies it as soon as it has prepared the topic, and else the next run does."),),
        ),
    ),
    "cut short": (
        r"the run was cut short",
        Advice(
            Level.NOTE,
            "The run was cut short",
            "A signal ended the run before the partition was copied. What its error says is committed counts.",
            (RUN_AGAIN,),
        ),
    ),
    "task lost": (
        r"its task was lost",
        Advice(
            Level.SERIOUS,
            "The Spark task was lost",
            "Its executor or its Python worker died, or the run was killed, before it could answer. What it had"
            " committed counts.",
            (
                AdviceStep("Spark's log, beside this report, says what died. Often it is memory:"),
                AdviceStep(
                    "Raise spark.executor.memoryOverhead; a worker takes buffer.memory, fetch.max.bytes and 50 KB for"
                    " each partition beyond its start."
                ),
                RUN_AGAIN,
            ),
        ),
    ),
}
"""By a pattern that the error of an unfinished partition has in it."""

STUCK: Final = Advice(
    Level.SERIOUS,
    "Stuck: the epoch ended before its first batch was through",
    "Its first undelivered batch waits, over the end of the epoch. It expires when delivery.timeout.ms is over.",
    (
        AdviceStep("See what it spent its time on (open the partition): that is where it waits."),
        AdviceStep(
            "If it is the target, see which partitions are not well there.", f"{_TOPICS} --under-min-isr-partitions"
        ),
    ),
)
UNFINISHED_OTHERWISE: Final = Advice(
    Level.WARNING,
    "Not finished",
    "The run, or the epoch, ended before the partition was copied. What was acknowledged is committed.",
    (GOES_ON,),
)
FENCED: Final = Advice(
    Level.WARNING,
    "Fenced: another attempt took over",
    "A newer attempt at the same partition shut this one out. Nothing is lost or doubled, and the newer one goes on.",
    (
        AdviceStep(
            "If you did not start the flow twice, look for a scheduler that does, or for a job that still runs"
            " elsewhere: mirror status says which run copies the flow now.",
            "mirror status --config mirror.toml --flow FLOW",
        ),
    ),
)

PASSED_OVER: Final = Advice(
    Level.WARNING,
    "Records that the source lost were passed over",
    'The flow says on-gap = "skip": what was not there any more is counted, and missing on the target.',
    (
        AdviceStep(
            "So that it does not happen again, keep records longer on the source than a backlog takes (here: a week),"
            " or copy more often.",
            "kafka-configs.sh --bootstrap-server $SOURCE --alter --entity-type topics --entity-name TOPIC"
            " --add-config retention.ms=604800000",
        ),
    ),
)
LEFT_OUT: Final = Advice(
    Level.WARNING,
    "Records were left out, as the flow's policies say",
    "They were copied nowhere. on-too-large, on-bad-timestamp, on-no-key, or the transform asked for it.",
    (AdviceStep('If they are wanted, set the policy to "fail" to learn which ones they are, and mend their cause.'),),
)
THROTTLED: Final = Advice(
    Level.NOTE,
    "Slowed down by the target's quota",
    "For a good part of its time the target had it wait.",
    (
        AdviceStep(
            "See the quotas, and raise producer_byte_rate for this client, if it should be quicker.",
            "kafka-configs.sh --bootstrap-server $TARGET --describe --entity-type clients",
        ),
    ),
)
FLAPPING: Final = Advice(
    Level.NOTE,
    "The leader changed again and again",
    "Each change costs a look-up and a retry. Brokers that come and go, or are cut off, show so.",
    (AdviceStep("Look at the controller's log for these partitions, and at the brokers that lead them by turns."),),
)
BEHIND: Final = Advice(
    Level.WARNING,
    "Still behind",
    "It gets on, but its oldest record that is not copied has waited for minutes.",
    (
        AdviceStep('See "Where the time went" for what holds it up, and whether its curve falls.'),
        AdviceStep(
            "If it does not, give the flow more tasks (spark.default.parallelism), or the topic more partitions."
        ),
    ),
)

WITHHELD: Final = Advice(
    Level.WARNING,
    "Records behind an open transaction of the source",
    "A producer of the source has begun a transaction there and not ended it. Readers of committed records, as this"
    " copy is, get nothing behind it, and no lag shows that. It goes on by itself as soon as the transaction ends, at"
    " its producer's transaction.timeout.ms at the latest, unless its coordinator has lost it.",
    (
        AdviceStep(
            "See whose it is, and since when: end or restart that producer if it hangs.",
            "kafka-transactions.sh --bootstrap-server $SOURCE describe-producers --topic TOPIC --partition NUMBER",
        ),
        AdviceStep("If its producer is gone, abort the transaction:", "ABORT"),
    ),
)

IN_DOUBT: Final = (
    "A batch that expired may be in the target's log all the same. Exactly once, its transaction is aborted: readers"
    " with isolation.level=read_committed never see it. At least once, its records may come twice."
)
"""Where an expiry says that its batch may have been written."""


def withheld(found: OpenTransaction) -> Advice:
    """Where an open transaction of the source keeps records from being copied."""
    seen, abort = WITHHELD.steps
    return replace(WITHHELD, steps=(seen, replace(abort, command=found.command("$SOURCE"))))


def recovered(cause: str) -> Advice:
    """Where batches expired of ``cause``, and the partition got over it."""
    known = EXPIRED.get(cause, EXPIRED_OTHERWISE)
    return replace(
        known,
        level=Level.NOTE,
        title=f"Expired, and recovered: {cause}",
        meaning=f"Batches expired on the way, and a later attempt copied them: nothing is missing. {known.meaning}",
        steps=(
            known.steps[0],
            AdviceStep("If it comes back: each expiry, in the partition's page, tells all about it."),
        ),
    )

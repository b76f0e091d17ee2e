"""What to do about partitions that failed, by the words of their errors; see :mod:`mirror.telemetry.report.advice`."""

from __future__ import annotations

from typing import Final

from mirror.relay.progress.gaps import GapKind
from mirror.telemetry.report.advice import RUN_AGAIN, Advice, AdviceStep, Level

FAILED: Final[dict[str, tuple[str, Advice]]] = {
    GapKind.RETENTION: (
        r"retention: copied up to offset",
        Advice(
            Level.CRITICAL,
            "The source deleted records before they were copied",
            "The source's retention was shorter than the copy took to get there. The partition stops there, since"
            " nothing is passed over silently.",
            (
                AdviceStep(
                    'If the flow may go on without them, set on-gap = "skip" under [flows.FLOW] and run it again: they'
                    " are counted, and everything behind them is copied."
                ),
                AdviceStep(
                    "So that it does not happen again, keep records longer than a backlog takes (here: a week), or"
                    " copy more often.",
                    "kafka-configs.sh --bootstrap-server $SOURCE --alter --entity-type topics --entity-name TOPIC"
                    " --add-config retention.ms=604800000",
                ),
            ),
        ),
    ),
    GapKind.TRUNCATED: (
        r"truncated: copied up to offset",
        Advice(
            Level.CRITICAL,
            "The source lost records that were copied already",
            "The source's log was cut back, mostly by an unclean leader election. The target holds records that the"
            " source does not have any more, and new ones have taken their offsets.",
            (
                AdviceStep(
                    "Find out what happened on the source: see unclean.leader.election.enable, and the brokers' logs."
                ),
                AdviceStep(
                    'To keep what the target has and go on behind it, set on-gap = "skip" under [flows.FLOW]. To make'
                    " both sides equal again, copy into another target topic, or under another flow name."
                ),
            ),
        ),
    ),
    GapKind.RECREATED: (
        r"recreated: copied up to offset",
        Advice(
            Level.CRITICAL,
            "The source topic was deleted and made again",
            "Its name is the same, but it is another topic: what was copied belongs to the old one.",
            (
                AdviceStep(
                    'If the new topic is to follow the old one in the same target topic, set on-gap = "skip" under'
                    " [flows.FLOW]."
                ),
                AdviceStep("If they are to be kept apart, copy it under another flow name into another target topic."),
            ),
        ),
    ),
    "progress lost": (
        r"progress-lost",
        Advice(
            Level.CRITICAL,
            "The progress is lost",
            "The target holds records of this partition, but how far the copy had come is not known any more. To begin"
            " anew would copy them twice, so that it is not done silently.",
            (
                AdviceStep(
                    "If twice is no harm, or the target topic was emptied, set start-over = true under [flows.FLOW],"
                    " run it once, and take it out again."
                ),
                AdviceStep(
                    'If you know how far it had come, copy the rest under another flow name, with "from" and'
                    " start-over = true."
                ),
                AdviceStep(
                    "Progress is kept for the target's offsets.retention.minutes after the last run: run the flow more"
                    " often than that."
                ),
            ),
        ),
    ),
    "target recreated": (
        r"target-recreated",
        Advice(
            Level.CRITICAL,
            "The target topic was deleted and made again",
            "What this flow had copied is not in it any more. To go on where the copy had come to would leave all of"
            " that out, so that it is not done silently.",
            (
                AdviceStep(
                    "To copy everything that the source still has into the new topic, set start-over = true under"
                    " [flows.FLOW], run it once, and take it out again."
                ),
                AdviceStep("Find out who deletes topics on the target: records that the source has deleted are lost."),
            ),
        ),
    ),
    "target truncated": (
        r"target-truncated",
        Advice(
            Level.CRITICAL,
            "The target lost records that it had acknowledged",
            "The target's log was cut back, mostly by an unclean leader election, or by a broker with one replica that"
            " lost its disk. The error says how many offsets are missing.",
            (
                AdviceStep(
                    "Find out what happened on the target: see unclean.leader.election.enable, min.insync.replicas, the"
                    " topic's replicas, and the brokers' logs."
                ),
                AdviceStep(
                    "To copy everything once more, what is still there twice, set start-over = true under [flows.FLOW],"
                    " run it once, and take it out again. To have each record once, copy into another target topic,"
                    " or under another flow name into an emptied one."
                ),
            ),
        ),
    ),
    "other source": (
        r"other source:|its progress was kept by a flow",
        Advice(
            Level.CRITICAL,
            "Two deployments share a flow name",
            "The progress on the target was kept by a flow of the same name from another source cluster. To go on would"
            " mix the two.",
            (AdviceStep("Give one of the two flows another name. It then begins at its start."),),
        ),
    ),
    "target name": (
        r"its target topic('s name would have| \S+ collides on cluster)",
        Advice(
            Level.CRITICAL,
            "The target takes no topic of that name",
            "The name that the topic would have on the target is too long, or differs only in '.' and '_' from that of"
            " another topic there.",
            (
                AdviceStep("Leave the topic out by topics-exclude under [flows.FLOW], if it is not wanted."),
                AdviceStep(
                    'Or copy it by a flow with naming = "identity", or, where its name is too long, under a shorter'
                    " name of the source cluster. The next run, or the stream, tries again by itself."
                ),
            ),
        ),
    ),
    "target topic": (
        r"target topic \S+ (cannot be (created|described)|has \d+ partitions)|its target topic is to be created with",
        Advice(
            Level.CRITICAL,
            "The target topic could not be made ready",
            "The target's brokers refused to create the topic, or to give it as many partitions as the source has. The"
            " error has their words: a policy, a permission, a limit, or a replication factor that they cannot serve.",
            (
                AdviceStep("Mend what the error names; replication-factor is under [flows.FLOW]."),
                AdviceStep(
                    "Or create the topic yourself, with the source's number of partitions (here: 6).",
                    "kafka-topics.sh --bootstrap-server $TARGET --create --topic TOPIC --partitions 6",
                ),
                AdviceStep("The next run, or the stream, tries again by itself."),
            ),
        ),
    ),
    "source without leader": (
        r"the source partition (has no leader|does not answer)",
        Advice(
            Level.SERIOUS,
            "No leader on the source",
            "There was nobody to read the partition from.",
            (
                AdviceStep(
                    "See which of the source's partitions have no leader, and start the brokers that hold them.",
                    "kafka-topics.sh --bootstrap-server $SOURCE --describe --unavailable-partitions",
                ),
                RUN_AGAIN,
            ),
        ),
    ),
    "silent source": (
        r"nothing came from the source for",
        Advice(
            Level.SERIOUS,
            "The source gave nothing",
            "The source has more, and did not send it.",
            (
                AdviceStep(
                    "Look at the partition's leader: is it up, and can Spark's executors reach what it advertises?"
                ),
                RUN_AGAIN,
            ),
        ),
    ),
    "corrupt": (
        r"mend the source's log",
        Advice(
            Level.CRITICAL,
            "A batch in the source's log is damaged",
            "Its checksum or its structure is wrong. What came before it was copied; nothing behind it was.",
            (
                AdviceStep(
                    "Another replica may have it whole: put that one first in the list of replicas"
                    " (kafka-reassign-partitions.sh), then make it the leader.",
                    "kafka-leader-election.sh --bootstrap-server $SOURCE --election-type preferred"
                    " --topic TOPIC --partition NUMBER",
                ),
                AdviceStep(
                    "If all have it damaged, the records in that batch are lost. Copy what is behind it under another"
                    ' flow name with "from".'
                ),
            ),
        ),
    ),
    "too large": (
        r"is larger than the target takes",
        Advice(
            Level.CRITICAL,
            "A record is too large for the target",
            "It is larger than the target topic's max.message.bytes even in a batch of its own.",
            (
                AdviceStep(
                    "Raise the limit to the source topic's, then run the flow again.",
                    "kafka-configs.sh --bootstrap-server $TARGET --alter --entity-type topics --entity-name TOPIC"
                    " --add-config max.message.bytes=10485760",
                ),
                AdviceStep('Or leave such records out, counted: on-too-large = "skip" under [flows.FLOW].'),
            ),
        ),
    ),
    "bad timestamp": (
        r"INVALID_TIMESTAMP|on-bad-timestamp",
        Advice(
            Level.CRITICAL,
            "A record's time is not allowed on the target",
            "It lies further in the past or in the future than the target topic's message.timestamp.before.max.ms and"
            " message.timestamp.after.max.ms allow (brokers before 4.0: message.timestamp.difference.max.ms for both)."
            " Mostly a producer's clock or unit is wrong.",
            (
                AdviceStep(
                    "Allow it on the target topic, then run the flow again.",
                    "kafka-configs.sh --bootstrap-server $TARGET --alter --entity-type topics --entity-name TOPIC"
                    " --add-config message.timestamp.after.max.ms=9223372036854775807",
                ),
                AdviceStep(
                    'Or give such records the nearest time that is allowed (on-bad-timestamp = "clamp" under'
                    ' [flows.FLOW]), or leave them out, counted ("skip").'
                ),
            ),
        ),
    ),
    "no key": (
        r"takes no record without a key",
        Advice(
            Level.CRITICAL,
            "A record has no key, and the target topic is compacted",
            "A compacted topic refuses it.",
            (
                AdviceStep('Leave such records out, counted: on-no-key = "skip" under [flows.FLOW].'),
                AdviceStep("Or let the target topic be as the source's: cleanup.policy=delete."),
            ),
        ),
    ),
    "permission": (
        r"AUTHORIZATION_FAILED|the permission .* is missing",
        Advice(
            Level.CRITICAL,
            "A permission is missing",
            "The error names the operation and what it is on.",
            (
                AdviceStep(
                    "Grant it; the README has a table of all that a flow needs. For the target topic, for example:",
                    "kafka-acls.sh --bootstrap-server $TARGET --add --allow-principal User:MIRROR"
                    " --operation Write --operation Read --operation Describe --topic TOPIC",
                ),
                RUN_AGAIN,
            ),
        ),
    ),
    "transform": (
        r"transform \S+:\S+ (failed|gave)",
        Advice(
            Level.CRITICAL,
            "The transform failed",
            "The function that the flow sends every record through raised an error, or gave what is no record.",
            (AdviceStep("Mend it for the record that the error names (its offset is that of the source)."), RUN_AGAIN),
        ),
    ),
}
"""By a pattern that the error of a failed partition has in it: mirror.relay's and mirror.spark's words."""

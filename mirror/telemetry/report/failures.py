"""Advice about partitions that failed, by the text of their errors; see :mod:`mirror.telemetry.report.advice`."""

from __future__ import annotations

from typing import Final

from mirror.relay.progress.gaps import GapKind
from mirror.telemetry.report.advice import RUN_AGAIN, Advice, AdviceStep, Level

_COPY_AGAIN: Final = (
    AdviceStep(
        "If duplicates do no harm, or the target topic was emptied, set start-over = true under"
        " [flows.FLOW], run the flow once, and remove the setting."
    ),
    AdviceStep(
        'If you know the last position, copy the rest under another flow name, with "from" and start-over = true.'
    ),
)

FAILED: Final[dict[str, tuple[str, Advice]]] = {
    GapKind.RETENTION: (
        r"retention: copied up to offset",
        Advice(
            Level.CRITICAL,
            "The source deleted records before they were copied",
            "The source's retention is shorter than the copy's delay. The copy of this partition stops there, because"
            " it never skips records silently.",
            (
                AdviceStep(
                    'If the flow may continue without them, set on-gap = "skip" under [flows.FLOW] and run it again:'
                    " it counts them and copies everything behind them."
                ),
                AdviceStep(
                    "To prevent this, keep records longer than it takes to copy a backlog (here: a week), or copy more"
                    " often.",
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
            "The source lost records that were already copied",
            "The source's log was truncated, usually by an unclean leader election. The target has records that the"
            " source has lost, and new records of the source have their offsets.",
            (
                AdviceStep("Find the cause on the source: check unclean.leader.election.enable and the brokers' logs."),
                AdviceStep(
                    'To keep the records of the target and continue behind them, set on-gap = "skip" under'
                    " [flows.FLOW]. To make both sides equal again, copy into another target topic, or under another"
                    " flow name."
                ),
            ),
        ),
    ),
    GapKind.RECREATED: (
        r"recreated: copied up to offset",
        Advice(
            Level.CRITICAL,
            "The source topic was deleted and created again",
            "The name is the same, but the topic is another one: the records that were copied belong to the old one.",
            (
                AdviceStep(
                    'To copy the new topic behind the old one into the same target topic, set on-gap = "skip" under'
                    " [flows.FLOW]."
                ),
                AdviceStep("To keep them apart, copy the new one under another flow name into another target topic."),
            ),
        ),
    ),
    "progress lost": (
        r"progress-lost",
        Advice(
            Level.CRITICAL,
            "The progress is lost",
            "The target has records of this partition, but the progress of the copy is no longer known. A copy from the"
            " beginning would duplicate them, so it does not start automatically.",
            (
                *_COPY_AGAIN,
                AdviceStep(
                    "The target keeps progress for offsets.retention.minutes after the last run: run the flow more"
                    " often than that."
                ),
            ),
        ),
    ),
    "target recreated": (
        r"target-recreated",
        Advice(
            Level.CRITICAL,
            "The target topic was deleted and created again",
            "It no longer contains the records that this flow had copied. To continue from the progress would leave"
            " them out, so the copy does not continue automatically.",
            (
                AdviceStep(
                    "To copy everything that the source still has into the new topic, set"
                    ' on-target-recreated = "start-over" under [flows.FLOW]; remove it after a run if this is not to'
                    " happen by itself the next time."
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
            "The target's log was truncated, usually by an unclean leader election, or because the broker with the only"
            " replica lost its disk. The error says how many offsets are missing, and why they were not copied again:"
            ' the flow has on-target-loss = "fail", or no anchor of its progress topic is in what is left of the log.',
            (
                AdviceStep(
                    "Find the cause on the target: check unclean.leader.election.enable, min.insync.replicas, the"
                    " topic's replicas, and the brokers' logs."
                ),
                AdviceStep(
                    "To copy everything again, with duplicates of the records that still exist, set start-over = true"
                    " under [flows.FLOW], run the flow once, and remove the setting. To have each record once, copy"
                    " into another target topic, or under another flow name into an emptied one."
                ),
            ),
        ),
    ),
    "position unproved": (
        r"position-unproved",
        Advice(
            Level.CRITICAL,
            "How far the source was copied cannot be shown",
            "An attempt that was interrupted had copied more than its progress says, and the two logs do not show where"
            " that ends: records were deleted by retention, or differ from what the flow would copy now. To guess could"
            " leave records out or duplicate them.",
            (
                AdviceStep(
                    "If the flow's transform or headers were changed since the last run, change them back and run the"
                    " flow once."
                ),
                AdviceStep(
                    "Otherwise compare the two partitions with kafka-console-consumer from the offsets in the error on."
                ),
                *_COPY_AGAIN,
            ),
        ),
    ),
    "other source": (
        r"other source:|its progress was kept by a flow",
        Advice(
            Level.CRITICAL,
            "Two deployments share a flow name",
            "The progress on the target belongs to a flow of the same name from another source cluster. To continue"
            " would mix the records of the two.",
            (AdviceStep("Give one of the two flows another name. It then starts from the beginning."),),
        ),
    ),
    "target name": (
        r"its target topic('s name would have| \S+ collides on cluster)",
        Advice(
            Level.CRITICAL,
            "The target cannot have a topic of that name",
            "The topic's name on the target would be too long, or would differ from the name of another topic there"
            " only in '.' and '_'.",
            (
                AdviceStep("If the topic is not needed, exclude it with topics-exclude under [flows.FLOW]."),
                AdviceStep(
                    'Otherwise copy it with a flow that has naming = "identity", or, if its name is too long, give the'
                    " source cluster a shorter name. The next run, or the stream, tries again automatically."
                ),
            ),
        ),
    ),
    "target topic": (
        r"target topic \S+ (cannot be (created|described)|has \d+ partitions)|its target topic is to be created with",
        Advice(
            Level.CRITICAL,
            "The target topic could not be prepared",
            "The target's brokers refused to create the topic, or to give it as many partitions as the source topic"
            " has. The error has their reason: a policy, a permission, a limit, or a replication factor that is too"
            " large.",
            (
                AdviceStep("Fix what the error names; replication-factor is under [flows.FLOW]."),
                AdviceStep(
                    "Or create the topic yourself, with as many partitions as the source topic has (here: 6).",
                    "kafka-topics.sh --bootstrap-server $TARGET --create --topic TOPIC --partitions 6",
                ),
                AdviceStep("The next run, or the stream, tries again automatically."),
            ),
        ),
    ),
    "source without leader": (
        r"the source partition (has no leader|does not answer)",
        Advice(
            Level.SERIOUS,
            "No leader on the source",
            "The source partition has no leader to read from.",
            (
                AdviceStep(
                    "Find the source's partitions without a leader, and start the brokers that have their replicas.",
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
            "The source sent no records",
            "The source has more records, but did not send them.",
            (
                AdviceStep(
                    "Check the partition's leader: is it running, and can Spark's executors reach its advertised"
                    " address?"
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
            "Its checksum or its structure is wrong. Everything before it was copied; nothing behind it was.",
            (
                AdviceStep(
                    "Another replica may have an intact copy: make it the first in the list of replicas"
                    " (kafka-reassign-partitions.sh), then elect it as the leader.",
                    "kafka-leader-election.sh --bootstrap-server $SOURCE --election-type preferred"
                    " --topic TOPIC --partition NUMBER",
                ),
                AdviceStep(
                    "If the batch is damaged in all replicas, its records are lost. Copy the records behind it under"
                    ' another flow name with "from".'
                ),
            ),
        ),
    ),
    "segment": (
        r"RECORD_LIST_TOO_LARGE",
        Advice(
            Level.CRITICAL,
            "A record is larger than a segment of the target topic",
            "Its batch does not fit into a segment of the log: segment.bytes of the topic, or log.segment.bytes of the"
            " brokers, is too small.",
            (
                AdviceStep(
                    "Raise it to max.message.bytes or more, then run the flow again.",
                    "kafka-configs.sh --bootstrap-server $TARGET --alter --entity-type topics --entity-name TOPIC"
                    " --add-config segment.bytes=1073741824",
                ),
                AdviceStep('Or skip and count such records: on-too-large = "skip" under [flows.FLOW].'),
            ),
        ),
    ),
    "too large": (
        r"is larger than the target takes",
        Advice(
            Level.CRITICAL,
            "A record is too large for the target",
            "Even in a batch of its own, it is larger than the target topic's max.message.bytes.",
            (
                AdviceStep(
                    "Raise the limit to that of the source topic, then run the flow again.",
                    "kafka-configs.sh --bootstrap-server $TARGET --alter --entity-type topics --entity-name TOPIC"
                    " --add-config max.message.bytes=10485760",
                ),
                AdviceStep('Or skip and count such records: on-too-large = "skip" under [flows.FLOW].'),
            ),
        ),
    ),
    "bad timestamp": (
        r"INVALID_TIMESTAMP|on-bad-timestamp",
        Advice(
            Level.CRITICAL,
            "The target does not allow a record's timestamp",
            "The timestamp is further in the past or in the future than the target topic's"
            " message.timestamp.before.max.ms and message.timestamp.after.max.ms allow (brokers before 4.0:"
            " message.timestamp.difference.max.ms for both). The usual reason is a producer with a wrong clock or"
            " unit.",
            (
                AdviceStep(
                    "Allow it on the target topic, then run the flow again.",
                    "kafka-configs.sh --bootstrap-server $TARGET --alter --entity-type topics --entity-name TOPIC"
                    " --add-config message.timestamp.after.max.ms=9223372036854775807",
                ),
                AdviceStep(
                    'Or give such records the nearest timestamp that is allowed (on-bad-timestamp = "clamp" under'
                    ' [flows.FLOW]), or skip and count them ("skip").'
                ),
            ),
        ),
    ),
    "no key": (
        r"takes no record without a key",
        Advice(
            Level.CRITICAL,
            "A record has no key, and the target topic is compacted",
            "A compacted topic refuses records without a key.",
            (
                AdviceStep('Skip and count such records: on-no-key = "skip" under [flows.FLOW].'),
                AdviceStep("Or give the target topic the cleanup.policy of the source topic: delete."),
            ),
        ),
    ),
    "permission": (
        r"AUTHORIZATION_FAILED|the permission .* is missing",
        Advice(
            Level.CRITICAL,
            "A permission is missing",
            "The error names the operation and the resource.",
            (
                AdviceStep(
                    "Grant it; config/README.md has a table of all permissions of a flow. For the target topic, for"
                    " example:",
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
            "The function that transforms the flow's records raised an error, or returned something else than a"
            " record.",
            (AdviceStep("Fix it for the record that the error names (the offset is that of the source)."), RUN_AGAIN),
        ),
    ),
}
"""By a pattern in the error of a failed partition; mirror.relay and mirror.spark write these errors."""

"""Which class injects which kind of fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.campaign.chaos import broker_faults, connection_faults, process_faults, topic_faults
from tests.campaign.chaos.injection import Injection, RoundContext
from tests.campaign.chaos.schedule import OF_CONNECTIONS, FaultKind, ScheduledFault

INJECTIONS: Final[Mapping[FaultKind, type[Injection]]] = {
    FaultKind.BROKER_KILLED: broker_faults.BrokerKilled,
    FaultKind.BROKER_STOPPED: broker_faults.BrokerStopped,
    FaultKind.BROKER_RESTARTED: broker_faults.BrokerRestarted,
    FaultKind.BROKER_CLOCK: broker_faults.BrokerClockWrong,
    FaultKind.BROKERS_PARTITIONED: broker_faults.BrokersPartitioned,
    FaultKind.CONTROLLER_UNREACHABLE: broker_faults.ControllerUnreachable,
    FaultKind.CERTIFICATE_EXPIRED: broker_faults.CertificateExpired,
    FaultKind.SOURCE_DISK_FULL: broker_faults.DiskFull,
    FaultKind.TARGET_DISK_FULL: broker_faults.DiskFull,
    FaultKind.UNCLEAN_ELECTION: broker_faults.UncleanElection,
    FaultKind.LEADERS_MOVED: topic_faults.LeadersMoved,
    FaultKind.EXECUTOR_KILLED: process_faults.ExecutorKilled,
    FaultKind.EXECUTOR_STOPPED: process_faults.ExecutorStopped,
    FaultKind.WORKER_KILLED: process_faults.WorkerKilled,
    FaultKind.WORKER_STOPPED: process_faults.WorkerStopped,
    FaultKind.DRIVER_KILLED: process_faults.DriverKilled,
    FaultKind.CLOCK_STEPPED: process_faults.ClockStepped,
    FaultKind.PARTITIONS_ADDED: topic_faults.PartitionsAdded,
    FaultKind.TOPICS_RECREATED: topic_faults.TopicsRecreated,
    **dict.fromkeys(OF_CONNECTIONS, connection_faults.ConnectionFault),
}


def injection(context: RoundContext, fault: ScheduledFault) -> Injection:
    """Return what injects ``fault``."""
    return INJECTIONS[fault.kind](context, fault)

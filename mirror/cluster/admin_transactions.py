"""Calls about transactional ids."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mirror.cluster.acls import AclOperation
from mirror.cluster.calls import ClusterView, Failures
from mirror.cluster.each_key import EachKey
from mirror.wire.api import Api
from mirror.wire.messages.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from mirror.wire.verdicts import TRANSACTIONAL_ID_AUTHORIZATION_FAILED

_DESCRIBE: Final = frozenset({AclOperation.DESCRIBE})


class TransactionalIdOperations(EachKey[str, frozenset[AclOperation]]):
    """Whether this client may see transactional ids: an answer has Describe, and an id without it is refused.

    That is all that brokers tell. Any of them tells it: permission comes first (``KafkaApis``), and only then whether
    it is the id's coordinator. So none has to be looked up, and the topic of transactions need not be there yet.
    """

    api = Api.DESCRIBE_TRANSACTIONS
    needs = "Describe"

    def __init__(self, ids: Collection[str], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("looking at permissions on transactional ids", ids, deadline_ms, timeout_ms)

    def about(self, key: str) -> str:
        """For errors."""
        return f"looking at permissions on transactional id {key!r}"

    def body(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeTransactionsRequest:
        """All the keys in one request."""
        del view, timeout_ms
        return DescribeTransactionsRequest(tuple(sorted(keys)))

    def accept(self, keys: Collection[str], response: DescribeTransactionsResponse) -> Failures:
        """Per id. Whatever else is answered, also that there is none, is answered to who may see it."""
        for told in response.transaction_states:
            refused = told.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            self.take(told.transactional_id, told.error_code if refused else 0, _DESCRIBE)
        return self.open(keys)

"""The messages of transactions: in the versions that clients may speak, and under names of ours."""

from __future__ import annotations

import pytest

from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.messages import transactions as txn
from tests.fakes.server_codec import decode_request, encode_response


@pytest.mark.parametrize(
    ("api", "key", "versions"),
    [
        (Api.ADD_PARTITIONS_TO_TXN, 24, (3, 3)),
        (Api.ADD_OFFSETS_TO_TXN, 25, (3, 4)),
        (Api.END_TXN, 26, (3, 5)),
        (Api.TXN_OFFSET_COMMIT, 28, (3, 5)),
        (Api.DESCRIBE_PRODUCERS, 61, (0, 0)),
        (Api.DESCRIBE_TRANSACTIONS, 65, (0, 0)),
        (Api.LIST_TRANSACTIONS, 66, (0, 0)),
    ],
    ids=lambda value: value.label if isinstance(value, Api) else None,
)
def test_keys_and_versions(api: Api, key: int, versions: tuple[int, int]) -> None:
    assert (api.value.key, api.value.low, api.value.high) == (key, *versions)


def test_partitions_to_add_have_plain_names() -> None:
    request = txn.AddPartitionsToTxnRequest("id", 7, 3, (txn.AddPartitionsTopic("t", (0, 2)),))
    frame = b"".join(map(bytes, codec.encode_request(Api.ADD_PARTITIONS_TO_TXN, 3, 1, "c", request)))
    read = decode_request(frame[4:])[3]
    assert isinstance(read, txn.AddPartitionsToTxnRequest)
    assert (read.transactional_id, read.producer_id, read.producer_epoch) == ("id", 7, 3)
    assert read.topics == (txn.AddPartitionsTopic("t", (0, 2)),)

    result = txn.AddPartitionsResult("t", (txn.AddPartitionsPartitionResult(2, 55),))
    answer = encode_response(Api.ADD_PARTITIONS_TO_TXN, 3, 1, txn.AddPartitionsToTxnResponse((result,)))
    back = codec.decode_response(Api.ADD_PARTITIONS_TO_TXN, 3, bytearray(answer[4:]))
    assert [(t.name, [(p.partition_index, p.partition_error_code) for p in t.results]) for t in back.results] == [
        ("t", [(2, 55)])
    ]


@pytest.mark.parametrize(("version", "wanted"), [(3, (-1, -1)), (4, (-1, -1)), (5, (8, 4))])
def test_only_version_5_of_end_txn_reports_the_next_epoch(version: int, wanted: tuple[int, int]) -> None:
    answer = encode_response(Api.END_TXN, version, 1, txn.EndTxnResponse(0, 8, 4))
    back = codec.decode_response(Api.END_TXN, version, bytearray(answer[4:]))
    assert (back.producer_id, back.producer_epoch) == wanted

"""Calls about permissions: describe, create, delete ACLs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mirror.cluster.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from mirror.cluster.calls.keyed_call import BrokersCall, ControllerCall
from mirror.cluster.calls.routed_calls import Call, ClusterView, Failures, check
from mirror.errors import ProtocolError
from mirror.wire.api import Api
from mirror.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    MatchingAcl,
)

_ALL: Final = "*"


class DescribeAcls(Call[tuple[AclBinding, ...], str]):
    """Describe the ACLs that match a filter."""

    api = Api.DESCRIBE_ACLS

    def __init__(self, wanted: AclFilter, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"describing ACLs ({wanted})", (_ALL,), deadline_ms, timeout_ms)
        self._wanted = wanted
        self._found: tuple[AclBinding, ...] = ()

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeAclsRequest:
        """Request by one filter."""
        del keys, view, timeout_ms
        return _request(self._wanted)

    def accept(self, keys: Collection[str], response: DescribeAclsResponse) -> Failures:
        """Keep the ACLs."""
        error = check(response.error_code, self.what, response.error_message, needs="Describe")
        if error is not None:
            return dict.fromkeys(keys, error)
        self._found = _bindings(response)
        return {}

    def result(self) -> tuple[AclBinding, ...]:
        """Return the answer."""
        return self._found


class AclsOfBrokers(BrokersCall[tuple[AclBinding, ...]]):
    """The ACLs that match a filter, as each of several brokers applies them: it learns of them from the controller."""

    api = Api.DESCRIBE_ACLS
    needs = "Describe"

    def __init__(self, wanted: AclFilter, nodes: Collection[int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing ACLs", nodes, deadline_ms, timeout_ms)
        self._wanted = wanted

    def describe(self, key: int) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"asking broker {key} for ACLs"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> DescribeAclsRequest:
        """Request by one filter."""
        del keys, view, timeout_ms
        return _request(self._wanted)

    def accept(self, keys: Collection[int], response: DescribeAclsResponse) -> Failures:
        """Set the result of one broker."""
        for node in keys:
            self.set_result(node, response.error_code, _bindings(response), response.error_message)
        return self.unresolved(keys)


def _request(wanted: AclFilter) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        wanted.resource_type,
        wanted.name,
        wanted.pattern,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission,
    )


def _bindings(response: DescribeAclsResponse) -> tuple[AclBinding, ...]:
    return tuple(
        AclBinding(
            ResourceType(on.resource_type),
            on.resource_name,
            acl.principal,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
            PatternType(on.pattern_type),
            acl.host,
        )
        for on in response.resources
        for acl in on.acls
    )


class CreateAcls(ControllerCall[AclBinding, None]):
    """Create ACLs; one that exists already is a success."""

    api = Api.CREATE_ACLS
    needs = "Alter"

    def __init__(self, bindings: Collection[AclBinding], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("creating ACLs", bindings, deadline_ms, timeout_ms)

    def describe(self, key: AclBinding) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"creating the ACL {key}"

    def body(self, keys: Collection[AclBinding], view: ClusterView, timeout_ms: int) -> CreateAclsRequest:
        """Request those that are not created yet; the results have the same order."""
        del view, timeout_ms
        return CreateAclsRequest(
            tuple(
                AclCreation(
                    key.resource_type, key.name, key.pattern, key.principal, key.host, key.operation, key.permission
                )
                for key in keys
            )
        )

    def accept(self, keys: Collection[AclBinding], response: CreateAclsResponse) -> Failures:
        """Set the results, which are in the order of the request."""
        _same_number(self.what, len(keys), len(response.results))
        for key, entry in zip(keys, response.results, strict=True):
            self.set_result(key, entry.error_code, None, entry.error_message)
        return self.unresolved(keys)


class DeleteAcls(ControllerCall[AclFilter, tuple[AclBinding, ...]]):
    """Delete ACLs by filters; the result of a filter is the ACLs that it deleted."""

    api = Api.DELETE_ACLS
    needs = "Alter"

    def __init__(self, filters: Collection[AclFilter], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("deleting ACLs", filters, deadline_ms, timeout_ms)

    def describe(self, key: AclFilter) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"deleting the ACLs {key}"

    def body(self, keys: Collection[AclFilter], view: ClusterView, timeout_ms: int) -> DeleteAclsRequest:
        """Request the filters without a result; the results have the same order."""
        del view, timeout_ms
        return DeleteAclsRequest(
            tuple(
                DeleteAclsFilter(
                    key.resource_type, key.name, key.pattern, key.principal, key.host, key.operation, key.permission
                )
                for key in keys
            )
        )

    def accept(self, keys: Collection[AclFilter], response: DeleteAclsResponse) -> Failures:
        """Set the results, which are in the order of the request.

        A filter fails with the first of its ACLs that cannot be deleted.
        """
        _same_number(self.what, len(keys), len(response.filter_results))
        for key, entry in zip(keys, response.filter_results, strict=True):
            refused: DeleteAclsFilterResult | MatchingAcl
            refused = next((acl for acl in entry.matching_acls if acl.error_code), entry)
            deleted = tuple(_matched(acl) for acl in entry.matching_acls)
            self.set_result(key, refused.error_code, deleted, refused.error_message)
        return self.unresolved(keys)


def _matched(entry: MatchingAcl) -> AclBinding:
    return AclBinding(
        ResourceType(entry.resource_type),
        entry.resource_name,
        entry.principal,
        AclOperation(entry.operation),
        AclPermission(entry.permission_type),
        PatternType(entry.pattern_type),
        entry.host,
    )


def _same_number(what: str, asked: int, entry: int) -> None:
    """Check that there is one result for each key: results have no names, only an order. Raises ProtocolError."""
    if asked != entry:
        msg = f"{what}: asked for {asked}, answered {entry}"
        raise ProtocolError(msg)

"""Calls about permissions: describe, create, delete ACLs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mirror.cluster.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from mirror.cluster.calls import Call, ClusterView, Failures, check
from mirror.cluster.keyed_call import ControllerCall
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
    """The ACLs that a filter finds."""

    api = Api.DESCRIBE_ACLS

    def __init__(self, wanted: AclFilter, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(f"describing ACLs ({wanted})", (_ALL,), deadline_ms, timeout_ms)
        self._wanted = wanted
        self._found: tuple[AclBinding, ...] = ()

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeAclsRequest:
        """One filter."""
        del keys, view, timeout_ms
        one = self._wanted
        return DescribeAclsRequest(
            one.resource_type, one.name, one.pattern, one.principal, one.host, one.operation, one.permission
        )

    def accept(self, keys: Collection[str], response: DescribeAclsResponse) -> Failures:
        """All of them."""
        error = check(response.error_code, self.what, response.error_message, needs="Describe")
        if error is not None:
            return dict.fromkeys(keys, error)
        self._found = tuple(
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
        return {}

    def result(self) -> tuple[AclBinding, ...]:
        """What was told."""
        return self._found


class CreateAcls(ControllerCall[AclBinding, None]):
    """ACLs to create; one that is there already is a success."""

    api = Api.CREATE_ACLS
    needs = "Alter"

    def __init__(self, bindings: Collection[AclBinding], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("creating ACLs", bindings, deadline_ms, timeout_ms)

    def about(self, key: AclBinding) -> str:
        """For errors."""
        return f"creating the ACL {key}"

    def body(self, keys: Collection[AclBinding], view: ClusterView, timeout_ms: int) -> CreateAclsRequest:
        """All that are not there yet. Their order is what finds their results."""
        del view, timeout_ms
        return CreateAclsRequest(
            tuple(
                AclCreation(
                    one.resource_type, one.name, one.pattern, one.principal, one.host, one.operation, one.permission
                )
                for one in keys
            )
        )

    def accept(self, keys: Collection[AclBinding], response: CreateAclsResponse) -> Failures:
        """By their places."""
        _same_number(self.what, len(keys), len(response.results))
        for key, told in zip(keys, response.results, strict=True):
            self.take(key, told.error_code, None, told.error_message)
        return self.open(keys)


class DeleteAcls(ControllerCall[AclFilter, tuple[AclBinding, ...]]):
    """Filters whose ACLs are to go; each one's result is what it deleted."""

    api = Api.DELETE_ACLS
    needs = "Alter"

    def __init__(self, filters: Collection[AclFilter], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("deleting ACLs", filters, deadline_ms, timeout_ms)

    def about(self, key: AclFilter) -> str:
        """For errors."""
        return f"deleting the ACLs {key}"

    def body(self, keys: Collection[AclFilter], view: ClusterView, timeout_ms: int) -> DeleteAclsRequest:
        """All that were not answered yet. Their order is what finds their results."""
        del view, timeout_ms
        return DeleteAclsRequest(
            tuple(
                DeleteAclsFilter(
                    one.resource_type, one.name, one.pattern, one.principal, one.host, one.operation, one.permission
                )
                for one in keys
            )
        )

    def accept(self, keys: Collection[AclFilter], response: DeleteAclsResponse) -> Failures:
        """By their places. A filter fails by the first of its ACLs that could not be deleted."""
        _same_number(self.what, len(keys), len(response.filter_results))
        for key, told in zip(keys, response.filter_results, strict=True):
            refused: DeleteAclsFilterResult | MatchingAcl
            refused = next((acl for acl in told.matching_acls if acl.error_code), told)
            deleted = tuple(_matched(acl) for acl in told.matching_acls)
            self.take(key, refused.error_code, deleted, refused.error_message)
        return self.open(keys)


def _matched(told: MatchingAcl) -> AclBinding:
    return AclBinding(
        ResourceType(told.resource_type),
        told.resource_name,
        told.principal,
        AclOperation(told.operation),
        AclPermission(told.permission_type),
        PatternType(told.pattern_type),
        told.host,
    )


def _same_number(what: str, asked: int, told: int) -> None:
    """Results have places, no names: with one too few nobody can say whose it is. Raises ProtocolError."""
    if asked != told:
        msg = f"{what}: asked for {asked}, answered {told}"
        raise ProtocolError(msg)

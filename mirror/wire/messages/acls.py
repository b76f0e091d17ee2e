"""Permissions: DescribeAcls, CreateAcls, DeleteAcls. The numbers are those of :mod:`mirror.cluster.acls`."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class DescribeAclsRequest(Message):
    """One filter; None matches any name, principal or host."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@dataclass(slots=True)
class AclDescription(Message):
    """Who may do what, from where."""

    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(slots=True)
class DescribeAclsResource(Message):
    """The ACLs of one resource pattern."""

    resource_type: int
    resource_name: str
    pattern_type: int
    acls: tuple[AclDescription, ...]


@dataclass(slots=True)
class DescribeAclsResponse(Message):
    """One answer to a DescribeAcls."""

    error_code: int
    error_message: str | None
    resources: tuple[DescribeAclsResource, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class AclCreation(Message):
    """One ACL."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(slots=True)
class CreateAclsRequest(Message):
    """Several at once."""

    creations: tuple[AclCreation, ...]


@dataclass(slots=True)
class AclCreationResult(Message):
    """One ACL's verdict, found by its place only."""

    error_code: int
    error_message: str | None = None


@dataclass(slots=True)
class CreateAclsResponse(Message):
    """In the order of the request."""

    results: tuple[AclCreationResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteAclsFilter(Message):
    """As in :class:`DescribeAclsRequest`."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@dataclass(slots=True)
class DeleteAclsRequest(Message):
    """Several filters at once."""

    filters: tuple[DeleteAclsFilter, ...]


@dataclass(slots=True)
class MatchingAcl(Message):
    """An ACL that a filter found, and whether it went."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(slots=True)
class DeleteAclsFilterResult(Message):
    """One filter's verdict, found by its place only."""

    error_code: int
    error_message: str | None
    matching_acls: tuple[MatchingAcl, ...]


@dataclass(slots=True)
class DeleteAclsResponse(Message):
    """In the order of the request."""

    filter_results: tuple[DeleteAclsFilterResult, ...]
    throttle_time: int = 0

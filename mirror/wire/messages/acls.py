"""DescribeAcls, CreateAcls, DeleteAcls. Types and operations are numbers; :mod:`mirror.cluster.acls` defines them."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class DescribeAclsRequest(Message):
    """One filter. None matches any name, principal or host."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@dataclass(slots=True)
class AclDescription(Message):
    """One access control entry: a principal, a host, an operation, and whether it is allowed or denied."""

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
    """Response to a DescribeAcls request."""

    error_code: int
    error_message: str | None
    resources: tuple[DescribeAclsResource, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class AclCreation(Message):
    """One ACL to create."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(slots=True)
class CreateAclsRequest(Message):
    """Creates several ACLs."""

    creations: tuple[AclCreation, ...]


@dataclass(slots=True)
class AclCreationResult(Message):
    """Result for one ACL. It carries no key: only its position identifies the ACL."""

    error_code: int
    error_message: str | None = None


@dataclass(slots=True)
class CreateAclsResponse(Message):
    """Results in the order of the request."""

    results: tuple[AclCreationResult, ...]
    throttle_time: int = 0


@dataclass(slots=True)
class DeleteAclsFilter(Message):
    """A filter as in :class:`DescribeAclsRequest`."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@dataclass(slots=True)
class DeleteAclsRequest(Message):
    """Deletes the ACLs that match any of several filters."""

    filters: tuple[DeleteAclsFilter, ...]


@dataclass(slots=True)
class MatchingAcl(Message):
    """An ACL that a filter matched. ``error_code`` 0: it was deleted."""

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
    """Result for one filter. It carries no key: only its position identifies the filter."""

    error_code: int
    error_message: str | None
    matching_acls: tuple[MatchingAcl, ...]


@dataclass(slots=True)
class DeleteAclsResponse(Message):
    """Results in the order of the request."""

    filter_results: tuple[DeleteAclsFilterResult, ...]
    throttle_time: int = 0

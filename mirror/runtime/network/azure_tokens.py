"""Tokens for Azure Event Hubs, by Azure's library, which is the extra ``azure`` of this package.

Its credentials are the first that ``DefaultAzureCredential`` finds: environment variables, identities of pods and of
hosts, those of ``az``.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from mirror.cluster.auth.oauth_settings import TokenRequest
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError

_SERVER_ERROR: Final = 500
_TRY_LATER: Final = frozenset({408, 429})


def token(request: TokenRequest) -> tuple[str, int]:
    """Return an access token for the scope, without one for the namespace that is the first host, and its lifetime.

    Raises AuthenticationFailed if there are no credentials or Azure refuses them, ConnectionFailed if a retry may
    succeed.
    """
    identity, errors = importlib.import_module("azure.identity"), importlib.import_module("azure.core.exceptions")
    scope = request.scope or f"https://{request.hosts[0]}/.default"
    ends: list[Exception] = []
    with identity.DefaultAzureCredential() as chain:
        for each in chain.credentials:
            each.get_token = _noting(each.get_token, ends, identity.CredentialUnavailableError)
        try:
            found = chain.get_token(scope)
        except errors.AzureError:
            raise _failure(ends, errors) from None
    return str(found.token), int((found.expires_on - time.time()) * 1000)


def _noting(get_token: Callable[..., Any], ends: list[Exception], goes_on: type[Exception]) -> Callable[..., Any]:
    """Return ``get_token`` that also notes the error that ends the chain: the chain's own error has only its text."""

    def noted(*scopes: str, **options: Any) -> Any:
        try:
            return get_token(*scopes, **options)
        except goes_on:
            raise
        except Exception as error:
            ends.append(error)
            raise

    return noted


def _failure(ends: Sequence[Exception], errors: Any) -> KafkaError:
    if not ends:
        why = "set AZURE_CLIENT_ID and so on, or give the host or the pod an identity"
        return AuthenticationFailed(f"Azure's library finds no credentials: {why}")
    causes = (ends[0], ends[0].__cause__)
    lost = any(isinstance(each, (errors.ServiceRequestError, errors.ServiceResponseError)) for each in causes)
    status = getattr(ends[0], "status_code", None) or 0
    if lost or status >= _SERVER_ERROR or status in _TRY_LATER:
        return ConnectionFailed(f"there is no answer of Azure to a request for a token ({type(ends[0]).__name__})")
    return AuthenticationFailed("Azure refuses the credentials: check the client's id and its secret, or its identity")

"""Tokens for Google Cloud Managed Service for Apache Kafka, by Google's library: the extra ``gcp`` of this package.

Its credentials are the application default credentials: a file, those of ``gcloud``, or the service account of a host
or a pod.
"""

from __future__ import annotations

import base64
import datetime as dt
import importlib
import json
import time
from typing import Any, Final

from mirror.cluster.auth.oauth_settings import TokenRequest
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError, brief
from mirror.runtime.network.token_files import claims_of

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_HEADER: Final = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
"""Clients of Kafka want a JSON Web Token, and Google's access tokens are none: one takes the signature's place
(``GcpLoginCallbackHandler``)."""


def token(request: TokenRequest) -> tuple[str, int]:
    """Return an access token in the form that Google's brokers take, and its lifetime in ms.

    Raises AuthenticationFailed if there are no credentials or Google refuses them, ConnectionFailed if a retry may
    succeed.
    """
    auth, errors = importlib.import_module("google.auth"), importlib.import_module("google.auth.exceptions")
    transport = importlib.import_module("google.auth.transport.requests")
    with transport.requests.Session() as session:
        try:
            credentials, _ = auth.default(scopes=[request.scope or _SCOPE])
            credentials.refresh(transport.Request(session))
        except errors.GoogleAuthError as error:
            raise _failure(error, errors) from None
    account = _account(credentials)
    if not account:
        raise AuthenticationFailed(
            "the credentials of Google name no account: use those of a service account, or log in with the scope email"
        )
    expires = credentials.expiry.replace(tzinfo=dt.UTC).timestamp()
    return wrapped(credentials.token, account, expires, time.time())


def wrapped(access_token: str, account: str, expires: float, now: float) -> tuple[str, int]:
    """Return the token that has ``access_token`` in it, and its lifetime in ms; times are in s of the epoch."""
    claims = {"iss": "Google", "sub": account, "scope": "kafka", "iat": int(now), "exp": int(expires)}
    parts = (json.dumps(_HEADER), json.dumps(claims), access_token)
    value = ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts)
    return value, int((expires - now) * 1000)


def _account(credentials: Any) -> str:
    """Return the mail address of a service account, or of a user, whose credentials have it in another token."""
    named = getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "")
    return named or str(claims_of(getattr(credentials, "id_token", None) or "").get("email", ""))


def _failure(error: Any, errors: Any) -> KafkaError:
    if isinstance(error, errors.DefaultCredentialsError):
        # The first argument is a sentence about a file or none; others may quote what is in the file.
        return AuthenticationFailed(f"Google's library finds no credentials: {brief(str(error.args[0]))}")
    if error.retryable or any(isinstance(each, errors.TransportError) for each in (error, error.__cause__)):
        return ConnectionFailed(f"there is no answer of Google to a request for a token ({type(error).__name__})")
    return AuthenticationFailed("Google refuses the credentials: check that their account exists and has a valid key")

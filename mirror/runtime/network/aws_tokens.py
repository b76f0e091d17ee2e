"""Tokens for Amazon MSK with IAM, by Amazon's signer, which is the extra ``aws`` of this package.

Its credentials are those that AWS's libraries find: environment variables, profiles, roles of pods and of hosts.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import time
from typing import Final

from mirror.cluster.auth.oauth_settings import TokenRequest
from mirror.errors import AuthenticationFailed

_OF_MSK: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?", re.IGNORECASE)
_NO_REGION: Final = "no name in bootstrap.servers has a region of AWS: set AWS_REGION"


def token(request: TokenRequest) -> tuple[str, int]:
    """Return a signed URL, which MSK takes as a token for 15 minutes, and its lifetime in ms.

    Raises AuthenticationFailed if the region or the credentials are missing.
    """
    logging.getLogger("botocore.auth").setLevel(logging.INFO)  # at DEBUG it writes the signature
    signer = importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    session = importlib.import_module("botocore.session").Session()
    region = region_of(request.hosts) or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region:
        raise AuthenticationFailed(_NO_REGION)
    if session.get_credentials() is None:
        raise AuthenticationFailed("there are no credentials of AWS: set a profile, a role or AWS_ACCESS_KEY_ID")
    value, expires_ms = signer.generate_auth_token(region)
    return str(value), int(expires_ms) - int(time.time() * 1000)


def region_of(hosts: tuple[str, ...]) -> str:
    """Return the region in a broker's name, or empty.

    As in Amazon's library for Java: of two clusters in different regions, only these names tell which is where.
    """
    return next((found[1].lower() for host in hosts if (found := _OF_MSK.search(host))), "")

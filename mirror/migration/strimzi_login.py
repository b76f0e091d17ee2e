"""How a cluster of Strimzi's resource authenticates, as settings of Kafka's clients, and what of it they lack."""

from __future__ import annotations

from typing import Final

from mirror.migration.findings import Finding, Kind, about
from mirror.migration.parsing.entries import Setting
from mirror.migration.reader import Reader

_PASSWORDS: Final = {
    "plain": ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
    "scram-sha-256": ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "scram-sha-512": ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
_BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_CLIENT: Final = "sasl.oauthbearer.client.credentials.client"
_TOKEN_TEXTS: Final = {
    "tokenEndpointUri": "sasl.oauthbearer.token.endpoint.url",
    "clientId": f"{_CLIENT}.id",
    "scope": "sasl.oauthbearer.scope",
}
_FIXED: Final = "a token of its own is not taken: the client gets tokens for a client id and its secret"
_ASSERTION: Final = "the client proves itself by its secret, not by an assertion"
_USERS_GRANT: Final = "the client gets tokens for a client id and its secret, not for a user and a password"
_OTHER_GRANTS: Final = {
    "accessToken": _FIXED,
    "accessTokenLocation": _FIXED,
    "refreshToken": _FIXED,
    "clientAssertion": _ASSERTION,
    "clientAssertionLocation": _ASSERTION,
    "clientAssertionType": _ASSERTION,
    "username": _USERS_GRANT,
    "passwordSecret": _USERS_GRANT,
}
_WAITS: Final = "the token endpoint has as long as request.timeout.ms, and a failure is followed by retry.backoff.ms"
_TOKEN_REMARKS: Final = {
    "connectTimeoutSeconds": (Kind.NO_EQUIVALENT, _WAITS),
    "readTimeoutSeconds": (Kind.NO_EQUIVALENT, _WAITS),
    "httpRetries": (Kind.NO_EQUIVALENT, _WAITS),
    "httpRetryPauseMs": (Kind.NO_EQUIVALENT, _WAITS),
    "maxTokenExpirySeconds": (Kind.NO_EQUIVALENT, "a token is valid as long as the endpoint says (expires_in)"),
    "accessTokenIsJwt": (Kind.NOT_NEEDED, "a token is passed on as it is, JWT or not"),
    "enableMetrics": (Kind.NOT_NEEDED, "metrics are those of OpenTelemetry"),
    "includeAcceptHeader": (Kind.NO_EQUIVALENT, "the header Accept is always sent"),
}


class Login:
    """Reads the authentication of ``cluster``; secrets are in ``namespace``."""

    def __init__(self, cluster: Reader, namespace: str) -> None:
        self._cluster = cluster
        self._login = cluster["authentication"]
        self._namespace = namespace
        self.findings: list[Finding] = []
        self.is_sasl = False

    def settings(self) -> dict[str, Setting]:
        """Return the settings of clients."""
        login = self._login
        method = login["type"].text()
        if method is None:
            return {}
        if method == "tls":
            pair = login["certificateAndKey"]
            return {
                "ssl.keystore.certificate.chain": pair.setting(reference(pair, "certificate", self._namespace)),
                "ssl.keystore.key": pair.setting(reference(pair, "key", self._namespace), "ssl.keystore.key"),
            }
        if method == "custom":
            self.is_sasl = login["sasl"].value() == "true" or "sasl.mechanism" in login["config"]
            return login["config"].settings()
        self.is_sasl = True
        if method in _PASSWORDS:
            return self._password(*_PASSWORDS[method])
        if method == "oauth":
            return self._token()
        self._say(Kind.LEFT_OUT, login["type"], "this authentication is not known here", "use one of those of Kafka")
        return {"sasl.mechanism": login["type"].setting(method)}

    def _password(self, mechanism: str, module: str) -> dict[str, Setting]:
        login = self._login
        password = reference(login["passwordSecret"], "password", self._namespace)
        line = f'{module} required username="{login["username"].text() or ""}" password="{password}";'
        return {
            "sasl.mechanism": login.setting(mechanism, "sasl.mechanism"),
            "sasl.jaas.config": login.setting(line, "sasl.jaas.config"),
        }

    def _token(self) -> dict[str, Setting]:
        login = self._login
        found = {"sasl.mechanism": login.setting("OAUTHBEARER", "sasl.mechanism")}
        for name, key in _TOKEN_TEXTS.items():
            if (value := login[name].text()) is not None:
                found[key] = login[name].setting(value)
        if "clientSecret" in login:
            secret = login["clientSecret"]
            found[f"{_CLIENT}.secret"] = secret.setting(reference(secret, "key", self._namespace))
        if extensions := login["saslExtensions"].settings():
            options = " ".join(f'extension_{name}="{one.value}"' for name, one in extensions.items())
            found["sasl.jaas.config"] = login["saslExtensions"].setting(f"{_BEARER_MODULE} required {options};")
        if (audience := login["audience"].text()) is not None:
            meaning = f"the client asks for no audience, and the token may lack {audience}"
            action = "let the authorization server add it for this client, or ask for it by the scope"
            self._say(Kind.TO_DO, login["audience"], meaning, action)
        for name, (kind, meaning) in _TOKEN_REMARKS.items():
            if login[name].value() is not None:
                self._say(kind, login[name], meaning)
        found |= self._trust()
        return found | self._other_grant()

    def _other_grant(self) -> dict[str, Setting]:
        """Return a mechanism that no client here has, if the token comes from elsewhere than for id and secret."""
        login = self._login
        others = [name for name in _OTHER_GRANTS if name in login]
        for name in others:
            login[name].pass_over()
            action = "write clientId, clientSecret and tokenEndpointUri"
            self._say(Kind.LEFT_OUT, login[name], _OTHER_GRANTS[name], action)
        grant = login["grantType"].text()
        if grant == "client_credentials":
            self._say(Kind.NOT_NEEDED, login["grantType"], "it is the grant by which the client gets tokens")
        elif grant is not None:
            others.append("grantType")
            self._say(Kind.LEFT_OUT, login["grantType"], "the client has no such grant", "use client_credentials")
        if not others:
            return {}
        return {"sasl.mechanism": login.setting(f"OAUTHBEARER by {', '.join(others)}", "sasl.mechanism")}

    def _trust(self) -> dict[str, Setting]:
        """Return whom the token endpoint's connections trust: those of the brokers have the same settings here."""
        login, tls = self._login, self._cluster["tls"]
        certificates, brokers = login["tlsTrustedCertificates"], tls["trustedCertificates"]
        found: dict[str, Setting] = {}
        if certificates.node.items:
            names = "".join(reference(one, "certificate", self._namespace) for one in certificates.items())
            if brokers.node.items or "tls" not in self._cluster:
                found["ssl.truststore.certificates"] = certificates.setting(names)
                self._say(Kind.CHANGED, certificates, "they are trusted for the brokers, too")
            else:
                meaning = (
                    "the token endpoint's certificates are those of the brokers, which the system's CAs have issued"
                )
                self._say(
                    Kind.TO_DO, certificates, meaning, "set ssl.truststore.certificates to these and the system's"
                )
        elif brokers.node.items:
            meaning = "these certificates are those of the token endpoint, too"
            self._say(Kind.TO_DO, brokers, meaning, "add the CA of the token endpoint if it is another one")
        checked = login["disableTlsHostnameVerification"]
        off = checked.value()
        if off == "true" and "tls" not in self._cluster:
            found["ssl.endpoint.identification.algorithm"] = checked.setting("")
        elif off == "true":
            meaning = "the token endpoint's name is checked as those of the brokers"
            action = 'have its certificate name it, or set ssl.endpoint.identification.algorithm to ""'
            self._say(Kind.TO_DO, checked, meaning, action)
        elif off is not None:
            self._say(Kind.NOT_NEEDED, checked, "the token endpoint's name is checked")
        return found

    def _say(self, kind: Kind, part: Reader, meaning: str, action: str = "") -> None:
        self.findings.append(about(kind, part.setting(part.node.text or ""), meaning, action))


def reference(secret: Reader, key: str, namespace: str) -> str:
    """Return the reference to a value in a Secret of Kubernetes."""
    name = secret["secretName"].text() or ""
    inside = secret[key].text() or secret["pattern"].text() or ""
    return f"${{strimzisecrets:{namespace}/{name}:{inside}}}"

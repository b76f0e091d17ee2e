"""The table ``test-copy`` of a flow: which records it copies for tests, and what it masks of them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SecretStr, field_serializer

from mirror.config.own_tables import OwnTable
from mirror.config.problems import HIDDEN
from mirror.relay.masking.record_masks import ALL, Masking, check_masks, share_of

SHORTEST_SECRET: Final = 16


def _share(text: str) -> str:
    share_of(text)
    return text


def _masks(table: dict[str, str]) -> dict[str, str]:
    check_masks(table)
    return table


class MaskingConfig(OwnTable):
    """What makes a flow's copy a test copy."""

    sample: Annotated[str, AfterValidator(_share)] = Field(default=ALL, description='a percentage such as "1%"')
    """the part of the keys that is copied, with all their records: by their hash, so that it is the same keys of all
    topics and flows, as bytes. A record without a key is drawn by its offset
    """
    mask: Annotated[dict[str, str], AfterValidator(_masks)] = Field(
        default_factory=dict, description='a table such as { "value:$.email" = "hash", "header:user" = "drop" }'
    )
    """what is masked, and how. `"key"` and `"value"` are all of it, whatever it is: `"hash"`, of a value also
    `"constant:TEXT"`. Of JSON, `"key:$.a['b c'][*]"` is a path (RFC 9535): `"hash"`, `"keep"`, of a value also `"null"`
    and `"constant:JSON"`. `"header:NAME"`, and `"header:*"` for the others: `"hash"`, `"null"`, `"drop"`,
    `"constant:TEXT"`, `"keep"`. Names of JSON members stay, also in an object that is hashed
    """
    secret: SecretStr | None = Field(default=None, description="a text of at least 16 characters")
    """the key of `"hash"`, which makes pseudonyms by HMAC-SHA-256, equal wherever a text or number stands: 32
    hexadecimal digits, of a whole number 15 decimal ones; inside of objects and arrays of each, and null of true and
    false. It shows whose a pseudonym is: give it [from outside](#overrides-and-secrets)
    """
    on_unmaskable: Literal["fail", "skip"] = Field(default="fail", description='"fail" or "skip"')
    """a record cannot be masked: `"fail"` fails the partition, `"skip"` omits and counts it"""

    @field_serializer("secret", when_used="json")
    def _secret_to_show(self, secret: SecretStr | None) -> str | None:
        return None if secret is None else HIDDEN

    @property
    def is_on(self) -> bool:
        """Whether the copy is one of a part of the keys, or masked."""
        return bool(self.mask) or self.sample != ALL

    def masking(self) -> Masking | None:
        """Return the same as plain values for the copy; None if it is no test copy."""
        if not self.is_on:
            return None
        return Masking(
            sample=self.sample,
            masks=tuple(self.mask.items()),
            secret=b"" if self.secret is None else self.secret.get_secret_value().encode(),
            leaves_out=self.on_unmaskable == "skip",
        )

    def text(self) -> str:
        """Return what it does in one line, without the secret; empty if nothing."""
        masks = ", ".join(f"{place} = {action}" for place, action in self.mask.items())
        return "; ".join(filter(None, [f"sample = {self.sample}" if self.is_on else "", masks]))

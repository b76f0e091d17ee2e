"""Reads a document by its keys, and knows what of it was not read: nothing of a file is passed over in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mirror.migration.findings import Finding, Kind, about
from mirror.migration.parsing.entries import Setting
from mirror.migration.parsing.nodes import Node


class Reader:
    """Reads ``node``, whose place in the document is ``path``: ``spec.mirrors[0].sourceConnector``."""

    def __init__(self, node: Node, path: str = "", findings: list[Finding] | None = None) -> None:
        self.node = node
        self.path = path
        self._findings: list[Finding] = [] if findings is None else findings
        self._children: dict[str, Reader] = {}
        self._is_read = False

    def __getitem__(self, key: str) -> Reader:
        """Return the reader of an entry; of an empty node if there is none."""
        if key not in self._children:
            path = f"{self.path}.{key}" if self.path else key
            self._children[key] = Reader(self.node.get(key), path, self._findings)
        return self._children[key]

    def __contains__(self, key: str) -> bool:
        return key in self.node.entries

    def items(self) -> list[Reader]:
        """Return the readers of a list's items."""
        for number, item in enumerate(self.node.items):
            self._children.setdefault(f"[{number}]", Reader(item, f"{self.path}[{number}]", self._findings))
        return [self._children[f"[{number}]"] for number in range(len(self.node.items))]

    def value(self) -> str | None:
        """Return a text, a boolean or a number as a text; None for anything else."""
        self._is_read = self.node.text is not None
        return self.node.text

    def text(self) -> str | None:
        """Return a text where Kubernetes takes nothing else; a boolean or a number becomes a finding."""
        self._is_read = self.node.text is not None
        if self.node.written is None:
            return self.node.text
        meaning = (
            f"Kubernetes reads {self.node.written} as the value {self.node.text}, and refuses it in place of a text"
        )
        setting = Setting(self.node.written, self.node.line, self.path)
        self._findings.append(about(Kind.REFUSED, setting, meaning, f'write "{self.node.written}"'))
        return self.node.written

    def setting(self, value: str, as_key: str = "") -> Setting:
        """Return a setting that comes from this place."""
        path = self.path or "document"
        return Setting(value, self.node.line, f"{path} as {as_key}" if as_key else path)

    def settings(self) -> dict[str, Setting]:
        """Return the entries of a mapping that have a text, which are all read."""
        return {key: self[key].setting(value) for key in self.node.entries if (value := self[key].value()) is not None}

    def pass_over(self) -> None:
        """Take all of it for read."""
        self._is_read = True

    def unread(self) -> Iterator[Reader]:
        """Yield the largest parts that were not read, and have any text."""
        if self._is_read or not _has_text(self.node):
            return
        if not self.is_touched():
            yield self
            return
        for key in self.node.entries:
            yield from self[key].unread()
        for item in self.items():
            yield from item.unread()

    def is_touched(self) -> bool:
        """Whether any of it was read."""
        return self._is_read or any(child.is_touched() for child in self._children.values())

    def replaced(self) -> Iterator[Setting]:
        """Yield the entries that a later one of the same key replaces, from all of the document."""
        for key, node in self.node.replaced:
            yield Setting(node.text or "", node.line, f"{self.path}.{key}" if self.path else key)
        for key in self.node.entries:
            yield from self[key].replaced()
        for item in self.items():
            yield from item.replaced()

    def findings(self, say: Callable[[Reader], Finding]) -> list[Finding]:
        """Return what was found, and what ``say`` says of each part that was not read."""
        found = [*self._findings, *(say(part) for part in self.unread())]
        for setting in self.replaced():
            meaning = "a later line has the same key, or merges it, and the last one counts"
            found.append(about(Kind.IGNORED, setting, meaning, "remove one of them"))
        return found


def _has_text(node: Node) -> bool:
    return node.text is not None or any(map(_has_text, (*node.items, *node.entries.values())))

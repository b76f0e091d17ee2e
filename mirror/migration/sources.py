"""What a file contains: properties of a dedicated MirrorMaker 2, connectors, or resources of Kubernetes with them."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.migration import connectors, strimzi
from mirror.migration.connectors import Connector
from mirror.migration.findings import Finding, Kind, about
from mirror.migration.parsing.entries import Setting
from mirror.migration.parsing.nodes import Node, read_documents
from mirror.migration.parsing.reading import PropertiesFile, read_properties, refuse
from mirror.migration.reader import Reader

_STRUCTURED: Final = re.compile(
    rb"(\xef\xbb\xbf)?(\s|#[^\n]*\n|---[^\n]*\n)*([{\[]|-?\s*(apiVersion|kind|metadata|spec)\s*:[ \r\n])"
)
"""The beginning of JSON, or of a Kubernetes resource in YAML."""
_RESOURCE: Final = re.compile(rb"^[- ]?[ ]*apiVersion[ ]*:[ ]", re.MULTILINE)
"""In a file of YAML that begins with something else: the anchors of its resources, a directive of a template."""
_LISTS: Final = ("List", "KafkaMirrorMaker2List", "KafkaConnectorList", "ConfigMapList", "SecretList")
_FILES: Final = {"ConfigMap": ("data", "binaryData"), "Secret": ("stringData", "data")}
"""The resources that hold files, and where."""
_ENCODED: Final = {("ConfigMap", "binaryData"), ("Secret", "data")}
_PROPERTIES: Final = re.compile(rb"^\s*(clusters|connector\.class)\s*[=:]", re.MULTILINE)
_DOCUMENTS: Final = re.compile(rb"connector\.class|KafkaMirrorMaker2|KafkaConnector")
"""What other files of a ConfigMap do not have."""


@dataclass(slots=True)
class Source:
    """What a file contains."""

    files: list[PropertiesFile] = field(default_factory=list)
    """Of dedicated MirrorMaker 2s: one, or those in resources."""
    connectors: list[Connector] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """About what is neither."""


def read(data: bytes, where: str) -> Source:
    """Return what a file contains: by its beginning, JSON, YAML or properties. Raises ConfigError."""
    source = Source()
    if not (_STRUCTURED.match(data) or _RESOURCE.search(data)):
        _add_properties(source, read_properties(data, where))
        return source
    for document in read_documents(data, where):
        _add_document(source, Reader(document), where)
    if not (source.files or source.connectors):
        raise refuse(where, "it has no connector of MirrorMaker 2, and no KafkaMirrorMaker2")
    return source


def _add_properties(source: Source, file: PropertiesFile) -> None:
    if "clusters" in file.settings or "connector.class" not in file.settings:
        source.files.append(file)
    else:
        source.connectors += connectors.of_settings(file.settings)


def _add_document(source: Source, reader: Reader, where: str) -> None:
    """Add what a document, or an item of a list, has."""
    kind = reader.node.get("kind").text or ""
    if kind in _LISTS or (reader.node.items and all("apiVersion" in item.entries for item in reader.node.items)):
        items = reader["items"] if kind in _LISTS else reader
        for item in items.items():
            _add_document(source, item, where)
            item.pass_over()
        source.findings += reader.findings(strimzi.unread)
    elif kind == strimzi.KIND:
        resource = strimzi.Resource(reader)
        source.connectors += resource.connectors()
        source.findings += [*resource.findings, *reader.findings(strimzi.unread)]
    elif kind in _FILES:
        for place in _FILES[kind]:
            _add_files(source, reader[place], where, is_encoded=(kind, place) in _ENCODED)
        source.findings += reader.findings(strimzi.unread)
    else:
        found = connectors.of_reader(reader)
        source.connectors += found
        if found:
            source.findings += reader.findings(strimzi.unread if kind else connectors.unread)
        else:
            name = reader.node.get("metadata", "name").text or ""
            key = f"{reader.path}.{kind}".strip(".") or "document"
            setting = Setting(name, reader.node.line, key)
            source.findings.append(about(Kind.NOT_NEEDED, setting, "it has no connectors of MirrorMaker 2"))


def _add_files(source: Source, files: Reader, where: str, *, is_encoded: bool) -> None:
    """Add the configurations among the files that a ConfigMap or a Secret holds."""
    for name in files.node.entries:
        file = files[name]
        data = _content(file.node, is_encoded=is_encoded)
        if data is None:
            continue
        place = f"{where}, {file.path}"
        if _STRUCTURED.match(data) and _DOCUMENTS.search(data):
            file.pass_over()
            for document in read_documents(data, place):
                _add_document(source, Reader(document), place)
        elif _PROPERTIES.search(data):
            file.pass_over()
            _add_properties(source, _moved(read_properties(data, place), file.node, is_encoded=is_encoded))


def _content(node: Node, *, is_encoded: bool) -> bytes | None:
    text = node.text or ""
    if not is_encoded:
        return text.encode()
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _moved(file: PropertiesFile, node: Node, *, is_encoded: bool) -> PropertiesFile:
    """Return properties with their lines in the file that ``node`` is of: where its lines are none there, its own."""
    is_block = node.is_block and not is_encoded
    lines = tuple(
        replace(
            one,
            line=node.line + one.line if is_block else node.line,
            last_line=node.line + one.last_line if is_block else node.line,
        )
        for one in file.lines
    )
    return PropertiesFile(lines, {one.key: Setting(one.value, one.line, one.key) for one in lines})

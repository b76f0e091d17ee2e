"""Kafka's request and response bodies, one class per message for all its versions.

Field names are those of Kafka's schemas in snake_case, as in kio. A field that a version does not have is not written,
and is read as its default.
"""

"""Kafka's messages as this project sees them: one class per message over all its versions.

Field names are those of Kafka's schemas in snake_case (as kio spells them). A field that a version lacks is not
written, and reads as its default here.
"""

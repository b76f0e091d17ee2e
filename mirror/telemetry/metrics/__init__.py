"""Instruments and the values that they collect."""

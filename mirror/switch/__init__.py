"""Moves clients from a flow's source to its target: cut over, step by step, with evidence of each step."""

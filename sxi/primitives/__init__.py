"""The array primitives, one module a group; `PRIMITIVES` is the table of all.

`declare.py` says how to add one.
"""

"""The library in the language itself: `*.sx` beside this file, in scope of every program.

A definition here is written as a user would write it.  It holds no guard and no metric, since those are a
program's own: its docstring shows one worth having.
"""

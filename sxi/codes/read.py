"""E-READ: the text itself is wrong, whatever it was meant to say."""

from __future__ import annotations

from sxi.codes.entry import entry
from sxi.errors import Incomplete

NOT_UTF8 = entry(
    "READ-001",
    "byte 0x{byte:02X} is not UTF-8 here",
    "A program is text in UTF-8; other encodings would be read as other characters, silently. "
    "There is no program to show: a text cannot hold the byte.",
    help="save the file as UTF-8",
)
FILE_UNREADABLE = entry(
    "READ-002",
    "{path} cannot be read: {reason}",
    "The file does not exist, is a folder, or may not be read.",
    breaks="""
        (import "nowhere.sx")
        ;       ^ E-READ-002
    """,
    fixed="""
        (define x 1)
    """,
)
UNCLOSED = entry(
    "READ-003",
    "{opener} is not closed",
    "Each bracket is closed by its own kind. The error stands at the bracket that was opened; where the lines' "
    "indentation contradicts the brackets, that place is shown too.",
    breaks="""
        (define x (+ 1 2
        ;         ^ E-READ-003
    """,
    fixed="""
        (define x (+ 1 2))
    """,
    kind=Incomplete,
)
WRONG_CLOSER = entry(
    "READ-004",
    "{closer} does not close {opener}",
    "Brackets nest: the one opened last is closed first, by its own kind.",
    breaks="""
        (define x (+ 1 2])
        ;               ^ E-READ-004
    """,
    fixed="""
        (define x (+ 1 2))
    """,
    help="write {wanted} here, or close {opener} before it",
)
STRAY_CLOSER = entry(
    "READ-005",
    "{closer} closes nothing",
    "A closing bracket needs one that was opened before it.",
    breaks="""
        (define x 1))
        ;           ^ E-READ-005
    """,
    fixed="""
        (define x 1)
    """,
    help="take {closer} away, or open its bracket before it",
)
NESTED_TOO_DEEP = entry(
    "READ-006",
    "forms nest more than {limit:,} deep",
    "Forms nest at most so deep that everything that walks them can do so safely. A program written by hand nests "
    "about ten deep; one that is written by a program can name its parts. No program short enough to show breaks this.",
    help="name the inner parts by define or let",
)
BAD_NUMBER = entry(
    "READ-007",
    "{word} is not a number: {reason}",
    "What starts like a number, with a digit or with a sign or a point before one, is a number or an error, "
    "never a name: a slip in a number is found where it stands.",
    breaks="""
        (define rate 1e-3x)
        ;            ^ E-READ-007
    """,
    fixed="""
        (define rate 1e-3)
    """,
)
ODD_CHARACTER = entry(
    "READ-008",
    "{name} ({point}) does not belong in a program",
    "Some characters look like a space, a quote or a bracket without being one, or are not seen at all. "
    "In a name they would make two names that look the same, so they stand in strings and comments only; "
    "control characters stand in no string either.",
    breaks="""
        (define x \u22121)
        ;         ^ E-READ-008
    """,
    fixed="""
        (define x -1)
    """,
    help="{repair}",
)
BAD_ESCAPE = entry(
    "READ-009",
    "{escape} is not an escape: {reason}",
    "A backslash in a string begins an escape. A backslash that means itself is written twice.",
    breaks="""
        (print "C:\\data")
        ;         ^ E-READ-009
    """,
    fixed="""
        (print "C:\\\\data")
    """,
    help="{repair}",
)
UNFINISHED_STRING = entry(
    "READ-010",
    "this string does not end",
    "A string ends at the next double quote; it may run over several lines. The error stands where it began.",
    breaks="""
        (print "hello)
        ;      ^ E-READ-010
    """,
    fixed="""
        (print "hello")
    """,
    help='write " where it ends',
    kind=Incomplete,
)
UNFINISHED_COMMENT = entry(
    "READ-011",
    "this comment does not end",
    "A block comment ends at its own |#; comments within it are counted. The error stands where the outermost began.",
    breaks="""
        (define x 1) #| the first
        ;            ^ E-READ-011
    """,
    fixed="""
        (define x 1) #| the first |#
    """,
    help="write |# where it ends",
    kind=Incomplete,
)
NOTHING_FOLLOWS = entry(
    "READ-012",
    "no form follows {prefix}",
    "A quote stands before the form it quotes, and #; before the form it comments out, in the same brackets.",
    breaks="""
        (print 1 ')
        ;        ^ E-READ-012
    """,
    fixed="""
        (print 1 'x)
    """,
    help="write the form after it, or take {prefix} away",
)
NO_FORM_AT_END = entry(
    "READ-013",
    "the text ends after {prefix}",
    "A quote stands before the form it quotes, and #; before the form it comments out.",
    breaks="""
        (print 1) #;
        ;         ^ E-READ-013
    """,
    fixed="""
        (print 1) #;(print 2)
    """,
    kind=Incomplete,
    help="write the form after it, or take {prefix} away",
)
EMPTY_KEYWORD = entry(
    "READ-014",
    "a colon alone is no keyword",
    "A keyword is a colon and its name, without white space between them.",
    breaks="""
        (sum (ones [3]) : axis 0)
        ;               ^ E-READ-014
    """,
    fixed="""
        (sum (ones [3]) :axis 0)
    """,
    help="write the name right after the colon",
)
STRAY_COMMENT_END = entry(
    "READ-015",
    "|# ends no comment",
    "A block comment begins with #| and comments within it are counted, so each |# has its own #|.",
    breaks="""
        (define x 1) |#
        ;            ^ E-READ-015
    """,
    fixed="""
        (define x 1)
    """,
    help="take |# away, or begin the comment with #|",
)

"""E-RUN-001 to 019: the data.  No program alone gives one of these: each takes a file, or the lack of one."""

from __future__ import annotations

from sxi.codes.entry import entry

DATA_MISSING = entry(
    "RUN-001",
    "there is no file {path}",
    "A data source reads a file; its path is relative to the folder of the program's file.",
    breaks="""
        (data digits (npz "nowhere.npz"))
        ;                 ^ E-RUN-001
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
    """,
    help="put the file there, or give the path from the program's folder",
)
DATA_UNREADABLE = entry(
    "RUN-002",
    "{path} cannot be read: {reason}",
    "The file is there, but the operating system does not give its contents.",
    help="make {path} a file that this user may read",
)
DATA_MALFORMED = entry(
    "RUN-003",
    "{path} is not a whole {kind} file: {reason}",
    "The file's contents are not what its form says: it was cut short, damaged, or written as something else.",
    help="write the file again, or name the form it is in",
)
DATA_NOT_NUMBERS = entry(
    "RUN-004",
    "{name} of {path} holds {held}, which no array holds",
    "Arrays hold reals, integers and bools. Text, dates, complex numbers, records and Python objects have no "
    "array type, and objects are never loaded: loading one can run any code.",
    help="leave it out with :columns, or write it as numbers",
)
DATA_UNKNOWN_DTYPE = entry(
    "RUN-005",
    "{dtype} is no type for data",
    "A data source gives arrays of :f32, :f64, :f16, :i32, :i64 or :bool. Values are rounded to bf16 where they "
    "are used, in a `bf16` region.",
    help="write one of :f32 :f64 :f16 :i32 :i64 :bool",
)
DATA_NO_ARRAY = entry(
    "RUN-006",
    "{path} has no {name}; it has {names}",
    "`:columns` and `:dtype` name arrays of the source.",
    help="name one of {names}",
)
DATA_DOES_NOT_FIT = entry(
    "RUN-007",
    "{name} of {path} has the value {value}, which {dtype} cannot hold",
    "Data is converted only where no value changes beyond rounding: an integer must be in range, a real that "
    "becomes an integer must be whole, a finite real must stay finite, and a bool is 0 or 1.",
    help="give {name} another type with :dtype",
)
CSV_HEADER = entry(
    "RUN-008",
    "the first line of {path} is no header: {reason}",
    "The first line of a CSV file names its columns, each name once.",
    help="begin the file with a line of column names",
)
CSV_RAGGED = entry(
    "RUN-009",
    "line {line} of {path} has {given} fields, and its header has {wanted}",
    "Every row of a CSV file has one field for each column.",
    help="mend the row, or quote a field that holds a comma",
)
CSV_TEXT = entry(
    "RUN-010",
    "column {name} of {path} holds {value} on line {line}, which is no number",
    "A column becomes an array of numbers. A missing value is written `nan`; text has no array type.",
    help="leave the column out with :columns, or write it as numbers",
)
SPLIT_FRACTIONS = entry(
    "RUN-011",
    "the fractions of :split are {fractions}, which is no way to divide the whole",
    "Each fraction is above 0 and together they are 1: every row is in exactly one split.",
    help="make the fractions add up to 1",
)
SPLIT_EMPTY = entry(
    "RUN-012",
    "split {name} has no rows: {fraction} of {rows}",
    "The size of a split is its fraction of the rows, rounded, and a run or a pass needs at least one example.",
    help="give {name} a larger fraction, or the source more rows",
)
DATA_EMPTY = entry(
    "RUN-013",
    "there are no examples to take batches from",
    "A run goes through its examples again and again, so it needs at least one.",
    help="give a source that has rows",
)

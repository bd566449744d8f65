"""Every error but the contract rules': one entry each, by family.

E-READ   the text is not a form          E-EVAL   a form means nothing
E-SHAPE  shapes do not fit               E-DTYPE  types do not fit
E-GUARD  a guard stopped the run         E-RUN    data, disk, or a fault of sxi
E-USE    the command was given wrongly

An entry is raised as `codes.NAME.at(span, fact=..., ...)`.  Numbers are never used again for
something else.  The contract rules have their own table, `contracts.py`.
"""

from __future__ import annotations

from typing import Any

from sxi.errors import Code, Incomplete, SxiError, register


def _code(number: str, message: str, why: str, *, kind: type[SxiError] = SxiError, **rest: str) -> Code:
    return register(Code(f"E-{number}", message, why, kind=kind, **rest))


# Reading: the text itself is wrong, whatever it was meant to say.

NOT_UTF8 = _code(
    "READ-001",
    "byte 0x{byte:02X} is not UTF-8 here",
    "A program is text in UTF-8; other encodings would be read as other characters, silently. "
    "There is no program to show: a text cannot hold the byte.",
    help="save the file as UTF-8",
)
FILE_UNREADABLE = _code(
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
UNCLOSED = _code(
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
WRONG_CLOSER = _code(
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
STRAY_CLOSER = _code(
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
NESTED_TOO_DEEP = _code(
    "READ-006",
    "forms nest more than {limit:,} deep",
    "Forms nest at most so deep that everything that walks them can do so safely. A program written by hand nests "
    "about ten deep; one that is written by a program can name its parts. No program short enough to show breaks this.",
    help="name the inner parts by define or let",
)
BAD_NUMBER = _code(
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
ODD_CHARACTER = _code(
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
BAD_ESCAPE = _code(
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
UNFINISHED_STRING = _code(
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
UNFINISHED_COMMENT = _code(
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
NOTHING_FOLLOWS = _code(
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
)
NO_FORM_AT_END = _code(
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
)
EMPTY_KEYWORD = _code(
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
)
STRAY_COMMENT_END = _code(
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
)

# Shapes: the message is preceded by the call and the types of its arguments.

SHAPES_DIFFER = _code(
    "SHAPE-001",
    "{left} and {right} differ",
    "Shapes broadcast when, aligned at their last axes, each pair of lengths is equal or one of them is 1.",
    breaks="""
        (define x (ones [64 128]))
        (define y (@ x (ones [64 10])))
        ;         ^ E-SHAPE-001
    """,
    fixed="""
        (define x (ones [64 128]))
        (define y (@ x (ones [128 10])))
    """,
)
AXIS_OUT_OF_RANGE = _code(
    "SHAPE-002",
    "{axis} is not one of its {ndim} axes",
    "An axis counts from 0, or from the end as a negative number, and the array must have it.",
    breaks="""
        (define x (sum (ones [3 4]) :axis 2))
        ;              ^ E-SHAPE-002
    """,
    fixed="""
        (define x (sum (ones [3 4]) :axis 1))
    """,
)
WRONG_SIZE = _code(
    "SHAPE-003",
    "its {given} elements do not make {wanted}",
    "A reshape keeps every element: the product of the new lengths is that of the old ones.",
    breaks="""
        (define x (reshape (ones [3 4]) [5 2]))
        ;                  ^ E-SHAPE-003
    """,
    fixed="""
        (define x (reshape (ones [3 4]) [6 2]))
    """,
)
WRONG_NDIM = _code(
    "SHAPE-004",
    "expected {wanted}, not {ndim} axes",
    "The operation is defined for arrays with that many axes.",
    breaks="""
        (define x (@ (ones [3]) 2.0))
        ;                       ^ E-SHAPE-004
    """,
    fixed="""
        (define x (* (ones [3]) 2.0))
    """,
)
OUT_OF_BOUNDS = _code(
    "SHAPE-005",
    "{what} {given} is not within {low} to {high}",
    "What is known before the first step is checked there: a slice's ends, a length, a number of parts.",
    breaks="""
        (define x (slice (ones [3 4]) 1 2 9))
        ;                ^ E-SHAPE-005
    """,
    fixed="""
        (define x (slice (ones [3 4]) 1 2 4))
    """,
)

NOTHING_TO_REDUCE = _code(
    "SHAPE-006",
    "there is no {what} of nothing",
    "An empty array has a sum, which is 0, but no largest element and none that stands anywhere.",
    breaks="""
        (define x (max (zeros [0 3]) :axis 0))
        ;              ^ E-SHAPE-006
    """,
    fixed="""
        (define x (max (zeros [2 3]) :axis 0))
    """,
)

# Types: the same.

NOT_NUMERIC = _code(
    "DTYPE-001",
    "{type} holds no numbers",
    "Arithmetic is on numbers; a bool array is a mask, which `cast`, `where` and `count-where` turn into numbers.",
    breaks="""
        (define x (sqrt (> (ones [3]) 0.5)))
        ;               ^ E-DTYPE-001
    """,
    fixed="""
        (define x (sqrt (cast (> (ones [3]) 0.5) :f32)))
    """,
)
NOT_INTEGER = _code(
    "DTYPE-002",
    "{type} holds no integers",
    "An index, a label or a count is an integer.",
    breaks="""
        (define x (at (ones [3]) (zeros [2])))
        ;                        ^ E-DTYPE-002
    """,
    fixed="""
        (define x (at (ones [3]) (zeros [2] :dtype :i32)))
    """,
)
NOT_BOOL = _code(
    "DTYPE-003",
    "{type} is not a mask",
    "`where`, `logical-and` and their like take bool arrays, which the comparisons give.",
    breaks="""
        (define x (where (ones [3]) 1.0 2.0))
        ;                ^ E-DTYPE-003
    """,
    fixed="""
        (define x (where (> (ones [3]) 0.5) 1.0 2.0))
    """,
)
NOT_FLOAT = _code(
    "DTYPE-004",
    "{type} is not a type of reals",
    "The operation is defined on reals.",
    breaks="""
        (define x (softmax (> (ones [3]) 0.0)))
        ;                  ^ E-DTYPE-004
    """,
    fixed="""
        (define x (softmax (cast (> (ones [3]) 0.0) :f32)))
    """,
)
DOES_NOT_FIT = _code(
    "DTYPE-005",
    "{value} does not fit {dtype}",
    "An integer that an array meets takes the array's type, which must be able to hold it.",
    breaks="""
        (define x (+ (arange 3) 5_000_000_000))
        ;                       ^ E-DTYPE-005
    """,
    fixed="""
        (define x (+ (cast (arange 3) :i64) 5_000_000_000))
    """,
)
TYPES_DIFFER = _code(
    "DTYPE-006",
    "{left} and {right} differ",
    "These arrays are taken together without a conversion, so their types must be the same.",
)

# Runs: data.  No program alone gives one of these: each takes a file, or the lack of one.

DATA_MISSING = _code(
    "RUN-001",
    "there is no file {path}",
    "A data source reads a file; its path is relative to the folder of the program's file.",
    help="put the file there, or give the path from the program's folder",
)
DATA_UNREADABLE = _code(
    "RUN-002",
    "{path} cannot be read: {reason}",
    "The file is there, but the operating system does not give its contents.",
    help="make {path} a file that this user may read",
)
DATA_MALFORMED = _code(
    "RUN-003",
    "{path} is not a whole {kind} file: {reason}",
    "The file's contents are not what its form says: it was cut short, damaged, or written as something else.",
    help="write the file again, or name the form it is in",
)
DATA_NOT_NUMBERS = _code(
    "RUN-004",
    "{name} of {path} holds {held}, which no array holds",
    "Arrays hold reals, integers and bools. Text, dates, complex numbers, records and Python objects have no "
    "array type, and objects are never loaded: loading one can run any code.",
    help="leave it out with :columns, or write it as numbers",
)
DATA_UNKNOWN_DTYPE = _code(
    "RUN-005",
    "{dtype} is no type for data",
    "A data source gives arrays of :f32, :f64, :f16, :i32, :i64 or :bool. Values are rounded to bf16 where they "
    "are used, in a `bf16` region.",
    help="write one of :f32 :f64 :f16 :i32 :i64 :bool",
)
DATA_NO_ARRAY = _code(
    "RUN-006",
    "{path} has no {name}; it has {names}",
    "`:columns` and `:dtype` name arrays of the source.",
    help="name one of {names}",
)
DATA_DOES_NOT_FIT = _code(
    "RUN-007",
    "{name} of {path} has the value {value}, which {dtype} cannot hold",
    "Data is converted only where no value changes beyond rounding: an integer must be in range, a real that "
    "becomes an integer must be whole, a finite real must stay finite, and a bool is 0 or 1.",
    help="give {name} another type with :dtype",
)
CSV_HEADER = _code(
    "RUN-008",
    "the first line of {path} is no header: {reason}",
    "The first line of a CSV file names its columns, each name once.",
    help="begin the file with a line of column names",
)
CSV_RAGGED = _code(
    "RUN-009",
    "line {line} of {path} has {given} fields, and its header has {wanted}",
    "Every row of a CSV file has one field for each column.",
    help="mend the row, or quote a field that holds a comma",
)
CSV_TEXT = _code(
    "RUN-010",
    "column {name} of {path} holds {value} on line {line}, which is no number",
    "A column becomes an array of numbers. A missing value is written `nan`; text has no array type.",
    help="leave the column out with :columns, or write it as numbers",
)
SPLIT_FRACTIONS = _code(
    "RUN-011",
    "the fractions of :split are {fractions}, which is no way to divide the whole",
    "Each fraction is above 0 and together they are 1: every row is in exactly one split.",
    help="make the fractions add up to 1",
)
SPLIT_EMPTY = _code(
    "RUN-012",
    "split {name} has no rows: {fraction} of {rows}",
    "The size of a split is its fraction of the rows, rounded, and a run or a pass needs at least one example.",
    help="give {name} a larger fraction, or the source more rows",
)
DATA_EMPTY = _code(
    "RUN-013",
    "there are no examples to take batches from",
    "A run goes through its examples again and again, so it needs at least one.",
    help="give a source that has rows",
)

# Runs: what a run leaves on disk.

CHECKPOINT_NOT_WRITTEN = _code(
    "RUN-020",
    "checkpoint {path} cannot be written: {reason}",
    "A run whose state cannot be saved stops rather than go on with nothing to come back to. The checkpoints "
    "before this one are as they were.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
CHECKPOINT_DAMAGED = _code(
    "RUN-021",
    "checkpoint {path} is damaged: {reason}",
    "Each array and the rest of a checkpoint are kept with a checksum; what does not match it is never used.",
    help="take an earlier checkpoint",
)
CHECKPOINT_MISSING = _code(
    "RUN-022",
    "there is no checkpoint {path}",
    "A checkpoint is a folder with the files state.safetensors and run.json.",
    help="name a folder under checkpoints/ of a run, or a safetensors file",
)
OUTPUT_NOT_WRITTEN = _code(
    "RUN-023",
    "{path} cannot be written: {reason}",
    "What `output` gives in a pass, and what a failing guard looked at, is part of what a run leaves.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
START_DIFFERS = _code(
    "RUN-024",
    "{name} is {given} in {path} and {wanted} in the run",
    "A parameter starts from a saved one only as it is: of the same shape and type, without a conversion.",
    help="leave {name} out by a glob, or save it as {wanted}",
)
START_LACKS = _code(
    "RUN-025",
    "{path} has no parameter {name}; it has {names}",
    "Every parameter that a glob of `:start-from` matches starts from the file; a path alone takes them all. "
    "One that quietly began elsewhere would be another run than the one written.",
    help='name those that it has by a glob: [("net/*" "{path}")]',
)
STREAM_NOT_WRITTEN = _code(
    "RUN-030",
    "stream {path} cannot be written: {reason}",
    "The stream is the run's record, its guards' too; a run that cannot keep it stops.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
STREAM_NOT_READ = _code(
    "RUN-031",
    "stream {path} cannot be read: {reason}",
    "A stream has one JSON object with its kind on each line; only the last line may be cut short, by a kill.",
    help="name the stream.jsonl of a run",
)
STATUS_NOT_WRITTEN = _code(
    "RUN-032",
    "status {path} cannot be written: {reason}",
    "The status file says how the run stands; a run that cannot keep it stops.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
STATUS_NOT_READ = _code(
    "RUN-033",
    "status {path} cannot be read: {reason}",
    "A run keeps a file status.json in its folder.",
    help="name the folder of a run",
)

# Runs: devices.

# The run itself.

RUN_OUT_OF_MEMORY = _code(
    "RUN-040",
    "{what} needs {bytes} bytes for {type}, and there is not that much memory",
    "The step needs more memory than the device has. Fewer examples a microbatch need less: raise :microbatches.",
)
FOLDER_NOT_MADE = _code(
    "RUN-042",
    "the folder {path} cannot be made: {reason}",
    "A run writes its status, its stream and its checkpoints into a folder of its own, which must be possible.",
)
NO_CHECKPOINT = _code(
    "RUN-043",
    "{path} holds no whole checkpoint of this run",
    "Resuming begins from the newest checkpoint that is whole and of this run. Notes say what was skipped.",
)
NO_FAILURE = _code(
    "RUN-044",
    "{path} holds no failure that can be shown",
    "A run that a guard stopped keeps what the guard looked at in `failure/`; `sxi replay` shows it.",
)
DOES_NOT_FAIL = _code(
    "RUN-045",
    "the run in {path} does not fail: it was taken to step {step}",
    "There is a failure to show where a guard or the finite guard stopped the run.",
)
FOLDER_BUSY = _code(
    "RUN-046",
    "another process is writing into {path}",
    "Two runs in one folder would overwrite each other's stream and checkpoints, so a run holds its folder alone.",
    help="wait for it, or stop it: sxi status {path} shows its pid",
)
INTERNAL = _code(
    "RUN-041",
    "a fault of sxi itself: {reason}",
    "This should not have happened whatever the program says; `--debug` shows where it did. Please report it.",
)


CUPY_MISSING = _code(
    "RUN-050",
    "a CUDA device needs CuPy, which is not installed",
    "CuPy comes in one package for each major version of CUDA, and they exclude each other, so none is installed by "
    "default.",
    help="install sxi[cuda12] or sxi[cuda13], as nvidia-smi shows the CUDA version, or take --device cpu",
)
CUPY_BROKEN = _code(
    "RUN-051",
    "CuPy is installed and cannot be imported: {reason}",
    "The package is there, and something it is built on is missing or of another version.",
    help="install sxi[cuda12] or sxi[cuda13] in a fresh environment, or take --device cpu",
)
NO_DEVICE = _code(
    "RUN-052",
    "CuPy finds no CUDA device that works: {reason}",
    "CuPy is installed; the driver is missing or older than CuPy's CUDA, or the machine has no device, or none that "
    "this process may use.",
    help="see what nvidia-smi shows, or take --device cpu",
)
CANNOT_COMPILE = _code(
    "RUN-053",
    "CuPy finds a CUDA device and cannot compile for it: {reason}",
    "CuPy compiles a kernel when it is first used, with the compiler library and the headers of the CUDA toolkit.",
    help="install sxi[cuda12] or sxi[cuda13], which bring the compiler, or take --device cpu",
)


# Evaluating.

UNKNOWN_NAME = _code(
    "EVAL-001",
    "{name} is not defined",
    "A name is bound by the file, by a form around it, by an import, by the library, or it is a primitive.",
    breaks="""
        (define x (sqare 3.0))
        ;          ^ E-EVAL-001
    """,
    fixed="""
        (define x (square 3.0))
    """,
)
MALFORMED = _code(
    "EVAL-002",
    "{form}: {what}",
    "A special form has a fixed shape, which its page in the reference shows.",
    breaks="""
        (define x (let (a 1) a))
        ;               ^ E-EVAL-002
    """,
    fixed="""
        (define x (let ((a 1)) a))
    """,
)
WRONG_COUNT = _code(
    "EVAL-003",
    "{name} takes {wanted}, not {given}",
    "A call gives every positional argument that the function names, and no more.",
    breaks="""
        (define x (sqrt 1.0 2.0))
        ;         ^ E-EVAL-003
    """,
    fixed="""
        (define x (sqrt 1.0))
    """,
)
NOT_A_FUNCTION = _code(
    "EVAL-004",
    "{given} is not a function",
    "The first element of a call is what is called: a function, a model, a primitive or a keyword.",
    breaks="""
        (define x (3 4))
        ;          ^ E-EVAL-004
    """,
    fixed="""
        (define x [3 4])
    """,
)
WRONG_KIND = _code(
    "EVAL-005",
    "{what} is {given}, expected {wanted}",
    "The operand is of another kind than the form or the function takes.",
    breaks="""
        (define x (nth 3 0))
        ;              ^ E-EVAL-005
    """,
    fixed="""
        (define x (nth [3] 0))
    """,
)
UNKNOWN_KEYWORD = _code(
    "EVAL-006",
    "{name} takes no keyword :{keyword}",
    "A function takes the keywords that its definition names.",
    breaks="""
        (define x (sum (ones [3]) :axes 0))
        ;                         ^ E-EVAL-006
    """,
    fixed="""
        (define x (sum (ones [3]) :axis 0))
    """,
)
DEFINED_TWICE = _code(
    "EVAL-007",
    "{name} is defined twice",
    "A name is bound once in its scope, so that what it means does not depend on where one reads.",
    breaks="""
        (define x 1)
        (define x 2)
        ;       ^ E-EVAL-007
    """,
    fixed="""
        (define x 1)
        (define y 2)
    """,
)
USED_BEFORE = _code(
    "EVAL-008",
    "{name} is used before it is defined",
    "Values are computed in the order of the file; only functions may refer forward.",
    breaks="""
        (define x (+ y 1))
        ;            ^ E-EVAL-008
        (define y 2)
    """,
    fixed="""
        (define y 2)
        (define x (+ y 1))
    """,
)
TOO_DEEP = _code(
    "EVAL-009",
    "calls nest deeper than {limit}",
    "A recursion without end is stopped there; a fold does what a long recursion would.",
    breaks="""
        (define (f n) (+ 1 (f n)))
        ;                  ^ E-EVAL-009
        (define x (f 1))
    """,
    fixed="""
        (define (f n) (if (<= n 0) 0 (+ 1 (f (- n 1)))))
        (define x (f 10))
    """,
)
DIVIDED_BY_ZERO = _code(
    "EVAL-010",
    "a whole number is divided by zero",
    "Reals give inf or nan; whole numbers have neither.",
    breaks="""
        (define x (quotient 3 0))
        ;         ^ E-EVAL-010
    """,
    fixed="""
        (define x (/ 3 0.0))
    """,
)
NO_SUCH_KEY = _code(
    "EVAL-011",
    "the record has no :{key}",
    "A record has the keys that it was made with; `(get record :key default)` allows for a missing one.",
    breaks="""
        (define x (:b {:a 1}))
        ;         ^ E-EVAL-011
    """,
    fixed="""
        (define x (:a {:a 1}))
    """,
)
NO_SUCH_ELEMENT = _code(
    "EVAL-012",
    "the list has {count} elements, and none at {index}",
    "Elements count from 0, or from the end as negative numbers.",
    breaks="""
        (define x (nth [1 2] 2))
        ;         ^ E-EVAL-012
    """,
    fixed="""
        (define x (nth [1 2] 1))
    """,
)
MISSING_KEYWORD = _code(
    "EVAL-013",
    "{name} needs :{keyword}",
    "That keyword has no default.",
    breaks="""
        (define s (warmup-cosine :peak 1.0 :warmup 10))
        ;         ^ E-EVAL-013
    """,
    fixed="""
        (define s (warmup-cosine :peak 1.0 :warmup 10 :total 100))
    """,
)
NOT_AN_ARRAY = _code(
    "EVAL-014",
    "expected an array or a number, not {given}",
    "An array operation takes arrays and numbers; `array` makes an array of a list.",
    breaks="""
        (define x (sum [1.0 2.0]))
        ;              ^ E-EVAL-014
    """,
    fixed="""
        (define x (sum (array [1.0 2.0])))
    """,
)
GRAPH_TOO_LARGE = _code(
    "EVAL-015",
    "the graph has more than {limit} operations",
    "A fold in a graph is unrolled: each turn records its operations. A turn a thousand times over is a shape.",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (fold (x (@ (:x batch) (param "w" [3 1] :init zeros-init))) (i (range 250_000))
        ; ^ E-EVAL-015
            (mean x)))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (fold (x (@ (:x batch) (param "w" [3 1] :init zeros-init))) (i (range 25))
            (mean x)))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
WRONG_SETTING = _code(
    "EVAL-016",
    "setting {name}: {what}",
    "A setting is a constant, and it is overridden by a constant of the same kind.",
    breaks="""
        (setting rates (ones [3]))
        ;              ^ E-EVAL-016
    """,
    fixed="""
        (setting rates [1.0 1.0 1.0])
    """,
)
BAD_IMPORT = _code(
    "EVAL-017",
    "{what}",
    "An import is of a file beside the importing one, which does not import it in turn.",
)
TOP_LEVEL_ONLY = _code(
    "EVAL-018",
    "{form} stands at the top level of a file only",
    "A declaration describes the run as a whole, so it cannot stand inside another form.",
    breaks="""
        (define (f x) (run r :steps 1))
        ;             ^ E-EVAL-018
    """,
    fixed="""
        (define (f x) x)
    """,
)

UNKNOWN_PARAMETER = _code(
    "EVAL-019",
    "there is no parameter {name}; the parameters are {known}",
    "Without a shape, `param` names an existing parameter by its full name, model and scopes included.",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (model net (x)
          (@ x (param "w" [3 1] :init zeros-init)))
        (objective (batch)
          (+ (mean (square (net (:x batch)))) (sum (square (param "w")))))
          ;                                                ^ E-EVAL-019
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (model net (x)
          (@ x (param "w" [3 1] :init zeros-init)))
        (objective (batch)
          (+ (mean (square (net (:x batch)))) (sum (square (param "net/w")))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
NO_DRAWS = _code(
    "EVAL-020",
    "a file's top level draws no random numbers: {form}",
    "A draw is a function of the run's seed, the step and the place in a graph; at the top level of a file "
    "there is no step. Draw in a generator, an initializer, `prepare` or the model.",
    breaks="""
        (define x (normal [3]))
        ;         ^ E-EVAL-020
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
    """,
)
ESCAPED = _code(
    "EVAL-021",
    "an array of one graph is used in another",
    "A graph's arrays exist while it runs; a parameter or a state carries values from one graph to the next.",
)
OUT_OF_MEMORY = _code(
    "EVAL-022",
    "there is no memory for {type}",
    "The array does not fit the memory of the machine.",
)

OUT_OF_PLACE = _code(
    "EVAL-023",
    "{form} stands in {where}, where it means nothing; it belongs to {wanted}",
    "Each of these forms is about the graph it stands in: an update is an optimizer's, an output a pass's.",
    breaks="""
        (define x (step))
        ;         ^ E-EVAL-023
    """,
    fixed="""
        (define (rate) (* 0.1 (step)))
    """,
)

UNKNOWN_STATE = _code(
    "EVAL-024",
    "there is no state {name}; the states are {known}",
    "`next` gives a value to a state that a `state` form has declared, under the same scopes. `reading` reads a "
    "state that the parameter's optimizer keeps, of the parameter's own type: (adamw :lr 1e-3 :ema 0.999) keeps `ema`.",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (next "centre" (mean (:x batch) :axis 0))
          ;              ^ E-EVAL-024
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((centre (state "centre" [3] :init zeros-init)))
            (next "centre" (mean (:x batch) :axis 0))
            (mean (square (@ (- (:x batch) centre) (param "w" [3 1] :init zeros-init))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)

SEVERAL_SERIES = _code(
    "EVAL-025",
    "{name} is several series: {series}",
    "`reported` reads one series; metadata or several passes make several of one name. `:pass` names a pass.",
)
STAGE_CHANGES_STATE = _code(
    "EVAL-026",
    "stage {stage} changes {what} from {first} to {second}",
    "A stage goes on with the parameters and states of the one before, so these must have the same names and types.",
)


# Guards: the run's verdicts.  A guard's failure is exactly this one line.

GUARD_FAILED = _code(
    "GUARD-001",
    "guard {guard} counted {count} {where}, expected 0; it is written at {source}",
    "A guard is a count of violations that must stay zero. It was not zero, so the run stopped at that very step: "
    "nothing of a failing training step is saved, and the last checkpoint stands.",
)
NOT_FINITE = _code(
    "GUARD-002",
    "the {what} has {count} values that are not finite at step {step}",
    "The finite guard looks at the loss, at every gradient and at every update before the step is committed. "
    "One that is NaN or infinite would spread to every parameter, so the run stops before it does.",
)

# Using the command.

NO_SUCH_CODE = _code(
    "USE-001",
    "no error has the code {text}",
    "`sxi explain` takes a file that exists, or the code of an error: `E-SHAPE-001`, `shape-1`, or for a contract rule "
    "its number alone, `020`.",
)

OUT_EXISTS = _code(
    "USE-002",
    "{path} exists already",
    "A run never writes into what is there: it makes its folder itself. `--resume` goes on with an earlier run.",
    help="choose another --out, or --resume {path}",
)
NO_FILE = _code(
    "USE-003",
    "there is no file {path}",
    "The program is a file that exists.",
)
BAD_SET = _code(
    "USE-004",
    "--set {text}: {reason}",
    "A setting is given as --set name=value, the value a constant of the language.",
    help="--set rate=1e-3",
)
NOT_A_RUN = _code(
    "USE-005",
    "{path} is not the folder of a run",
    "The folder of a run has a status.json and the program it ran, as `sxi run --out` made them.",
)
RESUME_DIFFERS = _code(
    "USE-006",
    "the run cannot go on: {what}",
    "A run goes on with the parameters, states and options it was saved with; what may change is what is reported and "
    "guarded.",
)

NO_SUCH_PASS = _code(
    "USE-007",
    "the run has no pass {name}; its passes are {known}",
    "A pass is an evaluation that the run's `:evaluate` names.",
)

NO_SUCH_GRAPH = _code(
    "USE-008",
    "the run has no graph {name}; its graphs are {known}",
    "A run records one graph for a microbatch of the step, one for the update, and one for each pass.",
    help="{repair}",
)

TWO_FOLDERS = _code(
    "USE-010",
    "--out {out} and --resume {resume} name two folders",
    "A run goes on in its own folder, where its stream and its checkpoints are.",
    help="leave --out out",
)

NO_COMMAND = _code(
    "USE-020",
    "there is no command ,{name}",
    "At the prompt a line that begins with a comma is a command; `,help` lists them.",
)
COMMAND_MISUSED = _code(
    "USE-021",
    ",{name}: {what}",
    "A command of the prompt takes what `,help` says, and some need a loaded file or a run.",
)


class Refusal(Exception):
    """What a type rule raises: `code` with its facts, about one operand or the whole call.

    The evaluator knows the call, its span and the names of its operands, and turns it into the
    error the user sees; so a type rule needs to know none of these.
    """

    def __init__(self, code: Code, operand: int | None = None, **facts: object) -> None:
        super().__init__(code.code, facts)
        self.code, self.operand = code, operand
        self.facts: dict[str, Any] = facts

    def error(self) -> SxiError:
        """The error without its place."""
        return self.code.at(None, **self.facts)

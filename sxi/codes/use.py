"""E-USE: the command was given wrongly."""

from __future__ import annotations

from sxi.codes.entry import entry

NO_SUCH_CODE = entry(
    "USE-001",
    "no error has the code {text}",
    "`sxi explain` takes a file that exists, or the code of an error: `E-SHAPE-001`, `shape-1`, or for a contract rule "
    "its number alone, `020`.",
)
OUT_EXISTS = entry(
    "USE-002",
    "{path} exists already",
    "A run never writes into what is there: it makes its folder itself. `--resume` goes on with an earlier run.",
    help="choose another --out, or --resume {path}",
)
NO_FILE = entry(
    "USE-003",
    "there is no file {path}",
    "The program is a file that exists.",
)
BAD_SET = entry(
    "USE-004",
    "--set {text}: {reason}",
    "A setting is given as --set name=value, the value a constant of the language.",
    help="--set rate=1e-3",
)
NOT_A_RUN = entry(
    "USE-005",
    "{path} is not the folder of a run",
    "The folder of a run has a status.json and the program it ran, as `sxi run --out` made them.",
    help="name the folder that sxi run wrote into",
)
RESUME_DIFFERS = entry(
    "USE-006",
    "the run cannot go on: {what}",
    "A run goes on with the parameters, states and options it was saved with; what may change is what is reported and "
    "guarded.",
    help="undo that change, or begin a new run without --resume",
)
NO_SUCH_PASS = entry(
    "USE-007",
    "the run has no pass {name}; its passes are {known}",
    "A pass is an evaluation that the run's `:evaluate` names.",
)
NO_PASSES = entry(
    "USE-011",
    "the run in {path} has no passes",
    "What `sxi evaluate` takes are the passes that the run's `:evaluate` names, and it names none.",
    help="add :evaluate [(NAME :data D)] to the file, then sxi run FILE --resume {path}",
)
STATE_DIFFERS = entry(
    "USE-012",
    "the saved state does not fit: {what}",
    "The passes of a saved run are taken with the parameters and states it was saved with, of the shapes and types "
    "they have there. A setting may change what data a pass reads, not what the model is made of.",
    help="leave out the --set that changes it",
)
NO_SUCH_GRAPH = entry(
    "USE-008",
    "the run has no graph {name}; its graphs are {known}",
    "A run records one graph for a microbatch of the step, one for the update, and one for each pass.",
    help="{repair}",
)
MISUSED = entry(
    "USE-009",
    "{what}",
    "A command takes the arguments and options that its `--help` tells; an option that it does not know would "
    "otherwise be taken for another, or for a file.",
)
TWO_FOLDERS = entry(
    "USE-010",
    "--out {out} and --resume {resume} name two folders",
    "A run goes on in its own folder, where its stream and its checkpoints are.",
    help="leave --out out",
)
NO_COMMAND = entry(
    "USE-020",
    "there is no command ,{name}",
    "At the prompt a line that begins with a comma is a command; `,help` lists them.",
)
COMMAND_MISUSED = entry(
    "USE-021",
    ",{name}: {what}",
    "A command of the prompt takes what `,help` says, and some need a loaded file or a run.",
)

"""E-RUN from 020 on: what a run leaves on disk, the run itself, its device, a fault of sxi."""

from __future__ import annotations

from sxi.codes.entry import entry

CHECKPOINT_NOT_WRITTEN = entry(
    "RUN-020",
    "checkpoint {path} cannot be written: {reason}",
    "A run whose state cannot be saved stops rather than go on with nothing to come back to. The checkpoints "
    "before this one are as they were.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
CHECKPOINT_DAMAGED = entry(
    "RUN-021",
    "checkpoint {path} is damaged: {reason}",
    "Each array and the rest of a checkpoint are kept with a checksum; what does not match it is never used.",
    help="take an earlier checkpoint",
)
CHECKPOINT_MISSING = entry(
    "RUN-022",
    "there is no checkpoint {path}",
    "A checkpoint is a folder with the files state.safetensors and run.json.",
    help="name the folder of a run, one under its checkpoints/, or a safetensors file",
)
OUTPUT_NOT_WRITTEN = entry(
    "RUN-023",
    "{path} cannot be written: {reason}",
    "What `output` gives in a pass, and what a failing guard looked at, is part of what a run leaves.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
START_DIFFERS = entry(
    "RUN-024",
    "{name} is {given} in {path} and {wanted} in the run",
    "A parameter starts from a saved one only as it is: of the same shape and type, without a conversion.",
    help="leave {name} out by a glob, or save it as {wanted}",
)
START_LACKS = entry(
    "RUN-025",
    "{path} has no parameter {name}; it has {names}",
    "Every parameter that a glob of `:start-from` matches starts from the file; a path alone takes them all. "
    "One that quietly began elsewhere would be another run than the one written.",
    help='name those that it has by a glob: [("net/*" "{path}")]',
)
START_EMPTY = entry(
    "RUN-026",
    "the run in {path} has no whole checkpoint to start from",
    "Where `:start-from` names the folder of a run, its newest whole checkpoint is taken. Notes say what was skipped.",
    help="wait for its first checkpoint, or take a run that has one",
)
STREAM_NOT_WRITTEN = entry(
    "RUN-030",
    "stream {path} cannot be written: {reason}",
    "The stream is the run's record, its guards' too; a run that cannot keep it stops.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
STREAM_NOT_READ = entry(
    "RUN-031",
    "stream {path} cannot be read: {reason}",
    "A stream has one JSON object with its kind on each line; only the last line may be cut short, by a kill.",
    help="name the stream.jsonl of a run",
)
STATUS_NOT_WRITTEN = entry(
    "RUN-032",
    "status {path} cannot be written: {reason}",
    "The status file says how the run stands; a run that cannot keep it stops.",
    help="make room on the disk or the folder writable, then go on with --resume",
)
STATUS_NOT_READ = entry(
    "RUN-033",
    "status {path} cannot be read: {reason}",
    "A run keeps a file status.json in its folder.",
    help="name the folder of a run",
)
OUTPUT_REFUSED = entry(
    "RUN-034",
    "standard output cannot be written: {reason}",
    "What a command tells goes to standard output, which may lead into a file. What it did besides is done: a run "
    "has its folder.",
    help="make room on the disk, or let the output go elsewhere",
)
RUN_OUT_OF_MEMORY = entry(
    "RUN-040",
    "{what} needs {bytes} bytes for {type}, and there is not that much memory",
    "The step needs more memory than the device has. Fewer examples a microbatch need less: raise :microbatches.",
    help="raise :microbatches, or lower :batch",
)
INTERNAL = entry(
    "RUN-041",
    "a fault of sxi itself: {reason}",
    "This should not have happened whatever the program says; `--debug` shows where it did. Please report it.",
    help="do it again with --debug, and report what it shows",
)
FOLDER_NOT_MADE = entry(
    "RUN-042",
    "the folder {path} cannot be made: {reason}",
    "A run writes its status, its stream and its checkpoints into a folder of its own, which must be possible.",
    help="name another folder with --out",
)
NO_CHECKPOINT = entry(
    "RUN-043",
    "{path} holds no whole checkpoint of this run",
    "Resuming begins from the newest checkpoint that is whole and of this run. Notes say what was skipped.",
    help="begin a new run without --resume",
)
NO_FAILURE = entry(
    "RUN-044",
    "{path} holds no failure that can be shown",
    "A run that a guard stopped keeps what the guard looked at in `failure/`; `sxi replay` shows it.",
)
DOES_NOT_FAIL = entry(
    "RUN-045",
    "the run in {path} does not fail: it was taken to step {step}",
    "There is a failure to show where a guard or the finite guard stopped the run.",
)
FOLDER_BUSY = entry(
    "RUN-046",
    "another process is writing into {path}",
    "Two runs in one folder would overwrite each other's stream and checkpoints, so a run holds its folder alone.",
    help="wait for it, or stop it: sxi status {path} shows its pid",
)
CUPY_MISSING = entry(
    "RUN-050",
    "a CUDA device needs CuPy, which is not installed",
    "CuPy comes in one package for each major version of CUDA, and they exclude each other, so none is installed by "
    "default.",
    help="install sxi[cuda12] or sxi[cuda13], as nvidia-smi shows the CUDA version, or take --device cpu",
)
CUPY_BROKEN = entry(
    "RUN-051",
    "CuPy is installed and cannot be imported: {reason}",
    "The package is there, and something it is built on is missing or of another version.",
    help="install sxi[cuda12] or sxi[cuda13] in a fresh environment, or take --device cpu",
)
NO_DEVICE = entry(
    "RUN-052",
    "CuPy finds no CUDA device that works: {reason}",
    "CuPy is installed; the driver is missing or older than CuPy's CUDA, or the machine has no device, or none that "
    "this process may use.",
    help="see what nvidia-smi shows, or take --device cpu",
)
CANNOT_COMPILE = entry(
    "RUN-053",
    "CuPy finds a CUDA device and cannot compile for it: {reason}",
    "CuPy compiles a kernel when it is first used, with the compiler library and the headers of the CUDA toolkit.",
    help="install sxi[cuda12] or sxi[cuda13], which bring the compiler, or take --device cpu",
)

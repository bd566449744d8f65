"""The command line: arguments, exit statuses, and what goes to which stream.

Each command imports what it needs when it is called, so that `sxi --help` starts at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from sxi import __version__, streams
from sxi.threads import take_threads

if TYPE_CHECKING:
    from sxi.errors import SxiError

DEVICES = ("auto", "cpu", "cuda", "strict")
FORMATS = ("text", "json", "github")
WIDEST_HELP = 100


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="sxi")
@click.option("--debug", is_flag=True, help="Show where in sxi an error came from.")
@click.pass_context
def sxi(context: click.Context, debug: bool) -> None:
    """Train what a .sx file describes; stop at the very step where a guard counts.

    Without a command: the prompt. `sxi repl FILE` loads a file there, `sxi -e TEXT` evaluates a text and
    `sxi -` what comes through a pipe.
    """
    context.obj = debug


def main(arguments: list[str]) -> int:
    """Run the command line; its exit status."""
    debug = "--debug" in arguments
    own = [a for a in arguments if a != "--debug"]
    try:
        # click would look for the terminal's width with modules that take longer to import than all of `--help`
        width = min(_width(), WIDEST_HELP) - 2
        result = sxi.main(own, prog_name="sxi", standalone_mode=False, terminal_width=width)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as wrong:
        return _tell(_misuse(wrong, own), debug)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # the reader of a pipe has left: nothing more can be said
        streams.forget_output()
        return 1
    except OSError as error:
        return _tell(streams.refusal(error) or error, debug)
    except Exception as error:
        return _tell(error, debug)


def _misuse(wrong: click.ClickException, arguments: list[str]) -> SxiError:
    """What click found wrong with the command line, as an error of ours that names one near word."""
    from sxi import codes  # noqa: PLC0415  # only where something went wrong
    from sxi.suggest import did_you_mean  # noqa: PLC0415  # likewise

    context = getattr(wrong, "ctx", None) or _context_of(arguments)
    command, path = context.command, context.command_path
    quoted = wrong.message.split("'")[1] if "'" in wrong.message else ""
    what, near = wrong.message, ""
    match wrong:
        case click.NoSuchOption():
            what = f"{path} has no option {wrong.option_name}"
            near = did_you_mean(wrong.option_name, [name for p in command.params for name in p.opts])
        case click.BadOptionUsage():
            what = f"{wrong.option_name} needs a value"
        case click.MissingParameter(param=click.Parameter() as param):
            what = f"{path} needs {param.metavar or (param.name or '').upper()}"
        case click.BadParameter(param=click.Parameter() as param):
            what = f"{param.opts[-1]}: {wrong.message.replace('a valid integer range', 'a whole number')}"
            near = did_you_mean(quoted, getattr(param.type, "choices", ()))
        case _ if isinstance(command, click.Group) and quoted:
            what = f"{path} has no command {quoted}"
            near = _in_place_of(quoted) or did_you_mean(quoted, [*command.commands, "repl"])
        case _:
            what = f"{path} {what[:1].lower()}{what[1:]}"
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    help = near or f"{path} --help tells what it takes"
    what = what.replace("'", "").rstrip(".")
    return codes.MISUSED.at(None, what=what, notes=(f"it is written {usage}",), help=help)


def _context_of(arguments: list[str]) -> click.Context:
    """The command that was meant, where click does not say it."""
    whole = click.Context(sxi, info_name="sxi")
    name = next((a for a in arguments if a in sxi.commands), None)
    return whole if name is None else click.Context(sxi.commands[name], whole, info_name=name)


def _in_place_of(word: str) -> str:
    """What to write where a file or a form stands in the place of a command."""
    if word.endswith(".sx"):
        return f"sxi run {word} trains, sxi repl {word} prompts"
    return "sxi -e TEXT evaluates a text" if word.startswith("(") else ""


def _tell(error: Exception, debug: bool) -> int:
    """Print an error that a command raised; its exit status.  Nothing else than our own errors should come here."""
    from sxi import codes  # noqa: PLC0415  # only where something went wrong
    from sxi.errors import SxiError  # noqa: PLC0415  # likewise

    if debug:
        import traceback  # noqa: PLC0415  # likewise

        traceback.print_exc()
    if isinstance(error, MemoryError):
        error = codes.OUT_OF_MEMORY.at(None, type="what was asked for")
    elif not isinstance(error, SxiError):
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        error = codes.INTERNAL.at(None, reason=reason)
    show(error)
    return error.exit_status


def show(error: SxiError, prefix: str = "") -> None:
    """Print an error as a frame on stderr."""
    from sxi import render  # noqa: PLC0415  # only where something went wrong

    stream = sys.stderr
    colour = render.colours_wanted(stream, os.environ)
    text = render.frame(error, width=_width(), colour=colour, unicode=streams.is_unicode(stream), prefix=prefix)
    with suppress(OSError):  # nobody can be told
        click.echo(text, file=stream, color=True)


def _width() -> int:
    """The columns of the terminal: what COLUMNS says, else what stdout's has, else 80; 40 to 200."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(40, min(int(columns), 200))
    try:
        return max(40, min(os.get_terminal_size(1).columns or 80, 200))
    except OSError:  # it is closed or no terminal
        return 80


# run


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Override a setting.")(command)
    return click.option("--device", type=click.Choice(DEVICES), default="auto", help="Where arrays live.")(command)


@sxi.command()
@click.argument("file", required=False)
@click.option("--out", metavar="DIR", help="The folder of the run.  [sxi-runs/NAME-DATE-TIME]")
@click.option("--resume", metavar="DIR", help="Go on with the run in DIR from its last whole checkpoint.")
@click.option("--steps", type=click.IntRange(1), help="Override :steps.")
@click.option("--seed", type=click.IntRange(0), help="Override :seed.")
@click.option("--threads", type=click.IntRange(1), help="Threads of a matrix product.  [half the cores]")
@click.option("--quiet", is_flag=True, help="No progress line and no summary.")
@click.option("--no-plan", is_flag=True, help="Run each operation as recorded, for comparison.")
@_common
def run(
    file: str | None, out: str | None, resume: str | None, steps: int | None, seed: int | None, threads: int | None,
    quiet: bool, no_plan: bool, sets: tuple[str, ...], device: str,
) -> int:  # fmt: skip
    """Train what FILE describes.

    \b
    Exit status: 0 done; 1 data, checkpoint, disk; 2 wrong usage; 3 a guard or the
    finite guard stopped the run; 4 the program is refused; 75 stopped by a signal
    with a checkpoint; 130 Ctrl-C.
    """
    if threads is not None:
        take_threads(threads)
    from sxi import commands  # noqa: PLC0415  # `--help` needs no array module

    if file is None and resume is None:
        raise click.UsageError("Needs FILE", click.get_current_context())
    if out == "":
        raise click.BadOptionUsage("--out", "Needs a value", click.get_current_context())
    options = {k: v for k, v in (("steps", steps), ("seed", seed)) if v is not None}
    request = commands.Request(file, out, resume, options, sets, device, quiet, no_plan)
    return _perform(lambda: commands.run(request, sys.stdout, sys.stderr), "sxi run: ")


def _perform(command: Callable[[], tuple[int, SxiError | None]], prefix: str) -> int:
    """Perform a command that ends in a status and perhaps an error, and print the error.

    A guard's failure is exactly one line; another error is a frame.
    """
    from sxi.errors import SxiError  # noqa: PLC0415  # `--help` needs none

    try:
        status, error = command()
    except SxiError as raised:
        status, error = raised.exit_status, raised
    if error is not None and error.family == "GUARD":
        click.echo(f"{prefix}{error}", err=True)
    elif error is not None:
        for one in (error, *error.others):
            show(one, prefix if one.family in ("RUN", "USE") else "")
    return status


# check, explain


@sxi.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="How findings are written.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Override a setting.")
def check(files: tuple[str, ...], form: str, sets: tuple[str, ...]) -> int:
    """Check every contract of each FILE without taking a step."""
    from sxi import commands  # noqa: PLC0415  # `--help` needs no array module

    return commands.check(files, form, sets, sys.stdout, _width(), streams.is_unicode(sys.stdout))


@sxi.command()
@click.argument("what", metavar="FILE|CODE|NAME")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", help="How it is written.")
@click.option("--graph", metavar="NAME", help='Print a recorded graph: step, update or "pass NAME".')
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Override a setting.")
def explain(what: str, form: str, graph: str | None, sets: tuple[str, ...]) -> int:
    """List a FILE's guards, series and parameters; explain the CODE of an error, or a NAME of the language."""
    from sxi import commands  # noqa: PLC0415  # `--help` needs no array module

    return _perform(lambda: (commands.explain(what, form, graph, sets, sys.stdout, _width()), None), "")


# What a run left


@sxi.command()
@click.argument("folder", metavar="DIR")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", help="How it is written.")
def status(folder: str, form: str) -> int:
    """Say how the run in DIR stands."""
    from sxi import commands  # noqa: PLC0415  # `--help` needs no array module

    return _perform(lambda: (commands.status(folder, form, sys.stdout), None), "")


@sxi.command()
@click.argument("folder", metavar="DIR")
@click.option("--device", type=click.Choice(DEVICES), default="auto", help="Where arrays live.")
def replay(folder: str, device: str) -> int:
    """Show what the guard looked at that stopped the run in DIR."""
    from sxi import commands  # noqa: PLC0415  # `--help` needs no array module

    return _perform(lambda: (commands.replay(folder, device, sys.stdout, sys.stderr), None), "sxi replay: ")


@sxi.command()
@click.argument("folder", metavar="DIR")
@click.argument("name", required=False, metavar="PASS")
@click.option("--checkpoint", "which", metavar="N|best", help="Which checkpoint.  [the newest]")
@click.option("--out", metavar="DIR", help="Where outputs go.  [DIR/evaluate-DATE-TIME]")
@_common
def evaluate(
    folder: str, name: str | None, which: str | None, out: str | None, sets: tuple[str, ...], device: str
) -> int:
    """Perform the passes of the saved run in DIR without a step: prediction.

    A path given by --set is relative to the working folder.
    """
    from sxi import commands  # noqa: PLC0415  # `--help` needs no array module

    return _perform(
        lambda: commands.evaluate(folder, name, which, sets, device, out, sys.stdout, sys.stderr),
        "sxi evaluate: ",
    )

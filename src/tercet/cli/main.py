"""`tercet`: a group of commands that are imported only when they run."""

import importlib
import sys

import click

from tercet import __version__
from tercet.base.errors import Invalid

COMMANDS = {
    "serve": ("tercet.cli.serve", "Serve a model over HTTP (OpenAI's API)."),
    "join": ("tercet.cli.join", "Be a further host of a cluster."),
    "cluster": ("tercet.cli.cluster", "Several hosts on one machine."),
    "run": ("tercet.cli.run", "Answer one prompt, without a server."),
    "chat": ("tercet.cli.chat", "Talk with a model in the terminal."),
    "bench": ("tercet.cli.bench", "Measure a server under load."),
    "status": ("tercet.cli.status", "Show a running server: executors, hosts, transfers."),
    "scale": ("tercet.cli.scale", "Set how many executors of each role a server has."),
    "quantize": ("tercet.cli.quantize", "Write a model in INT8, calibrated."),
    "explain": ("tercet.cli.explain", "Say what this machine can do and what would be used."),
    "models": ("tercet.cli.models", "List the models that can be served by name."),
    "images": ("tercet.cli.images", "List, remove or verify model images."),
    "config": ("tercet.cli.config", "Show the configuration and where each value came from."),
    "replay": ("tercet.cli.replay", "Run a server's recordings again and compare."),
    "sim": ("tercet.cli.sim", "Run the machines in virtual time, with faults."),
}
"""Name of each command: the module that holds it as `command`, and its line of help."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and help, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(_unknown_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tercet")
def root() -> None:
    """Tercet serves language models from three pools of peers: prefill, decode and cache."""


def main() -> None:
    """Run the command line; a person's mistake is one sentence and exit status 2."""
    try:
        root.main(prog_name="tercet", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except Invalid as error:
        click.echo(f"tercet: {error.sentence}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)


def _unknown_command(name: str) -> str:
    import difflib  # only for a mistake: it costs a tenth of the time that --help may take

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(COMMANDS)}."
    return f"No command {name!r}.{hint}"

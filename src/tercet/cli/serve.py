"""`tercet serve`: be the supervisor of a process tree until told to stop."""

import json
import sys
from dataclasses import replace

import click

from tercet.cli.compose import compose, serving_options
from tercet.cli.prepare import prepare
from tercet.runtime.config import TreeConfig
from tercet.runtime.endpoints import host_and_port
from tercet.runtime.supervisor import supervise


@click.command(context_settings={"show_default": True})
@click.argument("model", required=False)
@click.option("--model", "model_flag", hidden=True)
@serving_options
@click.pass_context
def command(
    context: click.Context, /, model: str | None, model_flag: str | None, **_: object
) -> None:
    """Serve MODEL over HTTP: a name of `tercet models`, a folder, a .gguf file or a hub id."""
    config = in_place(compose(context, model or model_flag).value)
    sys.exit(supervise(config, on_serving=lambda url: click.echo(welcome(url, config))))


def in_place(config: TreeConfig) -> TreeConfig:
    """Fetch and build what the model still needs; the configuration that names it for good."""
    prepared = prepare(config)
    names = config.served_names or (prepared.name,)
    runtime = config.runtime
    shared = runtime.cluster_address is not None
    if runtime.cluster_address is not None and runtime.data_address is None:
        host, _ = host_and_port(runtime.cluster_address, parameter="cluster-address")
        runtime = replace(runtime, data_address=host)
    return replace(
        config,
        model=prepared.location,
        served_names=names,
        image=prepared.image if shared else "",
        weights=(prepared.weights or prepared.location) if shared else "",
        runtime=runtime,
    )


def welcome(url: str, config: TreeConfig) -> str:
    """What a person can paste once the model can answer."""
    name = config.served_names[0]
    # The key itself stays off terminals and logs.
    guarded = bool(config.api.api_keys)
    header = ' -H "Authorization: Bearer $TERCET_API_KEY"' if guarded else ""
    key = "__import__('os').environ['TERCET_API_KEY']" if guarded else '"none"'
    note = ", TERCET_API_KEY being one of your keys" if guarded else ""
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hi!"}]})
    call = f'client.chat.completions.create(model="{name}", messages=messages)'
    curl = f"curl {url}/v1/chat/completions{header} -H 'Content-Type: application/json'"
    return "\n".join(
        [
            f"\nServing {name} on {url} (Ctrl-C ends it{note})\n",
            f"{curl} -d '{body}'\n",
            "import openai; messages = [{'role': 'user', 'content': 'Hi!'}]",
            f'client = openai.OpenAI(base_url="{url}/v1", api_key={key})',
            f"print({call}.choices[0].message.content)\n",
        ]
    )

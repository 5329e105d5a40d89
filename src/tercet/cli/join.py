"""`tercet join`: be a further host of a cluster until told to stop."""

import socket
import sys
from dataclasses import replace
from pathlib import Path

import click

from tercet.cli.compose import cache_folder
from tercet.models.image.shelf import Shelf
from tercet.runtime.joining_host import ask
from tercet.runtime.model_blocks import image_of
from tercet.runtime.opening import cache_of, expect_weights
from tercet.runtime.place import read_secret
from tercet.runtime.supervisor import supervise


@click.command()
@click.argument("cluster", metavar="HOST:PORT")
@click.option("--secret-file", type=click.Path(path_type=Path), required=True)
@click.option("--host-name", default=socket.gethostname, help="This host's name in the cluster.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where others reach it.")
def command(cluster: str, secret_file: Path, host_name: str, address: str) -> None:
    """Join the cluster that `tercet serve --cluster-address` opened at HOST:PORT."""
    secret = read_secret(secret_file)
    config, place = ask(cluster, host=host_name, secret=secret)
    pool = config.pool
    if pool.disk_path is not None:
        pool = replace(pool, disk_path=f"{pool.disk_path}.{host_name}")
    config = replace(
        config,
        cache_folder=str(cache_folder()),
        pool=pool,
        runtime=replace(config.runtime, data_address=address),
    )
    key = image_of(config)
    expect_weights(config, Shelf(cache_of(config)).weights(key) if key else None, key)
    click.echo(f"Host {host_name} serves {config.served_names[0]} with the cluster at {cluster}")
    sys.exit(supervise(config, on_serving=lambda _: None, place=place))

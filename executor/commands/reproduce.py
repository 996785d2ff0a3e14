"""`marinade reproduce`: an artifact's recipe as it was when the artifact was made; exit code 1 where they differ."""

import argparse
import dataclasses
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from executor.cli import INTERRUPTED
from executor.commands.finding import find_artifact, trace_artifact
from executor.comparing.reproduction import Keys, Output, compare_keys, compare_outputs
from executor.comparing.revision import build_side, environment_of
from executor.driver.interruption import terminated_as_interrupt
from executor.errors import MarinadeError, UsageError
from executor.history.lineage import Lineage, trace
from executor.history.origin import Origin, origin_of
from executor.render.reproduce import keys_text, origin_text, outputs_text, reproduction_json
from executor.render.terminal import Terminal
from executor.storage.locate import read_record
from executor.storage.places import normal_url
from executor.storage.store import Store, default_prefix


def execute(args: argparse.Namespace) -> int:
    terminal = Terminal.of(sys.stdout)
    store, record = find_artifact(args.address, args.prefix)
    origin = origin_of(record, store.source(record.address, record.attempt), args.overrides)
    lineage = trace_artifact(args.address, args.prefix)
    to = _other_store(args, store) if args.run else ""
    if not args.json:
        sys.stdout.write(origin_text(record, origin, terminal))
        sys.stdout.flush()
    outputs: tuple[Output, ...] | None = None
    with terminated_as_interrupt(), origin.checked_out(args.repository) as project:
        keys = _keys(project, origin, lineage)
        if not args.json:
            sys.stdout.write(keys_text(keys, lineage, terminal))
            sys.stdout.flush()
        if args.run and keys.agree:
            _run(project, origin, record.name, to, args)
            outputs = compare_outputs(lineage, _rerun(to, keys.rebuilt))
    if args.json:
        from executor.render.as_json import dumps

        print(dumps(reproduction_json(record, origin, keys, to, outputs)))
    elif outputs is not None:
        sys.stdout.write(outputs_text(outputs, to, terminal))
    return 0 if keys.agree and all(output.equal for output in outputs or ()) else 1


def _keys(project: Path, origin: Origin, lineage: Lineage) -> Keys:
    label = f"{origin.recipe}@{origin.commit[:12]}"
    side = build_side(project, origin.recipe, scale=origin.scale, overrides=origin.overrides)
    if not side.steps:
        raise MarinadeError(f"{label} knows no scale {origin.scale}")
    return compare_keys(lineage, dataclasses.replace(side, label=label))


def _other_store(args: argparse.Namespace, store: Store) -> str:
    """Where it is run. Raises UsageError for the store that it came from: nothing would run there."""
    to = args.to or f"{(args.prefix or default_prefix()).rstrip('/')}-reproduced"
    if normal_url(to) == normal_url(store.prefix):
        raise UsageError(f"--to {to} is the store that the artifact lies in, where nothing would run; name another one")
    return to


def _run(project: Path, origin: Origin, step: str, prefix: str, args: argparse.Namespace) -> None:
    """The recipe as far as the step, by its own command line; relative paths in it mean what they mean here.

    Raises MarinadeError where it fails; what ran is kept, and the same command goes on from there.
    """
    settings = [word for override in origin.overrides for word in ("--set", override)]
    words = ["--scale", origin.scale, *settings, "--until", step, "--prefix", prefix]
    words += ["--inline"] if args.inline else []
    with subprocess.Popen(
        [sys.executable, str(project / origin.recipe), *words],
        env=environment_of(project),
        stdout=sys.stderr if args.json else None,
        start_new_session=True,  # Ctrl-C reaches it through this process, once for each time
    ) as running:
        while running.returncode is None:
            try:
                running.wait()
            except KeyboardInterrupt:
                running.send_signal(signal.SIGINT)
    if running.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if running.returncode:
        raise MarinadeError(
            f"{shlex.join([origin.recipe, *words])} ended with exit code {running.returncode}; what ran is kept under "
            f"{prefix}, and marinade reproduce goes on from there"
        )


def _rerun(prefix: str, key: str) -> Lineage:
    """The lineage of the step in the other store."""
    store = Store(prefix)
    entry = store.index.lookup("recipe", [key])[key]
    record = store.record(entry.address)
    if record is None:
        raise MarinadeError(f"{prefix}/{entry.address} has no record, though it was just run")
    return trace(store.location(record.address, record.attempt), record, read_record)

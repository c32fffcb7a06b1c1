"""`exoctl launch`: another program, told by its environment to ask this cluster."""

import os
import shlex
import shutil
from typing import Annotated

import typer

from node.config import environment_for_child
from node.handle import NodeHandle
from node.model.errors import NotFoundError
from tui.commands.console import Console
from tui.commands.instances import ready_instances
from tui.commands.naming import find_model

NO_KEY = "none"


def launch(
    console: Console,
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROGRAM ARGS…]", help="After `--`, where it has options."),
    ] = None,
    *,
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="Which it is to ask; one that runs.")
    ] = "",
    print_env: Annotated[
        bool, typer.Option("--print-env", help="Only print the variables, for `eval`.")
    ] = False,
) -> None:
    """Start a program that speaks OpenAI's, Anthropic's or Ollama's API, on the cluster's models.

    It gets the variables that the vendors' own libraries read; a program that reads others can be
    set up by hand with `--print-env`.
    """

    async def work(handle: NodeHandle) -> str:
        return _model_of(handle, model)

    wanted = console.connected(work)
    address, token = console.target()
    variables = variables_of(f"http://{address}", token, wanted)
    if print_env or not program:
        for name, value in variables.items():
            console.write(f"export {name}={shlex.quote(value)}")
        return
    path = shutil.which(program[0])
    if path is None:
        raise NotFoundError.because(
            "no_program", f"no program is called {program[0]!r}", "is it on the PATH?"
        )
    os.execve(path, program, {**environment_for_child(), **variables})  # noqa: S606 - that is what this is for


def variables_of(url: str, token: str, model: str) -> dict[str, str]:
    """What the vendors' libraries read; the model where one is known."""
    variables = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": token or NO_KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": token or NO_KEY,
        "OLLAMA_HOST": url,
    }
    if model:
        variables |= {"OPENAI_MODEL": model, "ANTHROPIC_MODEL": model}
    return variables


def _model_of(handle: NodeHandle, words: str) -> str:
    """The model that was named, else the first that is ready.

    Raises:
        NotFoundError: the named one does not run.
    """
    if words:
        model = find_model(handle, words)
        if not ready_instances(handle, model):
            raise NotFoundError.because(
                "model_not_ready", f"{model} does not run", f"`exoctl load {model}` starts it"
            )
        return model
    placed = [each.model for each in handle.state.instances.values()]
    return next((model for model in placed if ready_instances(handle, model)), "")

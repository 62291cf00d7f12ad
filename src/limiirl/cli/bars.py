"""What a long job tells meanwhile, on stderr: a bar or the running stage on a terminal, a line a stage elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer


@contextmanager
def told_stages() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each stage as it begins."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    told: set[str] = set()

    def tell(stage: str) -> None:
        if stage not in told:
            told.add(stage)
            typer.echo(f"{stage} ...", err=True)

    yield tell


@contextmanager
def counted(text: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function to call with how much is done and how much there is; None where there is no terminal."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with bars.Progress(console=console) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

"""From what an executor says of a task to the next piece of its stream."""

from tercet.job_executor.records import TaskRecord
from tercet.jobs.job import TaskOutput
from tercet.messages.wire import TaskUpdate


def piece(task: TaskRecord, update: TaskUpdate) -> TaskOutput | None:
    """Give the next piece of the task's stream and remember what the client now has.

    None where there is nothing to tell. What belongs into the first piece only is told once,
    however often the task is placed anew.
    """
    if update.cached_tokens is not None:
        task.cached_tokens = update.cached_tokens
    prompt_logprobs = None if task.prompt_told else update.prompt_logprobs
    tokens = update.tokens
    if not tokens and update.finish is None and prompt_logprobs is None:
        return None
    cached_tokens = None if task.told else task.cached_tokens
    task.told = True
    task.prompt_told = task.prompt_told or prompt_logprobs is not None
    task.generated.extend(tokens)
    return TaskOutput(
        task=task.id,
        tokens=tokens,
        logprobs=update.logprobs,
        prompt_logprobs=prompt_logprobs,
        cached_tokens=cached_tokens,
        finish=update.finish,
        stop_token=update.stop_token,
        failure=update.failure,
    )

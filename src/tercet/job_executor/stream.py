"""From what an executor says of a task to the next piece of its stream: no gap, no repetition.

Messages to and from one executor keep their order, but a connection may break between them, and
then the task is placed anew, perhaps on the same executor. What its older placement still says is
told apart by `started`, which begins every placement's words:

    placed, started, tokens ...             the usual
    placed, [tokens ...,] started, ...      older words first: no `started` before them, ignored
    placed, started, tokens, started, ...   an older placement from its beginning, then the new one:
                                            tokens that the client has by now are skipped
"""

from tercet.job_executor.records import TaskRecord
from tercet.jobs.job import Finish, TaskOutput
from tercet.jobs.states import TaskEvent, TaskState, next_task_state
from tercet.messages.wire import TaskUpdate


def heed(task: TaskRecord, update: TaskUpdate) -> bool:
    """Take `started`; tell whether the rest of the update is of the task's present placement."""
    if update.started:
        if task.state is TaskState.RUNNING and task.haunted:
            task.num_skip = len(task.generated) - task.num_base
            task.haunted = False
        task.state = next_task_state(task.state, TaskEvent.START, task.id)
        return True
    if task.state is TaskState.RUNNING:
        return not (task.haunted and update.finish is Finish.CANCELLED)
    # An executor may refuse a task that it never starts, and say why.
    return update.finish is Finish.FAILED


def piece(task: TaskRecord, update: TaskUpdate) -> TaskOutput | None:
    """Give the next piece of the task's stream and remember what the client now has."""
    tokens, logprobs = update.tokens, update.logprobs
    if task.num_skip and tokens:
        skip = min(task.num_skip, len(tokens))
        task.num_skip -= skip
        tokens = tokens[skip:]
        logprobs = None if logprobs is None else logprobs[skip:]
    if update.cached_tokens is not None:
        task.cached_tokens = update.cached_tokens
    prompt_logprobs = None if task.prompt_told else update.prompt_logprobs
    if not tokens and update.finish is None and prompt_logprobs is None:
        return None
    cached_tokens = None if task.told else task.cached_tokens
    task.told = True
    task.prompt_told = task.prompt_told or prompt_logprobs is not None
    task.generated.extend(tokens)
    return TaskOutput(
        task=task.id,
        tokens=tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        cached_tokens=cached_tokens,
        finish=update.finish,
        stop_token=update.stop_token,
        failure=update.failure,
    )

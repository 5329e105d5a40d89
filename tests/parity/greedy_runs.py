"""Greedy decoding of prompts on an executable, alone, together and in chunks."""

from collections.abc import Sequence as Listing

from tercet.devices.direct import Direct, Sequence


def greedy_together(
    direct: Direct, prompts: Listing[Listing[int]], count: int, *, chunk: int = 4096
) -> list[list[int]]:
    """`count` tokens for every prompt in one batch; prompts enter `chunk` tokens a step.

    Short prompts begin to decode while long ones are still being computed.
    """
    sequences = [Sequence() for _ in prompts]
    left = [list(prompt) for prompt in prompts]
    answers: list[list[int]] = [[] for _ in prompts]
    while any(len(answer) < count for answer in answers):
        at_work = [i for i, answer in enumerate(answers) if len(answer) < count]
        work = [(sequences[i], left[i][:chunk]) for i in at_work]
        drawn = direct.run(work).tokens
        for i, token in zip(at_work, drawn, strict=True):
            left[i] = left[i][chunk:]
            if not left[i]:
                answers[i].append(int(token))
                left[i] = [int(token)]
    return answers

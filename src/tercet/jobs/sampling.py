"""How a token is chosen, and when a task stops: values that were validated at the edge."""

from msgspec import Struct


class SamplingParameters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that the sampler and the stop rules of one task need; no defaults are left open.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `min_p` 0 and the neutral penalties switch
    their filter off. `seed` is drawn by the job executor when the client gave none.
    """

    max_tokens: int
    """Upper bound of new tokens, at least 1; the edge fills it in when the client is silent."""
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Divides (multiplies, if negative) the logit of every token of prompt and output."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the task besides the model's own end ids (`ignore_eos` spares only those)."""
    ignore_eos: bool = False
    logprobs: int | None = None
    """How many alternatives to report with each token; 0: the chosen token alone; None: none."""
    prompt_logprobs: int | None = None
    """The same for each prompt token (`echo` with `logprobs`); such a task hits no cache."""

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

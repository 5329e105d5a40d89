"""What may be set about the HTTP front; limits are refusals with a sentence, never crashes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ApiConfig:
    """Options of the HTTP front."""

    api_keys: tuple[str, ...] = ()
    """Any of them opens every route (`Authorization: Bearer KEY`); empty: no key is asked for.
    The health routes never ask."""
    body_bytes_max: int = 8 << 20
    """A larger body is answered with 413."""
    body_timeout_s: float = 30.0
    """A body that is not complete after so long is answered with 408."""
    json_depth_max: int = 32
    """Nesting of lists and objects in a body."""
    json_parts_max: int = 1 << 16
    """Lists and objects in a body, all together."""
    tokenize_chars_max: int = 1 << 20
    """Characters that `/tokenize` takes at a time."""
    detokenize_max: int = 1 << 18
    """Token ids that `/detokenize` takes at a time."""
    requests_max: int = 4096
    """Open requests of one front; beyond, the answer is 503 at once."""
    choices_max: int = 128
    """Largest `n`."""
    tasks_max: int = 1024
    """Largest number of prompts x `n` in one request; at most 4096."""
    stop_strings_max: int = 16
    """Largest number of `stop` strings."""
    stop_string_chars_max: int = 256
    """Longest of them."""
    stop_token_ids_max: int = 256
    """Largest number of `stop_token_ids`."""
    logit_bias_max: int = 1024
    """Largest number of entries of `logit_bias`."""
    top_logprobs_max: int = 20
    """Largest number of alternatives reported with a token."""
    prompt_logprobs_max: int = 1 << 18
    """Largest number of log-probabilities of prompt tokens in one answer: prompt tokens x `n` x
    (1 + alternatives)."""
    head_bytes_max: int = 64 << 10
    """A request line with headers that is longer is refused with 400."""
    head_timeout_s: float = 30.0
    """A connection whose request line and headers are not complete after so long is closed."""
    pieces_max: int = 1 << 16
    """Pieces of a stream that may wait for a client that reads too slowly; beyond, the stream ends
    with an error."""
    keep_alive_s: int = 75
    """A connection without a request is closed after so long."""
    write_timeout_s: float = 60.0
    """A client that takes nothing of its answer for so long, while there is some, is gone."""
    inline_chars_max: int = 4096
    """Text up to this long is tokenized in the event loop, longer text in a thread."""
    tokenizer_threads: int = 2
    """Threads that tokenize long text."""
    retry_after_s: int = 1
    """`Retry-After` of every 503."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "api_keys" and value <= 0:
                raise ValueError(f"api.{name} is {value}, but it must be positive.")
        if self.tasks_max > 4096:
            raise ValueError(f"api.tasks_max is {self.tasks_max}, but at most 4096 fit a job.")
        if any(not key.strip() or not key.isascii() for key in self.api_keys):
            raise ValueError("An API key is empty or holds characters beyond ASCII.")

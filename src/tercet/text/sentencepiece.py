"""SentencePiece's BPE by scores, as merges.

SentencePiece merges, again and again, the neighbours whose joined text is the token with the
best score, the leftmost first (Kudo and Richardson, 2018; llama.cpp's `llm_tokenizer_spm`).
The `tokenizers` library merges by rank of the pair. So every way to cut a token into two tokens
becomes a merge, and the ranks follow the scores.
"""

from collections.abc import Collection, Sequence


def merges_from_scores(
    tokens: Sequence[str], scores: Sequence[float], *, byte_tokens: Collection[str]
) -> list[tuple[str, str]]:
    """Every pair of tokens whose joined text is a token, the best score first.

    Byte tokens are parts of no merge: they stand for characters that the vocabulary lacks.
    """
    parts = frozenset(tokens).difference(byte_tokens)
    ranked: list[tuple[float, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=False):
        for cut in range(1, len(token)):
            left = token[:cut]
            if left in parts and (right := token[cut:]) in parts:
                ranked.append((-score, cut, left, right))
    ranked.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in ranked]

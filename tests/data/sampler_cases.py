"""Sampling parameters of a few rows, and the naive sampler that the real one must equal."""

import numpy as np
from msgspec.structs import fields

from tercet.devices.contract import F32, F64, I32, Sampling


def rows_of(num_rows, *, history=None, bias=None, **values):
    """`Sampling` of R rows; a value is one for all rows or a list. `history` and `bias` are lists
    of dicts: id -> count in the output (0: in the prompt only), id -> bias.
    """
    defaults = {
        "temperature": (np.float32, 0.0),
        "top_k": (np.int32, 0),
        "top_p": (np.float32, 1.0),
        "min_p": (np.float32, 0.0),
        "seed": (np.uint64, 7),
        "choice": (np.int32, 0),
        "position": (np.int32, 0),
        "repetition": (np.float32, 1.0),
        "presence": (np.float32, 0.0),
        "frequency": (np.float32, 0.0),
        "num_logprobs": (np.int32, -1),
    }
    arrays = {
        name: np.broadcast_to(np.asarray(values.get(name, start), kind), num_rows).copy()
        for name, (kind, start) in defaults.items()
    }
    ids, counts, ends = ragged(history or [{}] * num_rows)
    arrays |= {
        "history_ids": ids,
        "history_counts": counts.astype(np.int32),
        "history_ends": ends,
    }
    ids, biases, ends = ragged(bias or [{}] * num_rows)
    arrays |= {"bias_ids": ids, "bias_values": biases.astype(np.float32), "bias_ends": ends}
    return Sampling(**arrays)


def ragged(rows):
    ids = np.array([key for row in rows for key in row], np.int32)
    values = np.array([value for row in rows for value in row.values()], np.float64)
    ends = np.cumsum([len(row) for row in rows]).astype(np.int32)
    return ids, values, ends


def one_row(sampling: Sampling, row: int) -> Sampling:
    """The same row with nothing beside it."""
    parts = {}
    for field in fields(Sampling):
        value = getattr(sampling, field.name)
        if field.name.startswith(("history_", "bias_")):
            continue
        parts[field.name] = value[row : row + 1]
    for kind, names in {"history": ("ids", "counts"), "bias": ("ids", "values")}.items():
        ends = getattr(sampling, f"{kind}_ends")
        start, end = (int(ends[row - 1]) if row else 0), int(ends[row])
        for name in names:
            parts[f"{kind}_{name}"] = getattr(sampling, f"{kind}_{name}")[start:end]
        parts[f"{kind}_ends"] = np.array([end - start], np.int32)
    return Sampling(**parts)


def naive_scores(logits: F32, sampling: Sampling, row: int) -> F64:
    """Biases, penalties and bans of one row, one id at a time."""
    alone = one_row(sampling, row)
    scores = logits[row].astype(np.float64)
    for token, value in zip(alone.bias_ids, alone.bias_values, strict=True):
        scores[token] += value
    for token, count in zip(alone.history_ids, alone.history_counts, strict=True):
        scores[token] = (
            scores[token] / alone.repetition[0]
            if scores[token] > 0
            else scores[token] * alone.repetition[0]
        )
        scores[token] -= alone.frequency[0] * count + alone.presence[0] * (count > 0)
    return scores


def naive_distribution(logits: F32, sampling: Sampling, row: int) -> F64:
    """[V] the exact distribution that one row is drawn from, by whole sorts."""
    scores = naive_scores(logits, sampling, row) / float(sampling.temperature[row])
    order = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if 0 < sampling.top_k[row] < len(scores):
        order = order[: sampling.top_k[row]]
    mass = np.exp(scores[order] - scores[order[0]])
    mass /= mass.sum()
    before = np.cumsum(mass) - mass
    kept = before < float(sampling.top_p[row])
    kept[0] = True
    kept &= mass >= mass[0] * float(sampling.min_p[row])
    chosen = np.zeros(len(scores))
    for token, keep, weight in zip(order, kept, mass, strict=True):
        chosen[token] = weight if keep else 0.0
    return chosen / chosen.sum()


def unscored(num_rows: int) -> I32:
    return np.full(num_rows, -1, np.int32)

"""Fetching a checkpoint from the Hugging Face hub, by its own client.

The client keeps its own cache and reads HF_HOME, HF_TOKEN and HF_HUB_OFFLINE. It is imported only
here and only when a model of the hub is named.
"""

import re
from pathlib import Path

from tercet.base.errors import Invalid

HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(@[\w./-]+)?")
"""`organization/name`, with a revision after `@` if not the main one."""
NEEDED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt")
NOT_NEEDED = ("*/*", "consolidated*")
"""Other formats of the same weights lie in folders or begin so. Templates in a folder
(`additional_chat_templates/`) are left behind with them."""


def fetch_from_hub(source: str) -> Path:
    """The local folder of the repository's files, fetched as far as they aren't in its cache."""
    import huggingface_hub
    from huggingface_hub import errors
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # its client's

    repository, _, revision = source.partition("@")
    try:
        folder = huggingface_hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(NEEDED),
            ignore_patterns=list(NOT_NEEDED),
        )
    except errors.GatedRepoError:
        raise _unavailable(
            source, "its owner has to grant access first; set HF_TOKEN to a token that has it"
        ) from None
    except errors.RepositoryNotFoundError:
        raise _unavailable(
            source, "there is none of this name, or it is private and HF_TOKEN is not set"
        ) from None
    except errors.RevisionNotFoundError:
        raise _unavailable(source, f"it has no revision {revision!r}") from None
    except errors.LocalEntryNotFoundError:
        raise _unavailable(
            source,
            "it is not in the local cache (HF_HOME) and the hub cannot be reached or "
            "HF_HUB_OFFLINE is set",
        ) from None
    except (OSError, ValueError, HTTPError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _unavailable(source, first.rstrip(".")) from None
    return Path(folder)


def _unavailable(source: str, reason: str) -> Invalid:
    return Invalid(
        f"The model {source} cannot be fetched from the hub: {reason}.",
        code="no_model",
        parameter=source,
    )

"""Where models are kept."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCacheConfig:
    """The model cache of a host. Folders are made when something is put into them."""

    folder: Path
    """Holds `models/` (fetched checkpoints), `images/`, `digests/`, `outlines/` and
    `vocabularies/`."""
    images_bytes_max: int = 20_000_000_000
    """Before one more image is built, images that no process uses go, the least recently used
    first, until all fit into this."""

    @property
    def models(self) -> Path:
        """Checkpoints that the registry fetched."""
        return self.folder / "models"

    @property
    def images(self) -> Path:
        """Model images, named by what they hold."""
        return self.folder / "images"

    @property
    def digests(self) -> Path:
        """Digests of files that were read once."""
        return self.folder / "digests"

    @property
    def outlines(self) -> Path:
        """What the heads of checkpoints' files said when they were last read."""
        return self.folder / "outlines"

    @property
    def vocabularies(self) -> Path:
        """Vocabularies of GGUF files, laid out to be mapped (`text.compact`)."""
        return self.folder / "vocabularies"

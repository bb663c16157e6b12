"""A model's config.json from the Hugging Face hub: that one file, quickly, or a reason why not."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import UsageError

_TIMEOUT_SECONDS = 5.0
_OFFLINE_HINT = "use a shipped card (`autotune models`), a folder or a config.json: these need no network"


def fetch_config(hub_id: str) -> Path:
    """The local copy of a hub model's config.json, downloaded if it can be.

    Respects HF_HUB_OFFLINE, HF_TOKEN, HF_ENDPOINT and HF_HOME as huggingface_hub does. Without a network it
    answers from huggingface_hub's cache or fails within seconds: left alone, a download would try six times.

    Args:
        hub_id: a repository id.

    Raises:
        UsageError: if there is no such model, access to it is not granted, it has no config.json, or the hub
            cannot be reached and nothing is cached.
    """
    import httpx
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()  # a bar for one kilobyte would only tear the command's own output
    unreachable = ""
    try:
        get_hf_file_metadata(hf_hub_url(hub_id, "config.json"), timeout=_TIMEOUT_SECONDS)
    except errors.GatedRepoError as error:
        raise UsageError(
            f"access to {hub_id} has to be granted to you on the hub",
            f"accept its terms at https://huggingface.co/{hub_id}, then set HF_TOKEN or run `hf auth login`",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"there is no model {hub_id!r} on the hub that you can see",
            "check the spelling; for a private model set HF_TOKEN; `autotune models` lists the shipped cards",
        ) from error
    except errors.EntryNotFoundError as error:
        raise UsageError(
            f"{hub_id} on the hub has no config.json",
            "it is not stored in transformers' form: look for a variant that is, often named -hf",
        ) from error
    except errors.HFValidationError as error:
        raise UsageError(f"{hub_id!r} names no model", _OFFLINE_HINT) from error
    except errors.HfHubHTTPError as error:
        unreachable = f"the hub answers {error.response.status_code}"
    except (
        errors.FileMetadataError,
        httpx.HTTPError,
        httpx.InvalidURL,
        OSError,
    ):  # offline mode is an OSError
        unreachable = "the hub cannot be reached"
    try:
        return Path(hf_hub_download(hub_id, "config.json", local_files_only=bool(unreachable)))
    except (errors.HfHubHTTPError, errors.FileMetadataError, httpx.HTTPError, OSError, ValueError) as error:
        if unreachable:
            raise UsageError(f"{hub_id} is not a shipped card, and {unreachable}", _OFFLINE_HINT) from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"the config.json of {hub_id} cannot be downloaded: {reason}", _OFFLINE_HINT
        ) from error

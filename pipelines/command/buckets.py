"""Folders in buckets, s3:// and gs://: what they need before anything is read there."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from pipelines.command.errors import OptionsError

_NEEDS = {"s3": ("boto3", "aws"), "gs": ("google.cloud.storage", "gcp")}
"""By scheme the library that reads it, and the extra that has it."""


def prepare(words: Sequence[str]) -> None:
    """Let Beam read the buckets that a command line names, with the options for them that it gives.

    Beam itself does so only where a pipeline is made, and a store is read before.

    Raises
    ------
    OptionsError
        A library is missing.
    """
    named = {}
    for scheme in _NEEDS:
        word = next((word for word in words if re.search(rf"(?:^|[=,\s]){scheme}://", word)), None)
        if word is not None:
            named[scheme] = word
    problems = [
        f"{word}: {scheme}:// needs {library}, in recrawl's extra {extra}: from a checkout "
        f"pip install '.[{extra}]'"
        for scheme, word in named.items()
        for library, extra in [_NEEDS[scheme]]
        if not _is_there(library)
    ]
    if problems:
        raise OptionsError(problems)
    if named:
        # Beam's own, which only buckets need.
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import PipelineOptions, S3Options

        options = PipelineOptions(list(words))
        FileSystems.set_options(options)
        if "s3" in named:
            _share_clients(options.view_as(S3Options).s3_access_key_id is not None, named["s3"])


def is_of_bucket(error: BaseException) -> bool:
    """Whether an error is what a library for buckets says, such as that there are no credentials."""
    return type(error).__module__.startswith(("apache_beam.io.aws", "boto", "google.api_core", "google.auth"))


def _share_clients(has_key: bool, word: str) -> None:
    """Beam makes a client, with credentials of its own, for each question that it asks of a bucket.

    That takes ten times as long as the answer. Clients may be shared by threads.

    Raises
    ------
    OptionsError
        No credentials: Beam would ask again and again, for many minutes.
    """
    import boto3
    from apache_beam.io.aws.clients.s3 import boto3_client

    if not has_key and boto3.session.Session().get_credentials() is None:
        raise OptionsError(
            [
                f"{word}: no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give a "
                "profile or a role"
            ]
        )

    @functools.cache
    def client(**options: Any) -> Any:
        return boto3.session.Session().client(**options)

    session = SimpleNamespace(Session=lambda: SimpleNamespace(client=client))
    boto3_client.boto3 = SimpleNamespace(session=session)


def _is_there(library: str) -> bool:
    try:
        importlib.import_module(library)
    except ImportError:
        return False
    return True

"""From a path or URL, as people write them, to the files there."""

import os

from executor.storage.files import Files, LocalFiles

_SCHEMES = {"gcs": "gs", "s3a": "s3"}


def normal_url(url: str) -> str:
    """One spelling for one place: local paths absolute, no trailing slash, no `file://`, `gs` for `gcs`."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme not in ("file", "local"):
        return f"{_SCHEMES.get(scheme, scheme)}://{rest.rstrip('/')}"
    url = rest if separator else url
    return os.path.abspath(os.path.expanduser(url))


def open_files(url: str) -> Files:
    """The files at a local path or a URL; only a URL imports a storage library.

    Raises StoreError for a scheme that no installed library knows.
    """
    url = normal_url(url)
    if "://" not in url:
        return LocalFiles(url)
    from executor.storage.remote import RemoteFiles

    return RemoteFiles(url)

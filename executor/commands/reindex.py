"""`marinade reindex`: write the index anew from records and acceptances, after it was lost."""

import argparse

from executor.storage.inventory import reindex
from executor.storage.store import Store, default_prefix


def execute(args: argparse.Namespace) -> int:
    store = Store(args.prefix or default_prefix())
    entries = reindex(store)
    if args.json:
        from executor.render.as_json import dumps

        print(dumps({"prefix": store.prefix, "entries": entries}))
    else:
        print(f"{entries} entries in {store.prefix}/.index")
    return 0

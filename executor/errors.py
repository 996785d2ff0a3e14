"""Errors that people read: the whole message is the text to show, no traceback needed."""


class MarinadeError(Exception):
    """Something about a recipe, the store or the machine that a person has to change. A command exits with 1."""


class UsageError(MarinadeError):
    """What was typed does not fit: an unknown step, setting, scale or file. A command exits with 2."""


class IdentityError(MarinadeError, ValueError):
    """A value that has no stable form, so that no key can be made of it; names the field."""


class StoreError(MarinadeError):
    """The store says something that cannot be: a key that does not match its record, a prefix that cannot be read."""


class ResourcesMissing(MarinadeError):
    """Steps need machines that are not there; nothing was started."""


class LeaseLost(MarinadeError):
    """Another process took the lease of this artifact: what was written here will not be published."""


class StepHalted(MarinadeError):
    """Raised by a step's function when a guard pauses it: resumable after `--acknowledge STEP`."""

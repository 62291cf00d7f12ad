"""Base class of the estimators."""

from typing import Any


class NoMetadataRouting:
    """Mixin that removes scikit-learn's metadata routing methods, such as `set_fit_request`, from subclasses."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if type(value).__name__ == "RequestMethod":
                delattr(cls, name)

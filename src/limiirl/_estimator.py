"""Base of the estimators: scikit-learn's parameters without its metadata routing."""

from typing import Any


class NoMetadataRouting:
    """Remove the methods that scikit-learn adds to route metadata, such as `set_fit_request`.

    An MDP and demonstrations are the data of a fit, not metadata that a pipeline could pass on.

    Examples
    --------
    >>> from limiirl import MaxCausalEnt
    >>> [name for name in dir(MaxCausalEnt) if name.startswith("set_")]
    ['set_params']
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if type(value).__name__ == "RequestMethod":
                delattr(cls, name)

# The compiled core; silva.kernels.cpu gives its functions types and words.
from typing import Any

def __getattr__(name: str) -> Any: ...

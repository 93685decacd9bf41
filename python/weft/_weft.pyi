# What cffi makes of weft.h. The names are those of the header; their types are cffi's at run time.
from typing import Any

ffi: Any
lib: Any

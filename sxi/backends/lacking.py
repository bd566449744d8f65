"""What CuPy 14 lacks of NumPy, and which of its functions read on the host: the tables of the strict backend.

A name, keyword or method that is missing here is taken to be CuPy's too.  With CuPy installed a test
holds every entry against the package.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# By module: the names that it does not have.
NAMES = {
    "numpy": _words("""
        asmatrix block bmat char core ctypeslib datetime64 einsum_path emath errstate frompyfunc fromregex geomspace
        geterr histogram_bin_edges insert isnat longdouble clongdouble ma matrix matvec memmap nanpercentile
        nanquantile ndenumerate nditer nested_iters polyder polydiv polyint rec recarray seterr spacing strings
        timedelta64 unstack vecdot vecmat void object_ str_ bytes_
        """),
    "numpy.linalg": _words("diagonal matrix_norm multi_dot outer svdvals tensordot trace vecdot vector_norm"),
}

# Attributes and methods of arrays that it does not have, or that reach into the memory.
METHODS = _words("ctypes data flat getfield resize setfield setflags to_device")

# Keywords: those that no function takes, but for the ones named after, and those that one does not take.
_NOWHERE = frozenset({"correction", "device", "initial", "like", "where"})
_EXCEPT = {("copyto", "where")}
_OF = {
    "argpartition": {"kind", "order"},
    "argsort": {"order", "stable"},
    "broadcast_to": {"subok"},
    "count_nonzero": {"keepdims"},
    "partition": {"kind", "order"},
    "sort": {"order", "stable"},
    "take": {"mode"},
    "unique": {"sorted"},
}

UFUNC_KEYWORDS = frozenset({"casting", "dtype", "out"})
# The functions whose method it has; an empty set is all of them.
UFUNC_METHODS: dict[str, frozenset[str]] = {
    "accumulate": frozenset({"add", "multiply"}),
    "at": frozenset({"add", "bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum", "subtract"}),
    "outer": frozenset(),
    "reduce": frozenset({"add", "multiply"}),
    "reduceat": frozenset({"add"}),
}

# Functions that wait for the device: the shape of what they give, or a check, depends on numbers.
SYNCHRONIZING = _words("""
    argwhere asarray_chkfinite bincount compress delete extract flatnonzero histogram histogram2d histogramdd
    intersect1d ix_ mask_indices nonzero percentile place quantile setdiff1d setxor1d trim_zeros union1d unique
    unique_all unique_counts unique_inverse unique_values
    """)

# Functions whose operands are the host's: an array among them is read first.
OF_HOST_NUMBERS = _words("arange empty eye identity ones tri zeros")

# Functions that answer about arrays, in numbers of the host.
ABOUT_ARRAYS = _words("""
    broadcast_shapes can_cast common_type iscomplexobj isrealobj isscalar issubdtype may_share_memory
    min_scalar_type ndim promote_types result_type shape shares_memory size
    """)


def keyword(function: str, name: str) -> bool:
    """Whether CuPy's `function` lacks the keyword `name`."""
    if name in _NOWHERE:
        return (function, name) not in _EXCEPT
    return name in _OF.get(function, ())


def reads(function: str, arguments: int) -> bool:
    """Whether CuPy's `function` of so many arguments reads on the host."""
    return function in SYNCHRONIZING or (function == "where" and arguments == 1)

"""Array types used across `policies`."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Int32Array = NDArray[np.int32]
UIntArray = NDArray[np.uint64]
ByteArray = NDArray[np.uint8]
BoolArray = NDArray[np.bool_]
Int16Array = NDArray[np.int16]

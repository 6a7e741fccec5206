# SPDX-License-Identifier: Apache-2.0
"""The package's version. It needs a library of the ABI in _abi.py; the releases are counted apart."""

__version__ = "0.1.0"

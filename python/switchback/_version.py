# SPDX-License-Identifier: Apache-2.0
"""The package's version, which is independent of the C library's version. _abi.py has the required ABI
version."""

__version__ = "0.1.0"
